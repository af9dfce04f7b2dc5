"""The per-class study: the published figures come out of it, every figure is one of the records, and bad input is one line."""

import csv
import importlib.util
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import brinell
from _browser import check_everywhere, chromium
from _helpers import Recorder, run_audit, threshold, workspace
from brinell.analysis.compare import Side
from brinell.analysis.proportions import mcnemar
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.core.outward import printable
from brinell.studies.per_class.analysis import study
from brinell.studies.per_class.marks import load_marks
from brinell.studies.per_class.page import render, tables, write
from brinell.studies.per_class.request import DIGITS, StudyRequest
from brinell.studies.per_class.words import reading


def from_file(name):
    path = Path(__file__).parents[2] / "analysis" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"brinell_tests_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GOLDEN, SYNTHETIC = from_file("test_per_class_study"), from_file("synthetic")
PARAMETERS = [267_720_000, 266_790_000, 36_470_000, 566_920_000, 36_480_000]
LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
EPS = [0.0, 0.1, 0.2]
INF = np.inf


@pytest.fixture(scope="module")
def sides():
    """The models of the published study, as records."""
    labels = np.repeat(np.arange(10), GOLDEN.SAMPLES)
    parts = []
    for number, model in enumerate(GOLDEN.MODELS):
        breaks = []
        for n, k, r in zip(GOLDEN.SAMPLES, *GOLDEN.counts(number), strict=True):
            breaks += [*[0.0] * (n - k), *(0.5 / 255 + np.arange(k - r) % 8 / 255), *[np.inf] * r]
        parts.append(SYNTHETIC.records(model, labels, GOLDEN.EPS, np.array([breaks, breaks])))
    manifest = SYNTHETIC.manifest(GOLDEN.MODELS, GOLDEN.EPS, 500, [str(c) for c in range(10)])
    for facts, size in zip(manifest["models"], PARAMETERS, strict=True):
        facts["parameters"] = size
    rows = SYNTHETIC.join(*parts)
    return [Side(run="r", manifest=manifest, records=rows, model=model) for model in GOLDEN.MODELS]


@pytest.fixture(scope="module")
def golden(sides, tmp_path_factory):
    return study(sides, str(tmp_path_factory.mktemp("golden")), draws=400)


def hand(*breaks, eps=EPS, run="r", names=("a", "b", "c"), n=8, **changes):
    """Models of two classes whose samples break at these distances."""
    names = names[: len(breaks)]
    parts = [
        SYNTHETIC.records(name, LABELS[:n], eps, np.array([row, row], dtype=float), classes=2)
        for name, row in zip(names, breaks, strict=True)
    ]
    manifest = SYNTHETIC.manifest(list(names), eps, n, ["zero", "one"], **changes)
    return [Side(run=run, manifest=manifest, records=SYNTHETIC.join(*parts), model=name) for name in names]


A = [INF, INF, INF, 0.05, 0.05, 0.05, 0.15, INF]
B = [INF, INF, 0.05, 0.05, 0.05, 0.05, 0.15, INF]


# The published study


def test_the_published_figures_come_out(golden):
    assert golden.n == 500 and golden.eps_text[golden.at] == "8/255"
    for number, model in enumerate(golden.models):
        assert 100 * model.mean_drop == pytest.approx(GOLDEN.MEAN_PER_MODEL[number], abs=0.05)
        totals = [100 * c.total_drop for c in model.per_class]
        assert totals == pytest.approx(GOLDEN.TOTAL_DROP[number], abs=0.5)
        assert model.loses_most == ["3"]
        assert model.parameters == PARAMETERS[number]
    means = [100 * c.mean_drop for c in golden.classes]
    assert means == pytest.approx(GOLDEN.MEAN_PER_CLASS, abs=0.1)
    assert golden.classes[3].rank.rank == 1 and golden.classes[3].ranked_drop == golden.classes[3].mean_drop
    assert golden.classes[9].rank.rank == 10


def test_what_it_concluded_is_said(golden):
    text = " ".join(reading(golden))
    assert "Class 3 has the largest drop (−45.3 points up to 8/255 on average, from 84.5\u00a0% on clean inputs)" in text
    assert "with 49 of its samples 6 of the 9 other classes may lose as much" in text
    assert "Peng2023Robust has the highest robust accuracy" in text and "Wang2023Better_WRN-70-16 may be as robust" in text
    assert "These models do not show whether the number of parameters goes with robustness" in text
    assert "The models agree on which classes lose most, more than shared hard samples explain (Kendall's W 0.9" in text
    (w,) = (model for model in golden.ranks if model.statistic == "kendall-w")
    assert w.value > 0.9 and w.n == 10 and len(w.by) == 5
    sizes = next(model for model in golden.ranks if model.by[1:] == ["parameters"])
    assert sizes.value == pytest.approx(0.6) and sizes.low < 0 < sizes.high and sizes.n == 5


def test_a_place_is_certain_only_if_every_pair_is_told_apart():
    """Property: of models made at random, the sentence names one as the most robust only if McNemar's test says so."""
    certain = 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        labels = np.repeat([0, 1], 30)
        rates = rng.choice([0.2, 0.3, 0.9], 3)
        breaks = np.where(rng.random((3, 60)) < rates[:, None], INF, 0.05)
        parts = [
            SYNTHETIC.records(name, labels, EPS, np.array([row, row]), classes=2) for name, row in zip("abc", breaks, strict=True)
        ]
        manifest = SYNTHETIC.manifest(list("abc"), EPS, 60, ["zero", "one"])
        result = study(
            [Side(run="r", manifest=manifest, records=SYNTHETIC.join(*parts), model=name) for name in "abc"], "f", draws=20
        )
        robust = np.isinf(breaks)
        best = int(robust.mean(1).argmax())
        p_values = [mcnemar(int((robust[best] & ~other).sum()), int((other & ~robust[best]).sum())) for other in robust]
        says = "is the most robust at" in reading(result)[0]
        assert not says or max(np.delete(p_values, best)) <= 0.05
        certain += says
    assert 0 < certain < 16


def test_a_few_models_show_no_correlation():
    """Property: whatever the order of few models, it is said that they cannot show what goes with robustness."""
    for count in (2, 3, 4, 5):
        names = [f"m{number}" for number in range(count)]
        breaks = [[INF] * (1 + number) + [0.05] * (7 - number) for number in range(count)]
        sides = []
        for number, (name, row) in enumerate(zip(names, breaks, strict=True)):
            records = SYNTHETIC.records(name, LABELS, EPS, np.array([row, row]), classes=2)
            manifest = SYNTHETIC.manifest([name], EPS, 8, ["zero", "one"])
            manifest["models"][0]["parameters"] = 100 * (number + 1)
            sides.append(Side(run=name, manifest=manifest, records=records, model=name))
        result = study(sides, "f", draws=100)
        text = " ".join(reading(result))
        assert "does not" not in text and "goes with more robustness" not in text
        note = f"With {count} models no figure of a model can be shown to go with robustness"
        assert (count < 5) == any(note in line for line in result.notes)


def test_a_class_with_little_to_lose_has_no_place():
    labels = np.repeat([0, 1, 2], [40, 40, 2])
    breaks = np.concatenate([np.where(np.arange(40) < 30, 0.05, INF), np.where(np.arange(40) < 5, 0.05, INF), [0.0, 0.0]])
    parts = [SYNTHETIC.records(name, labels, EPS, np.array([breaks, breaks]), classes=3) for name in "ab"]
    manifest = SYNTHETIC.manifest(["a", "b"], EPS, 82, ["dog", "frog", "cat"])
    sides = [Side(run="r", manifest=manifest, records=SYNTHETIC.join(*parts), model=name) for name in "ab"]
    result = study(sides, "f", draws=100)
    text = " ".join(reading(result))
    assert "Class dog loses most of 2 classes with enough samples" in text and "Class frog loses least" in text
    assert result.models[0].loses_least == ["frog"] and "Class cat" not in text
    assert any("1 of 3 classes have no place in the order of the classes (cat)" in note for note in result.notes)


def test_what_is_said_holds_nothing_that_a_terminal_would_escape(golden):
    assert [printable(sentence) for sentence in reading(golden)] == reading(golden)


def test_the_layout(golden):
    html = render(golden)
    for model in GOLDEN.MODELS:
        assert f">{model}<" in html or model in html
    assert "267\u202f720\u202f000" in html and "Every budget, model by model" in html and "http:" not in html
    # Per model: a row for each budget, then the totals; the mean over models closes the table of drops.
    part = html[html.index("Every budget, model by model") :]
    assert part.count('<tr class="total"><th scope="row">drop to 8/255</th>') == 5
    assert part.count('<th scope="row">8/255</th>') == 5 and part.count('<th scope="row">clean</th>') == 5
    assert "−21.9" in html and "−45.3" in html


def test_the_tables_hold_what_the_page_shows(golden):
    tables_read = {name: list(csv.DictReader(text.splitlines())) for name, text in tables(golden).items()}
    assert len(tables_read["per_class.csv"]) == 5 * 10 * 9
    overall = [row for row in tables_read["total_drop.csv"] if row["model"] == "mean over models"]
    assert [100 * float(row["total_drop"]) for row in overall] == pytest.approx(GOLDEN.MEAN_PER_CLASS, abs=0.1)
    ranks = [row["rank"] for row in tables_read["models.csv"] if row["rank"]]
    assert sorted(map(float, ranks)) == [1, 2, 3, 4, 5]


# By hand


def test_by_hand():
    result = study(hand(A, B), "f", draws=200)
    first_model, second_model = result.models
    assert [rate.k for rate in first_model.robust] == [8, 5, 4] and [rate.k for rate in second_model.robust] == [8, 4, 3]
    assert [c.total_drop for c in first_model.per_class] == [-0.25, -0.75] and first_model.mean_drop == -0.5
    assert first_model.loses_most == [] == first_model.loses_least, "of four samples nothing is said"
    assert first_model.rank.rank == 1 and second_model.rank.rank == 2
    assert (first_model.rank.low, first_model.rank.high) == (1, 2) and first_model.rivals == ["b"]
    assert first_model.spread.value == 0.5 and first_model.spread.p > 0.05
    assert [c.mean_drop for c in result.classes] == [-0.375, -0.75]
    assert [stage.accuracy for stage in first_model.stages] == [0.5, 0.5]
    assert [stage.drop for stage in first_model.stages] == [-0.5, 0.0]
    (w,) = (r for r in result.ranks if r.statistic == "kendall-w")
    assert w.value == 1 and w.n == 2 and w.by == ["a", "b"]
    compared = study(hand(A, B), "f", eps=0.1, draws=200)
    assert [c.total_drop for c in compared.models[0].per_class] == [-0.25, -0.5] and compared.eps_text[
        compared.at
    ] == result.eps_text[1]


def test_the_samples_and_budgets_that_all_have():
    rows = SYNTHETIC.keep
    first, second = hand(A, B)
    fewer = Side(run="s", manifest=second.manifest, records=rows(second.records, second.records.sample_id < 6), model="b")
    result = study([first, fewer], "f", draws=100)
    assert result.n == 6 and all(rate.n == 6 for model in result.models for rate in model.robust)
    assert any("2 of the 8 samples of a in r were not judged" in note and "6 samples remain" in note for note in result.notes)
    third = hand(A, eps=[0.0, 0.05, 0.2], run="t", names=("d",))
    result = study([first, *third], "f", draws=100)
    assert result.eps == [0.0, 0.2]


def test_a_model_with_nothing_left_has_no_order_of_classes():
    result = study(hand(A, B, [0.05] * 8), "f", draws=100)
    assert any("c: no sample is robust" in note for note in result.notes)
    (w,) = (r for r in result.ranks if r.statistic == "kendall-w")
    assert w.by == ["a", "b"]
    assert result.classes[0].rank is None and result.models[2].rank.rank == 3
    assert any("2 of 2 classes have no place in the order of the classes (zero, one)" in note for note in result.notes)


def test_models_are_compared_where_they_keep_some_accuracy():
    """The largest budget at which they keep a tenth on average; the order of the models does not matter."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        breaks = list(rng.uniform(0, max(EPS), size=(3, 8)) * rng.uniform(0.05, 2, size=(3, 1)))
        results = [study(hand(*order), "f", draws=20) for order in (breaks, breaks[::-1])]
        robust = np.mean([[rate.value for rate in model.robust] for model in results[0].models], 0)
        telling = [index for index, eps in enumerate(results[0].eps) if eps > 0 and robust[index] >= 0.1]
        smallest = next(index for index, eps in enumerate(results[0].eps) if eps > 0)
        assert {result.at for result in results} == {telling[-1] if telling else smallest}
        moved = results[0].at != len(results[0].eps) - 1
        assert any(note.startswith("compared at") for note in results[0].notes) == moved


def test_two_runs_with_a_model_of_one_name():
    result = study([*hand(A), *hand(B, run="s")], "f", draws=100)
    assert [model.model for model in result.models] == ["r: a", "s: a"]


OTHER_DIGEST = {"digest": "e" * 32}
BAD = {
    "one model only": (lambda: hand(A), "at least two models: r has a alone: add another --model or run folder"),
    "other data": (
        lambda: [*hand(A), *hand(B, run="s", data=hand(B)[0].manifest["data"] | OTHER_DIGEST)],
        r"r and s differ in their data \(by their digest\)",
    ),
    "other classes": (
        lambda: [*hand(A), *hand(B, run="s", data=hand(B)[0].manifest["data"] | {"classes": ["x", "y"]})],
        "differ in their classes",
    ),
    "other norm": (lambda: [*hand(A), *hand(B, run="s", distance="l2")], "differ in their norm"),
    "own budgets": (lambda: [*hand(A), *hand(B, run="s", recommended={"digest": "x"})], "differ by sample"),
    "unfinished": (lambda: [*hand(A), *hand(B, run="s", state="running")], "s is not finished: resume it with"),
    "no budget in common": (lambda: [*hand(A), *hand(B, eps=[0.0, 0.3], run="s")], "share no eps above 0"),
}


def test_what_cannot_be_compared():
    for make, message in BAD.values():
        with pytest.raises(RequestError, match=message):
            study(make(), "f", draws=100)


def test_a_budget_that_is_none_of_theirs():
    with pytest.raises(
        RequestError, match=r"at is 0.15, which is not a budget above 0 that all runs share: choose one of 26/255, 51/255"
    ):
        study(hand(A, B), "f", eps=0.15, draws=100)


# Marks


def test_published_marks(tmp_path, shared):
    folder = tmp_path / "Linf"
    folder.mkdir()
    entry = {"eps": "8/255", "clean_acc": "90.00", "autoattack_acc": "60.00"}
    (folder / "a.json").write_text(json.dumps(entry))
    (folder / "b.json").write_text(json.dumps(entry | {"external": 55.5}))
    (folder / "c.json").write_text(json.dumps(entry | {"eps": "4/255"}))
    (folder / "d.json").write_text("no JSON")
    marks = load_marks(folder, "linf", 8 / 255)
    assert [(mark.name, mark.clean, mark.robust) for mark in marks] == [("a", 0.9, 0.6), ("b", 0.9, 0.555)]
    for distance, eps, message in (("l2", 0.5, "is for Linf"), ("linf", 0.5, "no entry at eps 0.5")):
        with pytest.raises(RequestError, match=message):
            load_marks(folder, distance, eps)
    with pytest.raises(RequestError, match="holds no model_info file"):
        load_marks(tmp_path, "linf", 0.1)
    models_by_name = {
        mark.name: mark for mark in load_marks(shared / "robustbench_model_info" / "cifar10" / "Linf", "linf", 8 / 255)
    }
    assert len(models_by_name) == 99 and models_by_name["Peng2023Robust"].robust == pytest.approx(0.7107)


# The command


X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9], [0.7, 0.2]], dtype=np.float32)
Y = np.array([0, 0, 0, 0, 0, 1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, threshold_value in (("near", 0.5), ("far", 0.6)):
        run_audit(
            folder / name,
            Recorder(threshold(threshold_value), name=name),
            X,
            Y,
            eps="0,0.05,0.15",
            attack=("fgsm", "pgd?steps=3"),
        )
    return folder


def test_runs_that_exist(runs, tmp_path, capsys, root):
    words = ["study", str(runs / "near"), str(runs / "far"), "--out", str(tmp_path / "s"), "--draws", "200"]
    assert cli([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/study.json").read_text()))
    assert [model["model"] for model in answer["models"]] == ["near", "far"] and len(answer["ranks"]) == 4
    assert [rate["k"] for rate in answer["models"][0]["robust"]] == [5, 4, 3]
    assert {"value", "low", "high", "n", "k"} <= set(answer["models"][0]["clean"])
    assert (tmp_path / "s" / "report.html").is_file() and (tmp_path / "s" / "tables" / "ranks.csv").is_file()
    assert cli(words) == 2
    assert "holds a study: add --resume" in capsys.readouterr().err
    result = brinell.study([runs / "near", runs / "far"], out=tmp_path / "t", draws=200)
    assert result.models == study_of(answer).models


def study_of(answer):
    return brinell.studies.per_class.results.StudyResult.model_validate(answer)


def test_models_are_audited_first(tmp_path, capsys):
    assert StudyRequest().audit_request().model == DIGITS and len(DIGITS) == 4
    work = workspace(tmp_path, n=12)
    models = [f"--model=torch:{work / 'model.py'}:parabola?{options}" for options in ("name=near", "name=far&args=at=0.7")]
    words = ["study", f"--data=npz:{work / 'data.npz'}", *models, "--eps", "0.1", "--attack", "fgsm", "--draws", "100"]
    assert cli([*words, "--out", str(tmp_path / "s")]) == 0
    out = capsys.readouterr().out
    assert "near" in out and "far is the most robust" in out and "page: " in out
    assert (tmp_path / "s" / "audit" / "manifest.json").is_file()
    assert cli([*words, "--out", str(tmp_path / "s"), "--resume"]) == 0


def test_refused_before_anything_is_audited(runs, tmp_path, capsys):
    out = ["--out", str(tmp_path / "s")]
    for words, message in (
        (["study", str(runs / "near"), *out], "there is one, near: add another with --model"),
        (["study", "--model", "digits-cnn", *out], "there is one, digits-cnn"),
        (["study", "--data", "digits?split=train", *out], "a study of digits?split=train needs models"),
        (["study", str(runs), *out], "is no run folder"),
        (["study", str(runs / "near"), str(runs / "near"), *out], "is given twice"),
        (["study", str(runs / "near"), str(runs / "far"), "--at", "0.05,0.1", *out], "a study compares at one budget"),
    ):
        assert cli(words) == 2, words
        assert message in capsys.readouterr().err
    assert not (tmp_path / "s" / "audit").exists()


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(golden):
    with chromium() as browser:
        check_everywhere(browser, write(golden))
