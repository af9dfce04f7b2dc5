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
from _helpers import Recorder, audited, threshold, workspace
from brinell.analysis.compare import Side
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.core.outward import printable
from brinell.studies.per_class.analysis import study
from brinell.studies.per_class.marks import published
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
    assert golden.classes[3].most == 5 and golden.classes[3].rank.rank == 1
    assert golden.classes[9].rank.rank == 10


def test_what_it_concluded_is_said(golden):
    said = " ".join(reading(golden))
    assert "Class 3 loses most on every model: −45.3 points up to 8/255" in said
    assert "Class 9 loses least on 3 of 5 models" in said
    assert "The number of parameters does not explain robustness here" in said
    assert "largely agree on which classes lose most (Kendall's W 0.9" in said
    (w,) = (one for one in golden.ranks if one.statistic == "kendall-w")
    assert w.low <= w.value <= w.high and w.n == 10 and len(w.by) == 5
    sizes = next(one for one in golden.ranks if one.by[1:] == ["parameters"])
    assert sizes.value == pytest.approx(0.6) and sizes.low < 0 < sizes.high and sizes.n == 5


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
    found = {name: list(csv.DictReader(text.splitlines())) for name, text in tables(golden).items()}
    assert len(found["per_class.csv"]) == 5 * 10 * 9
    overall = [row for row in found["total_drop.csv"] if row["model"] == "mean over models"]
    assert [100 * float(row["total_drop"]) for row in overall] == pytest.approx(GOLDEN.MEAN_PER_CLASS, abs=0.1)
    ranks = [row["rank"] for row in found["models.csv"] if row["rank"]]
    assert sorted(map(float, ranks)) == [1, 2, 3, 4, 5]


# By hand


def test_by_hand():
    result = study(hand(A, B), "f", draws=200)
    one, other = result.models
    assert [rate.k for rate in one.robust] == [8, 5, 4] and [rate.k for rate in other.robust] == [8, 4, 3]
    assert [c.total_drop for c in one.per_class] == [-0.25, -0.75] and one.mean_drop == -0.5
    assert one.loses_most == ["one"] and one.loses_least == ["zero"]
    assert one.rank.rank == 1 and other.rank.rank == 2 and one.rank.low == 1
    assert one.spread.value == 0.5 and one.spread.low <= 0.5 <= one.spread.high and one.spread.p > 0.05
    assert [c.mean_drop for c in result.classes] == [-0.375, -0.75]
    assert [stage.accuracy for stage in one.stages] == [0.5, 0.5]
    assert [stage.drop for stage in one.stages] == [-0.5, 0.0]
    (w,) = (r for r in result.ranks if r.statistic == "kendall-w")
    assert w.value == 1 and w.n == 2 and w.by == ["a", "b"]
    at = study(hand(A, B), "f", at=0.1, draws=200)
    assert [c.total_drop for c in at.models[0].per_class] == [-0.25, -0.5] and at.eps_text[at.at] == result.eps_text[1]


def test_the_samples_and_budgets_that_all_have():
    rows = SYNTHETIC.keep
    first, second = hand(A, B)
    fewer = Side(run="s", manifest=second.manifest, records=rows(second.records, second.records.sample_id < 6), model="b")
    result = study([first, fewer], "f", draws=100)
    assert result.n == 6 and all(rate.n == 6 for model in result.models for rate in model.robust)
    assert any("2 of the 8 samples of a in r were not judged on every model" in note and "6 are" in note for note in result.notes)
    third = hand(A, eps=[0.0, 0.05, 0.2], run="t", names=("d",))
    result = study([first, *third], "f", draws=100)
    assert result.eps == [0.0, 0.2]


def test_a_model_with_nothing_left_has_no_order_of_classes():
    result = study(hand(A, B, [0.05] * 8), "f", draws=100)
    assert any("c: nothing is left" in note for note in result.notes)
    (w,) = (r for r in result.ranks if r.statistic == "kendall-w")
    assert w.by == ["a", "b"]
    assert result.classes[0].rank is not None and result.models[2].rank.rank == 3


def test_two_runs_with_a_model_of_one_name():
    result = study([*hand(A), *hand(B, run="s")], "f", draws=100)
    assert [one.model for one in result.models] == ["r: a", "s: a"]


OTHER = {"digest": "e" * 32}
BAD = {
    "one model only": (lambda: hand(A), "fewer than two: r has a alone: name another --model or run folder"),
    "other data": (
        lambda: [*hand(A), *hand(B, run="s", data=hand(B)[0].manifest["data"] | OTHER)],
        r"r and s differ in their data \(by their digest\)",
    ),
    "other classes": (
        lambda: [*hand(A), *hand(B, run="s", data=hand(B)[0].manifest["data"] | {"classes": ["x", "y"]})],
        "differ in their classes",
    ),
    "other norm": (lambda: [*hand(A), *hand(B, run="s", distance="l2")], "differ in their norm"),
    "own budgets": (lambda: [*hand(A), *hand(B, run="s", recommended={"digest": "x"})], "each sample's own"),
    "unfinished": (lambda: [*hand(A), *hand(B, run="s", state="running")], "s is not finished: go on with"),
    "no budget in common": (lambda: [*hand(A), *hand(B, eps=[0.0, 0.3], run="s")], "share no eps above 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_compared(what):
    make, message = BAD[what]
    with pytest.raises(RequestError, match=message):
        study(make(), "f", draws=100)


def test_a_budget_that_is_none_of_theirs():
    with pytest.raises(
        RequestError, match=r"at is 0.15, which is no budget above 0 that all runs have: choose of 26/255, 51/255"
    ):
        study(hand(A, B), "f", at=0.15, draws=100)


# Marks


def test_published_marks(tmp_path, shared):
    folder = tmp_path / "Linf"
    folder.mkdir()
    entry = {"eps": "8/255", "clean_acc": "90.00", "autoattack_acc": "60.00"}
    (folder / "a.json").write_text(json.dumps(entry))
    (folder / "b.json").write_text(json.dumps(entry | {"external": 55.5}))
    (folder / "c.json").write_text(json.dumps(entry | {"eps": "4/255"}))
    (folder / "d.json").write_text("no JSON")
    found = published(folder, "linf", 8 / 255)
    assert [(one.name, one.clean, one.robust) for one in found] == [("a", 0.9, 0.6), ("b", 0.9, 0.555)]
    for distance, eps, message in (("l2", 0.5, "is about Linf"), ("linf", 0.5, "no entry at eps 0.5")):
        with pytest.raises(RequestError, match=message):
            published(folder, distance, eps)
    with pytest.raises(RequestError, match="holds no model_info file"):
        published(tmp_path, "linf", 0.1)
    known = {one.name: one for one in published(shared / "robustbench_model_info" / "cifar10" / "Linf", "linf", 8 / 255)}
    assert len(known) == 99 and known["Peng2023Robust"].robust == pytest.approx(0.7107)


# The command


X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9], [0.7, 0.2]], dtype=np.float32)
Y = np.array([0, 0, 0, 0, 0, 1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, at in (("near", 0.5), ("far", 0.6)):
        audited(folder / name, Recorder(threshold(at), name=name), X, Y, eps="0,0.05,0.15", attack=("fgsm", "pgd?steps=3"))
    return folder


def test_runs_that_exist(runs, tmp_path, capsys, root):
    words = ["study", str(runs / "near"), str(runs / "far"), "--out", str(tmp_path / "s"), "--draws", "200"]
    assert cli([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/study.json").read_text()))
    assert [one["model"] for one in answer["models"]] == ["near", "far"] and len(answer["ranks"]) == 4
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
    assert StudyRequest().audited().model == DIGITS and len(DIGITS) == 4
    work = workspace(tmp_path, n=12)
    models = [f"--model=torch:{work / 'model.py'}:parabola?{more}" for more in ("name=near", "name=far&args=at=0.7")]
    words = ["study", f"--data=npz:{work / 'data.npz'}", *models, "--eps", "0.1", "--attack", "fgsm", "--draws", "100"]
    assert cli([*words, "--out", str(tmp_path / "s")]) == 0
    out = capsys.readouterr().out
    assert "near" in out and "far is the most robust" in out and "page: " in out
    assert (tmp_path / "s" / "audit" / "manifest.json").is_file()
    assert cli([*words, "--out", str(tmp_path / "s"), "--resume"]) == 0


def test_refused_before_anything_is_audited(runs, tmp_path, capsys):
    out = ["--out", str(tmp_path / "s")]
    for words, message in (
        (["study", str(runs / "near"), *out], "there is one, near: name another by --model"),
        (["study", "--model", "digits-cnn", *out], "there is one, digits-cnn"),
        (["study", "--data", "npz:x.npz", *out], "a study of npz:x.npz needs models"),
        (["study", str(runs), *out], "is no run folder"),
        (["study", str(runs / "near"), str(runs / "near"), *out], "is named twice"),
        (["study", str(runs / "near"), str(runs / "far"), "--at", "0.05,0.1", *out], "one budget is needed"),
    ):
        assert cli(words) == 2, words
        assert message in capsys.readouterr().err
    assert not (tmp_path / "s" / "audit").exists()


@pytest.mark.browser
def test_the_page_in_a_browser(golden):
    with chromium() as browser:
        check_everywhere(browser, write(golden))
