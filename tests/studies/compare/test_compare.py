"""A comparison: a published study's figures come out of it, places hold, and the command audits,
resumes and refuses.
"""

import csv
import importlib.util
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

import brinell
from _browser import check_everywhere, chromium
from _helpers import Recorder, run_audit, threshold, workspace
from brinell.analysis.compare import Side
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.core.outward import printable
from brinell.reports.csv import csv_files
from brinell.reports.values import Table
from brinell.studies.compare.result import Comparison, summarise


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
def golden():
    """The comparison of the models of the published study."""
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
    return summarise(
        [Side(run="r", manifest=manifest, records=rows, model=model) for model in GOLDEN.MODELS],
        "f",
    )


def hand(*breaks, labels=LABELS, classes=("zero", "one"), names="abcdef", run="r"):
    """Models whose samples break at these distances."""
    names = names[: len(breaks)]
    parts = [
        SYNTHETIC.records(
            name, labels, EPS, np.array([row, row], dtype=float), classes=len(classes)
        )
        for name, row in zip(names, breaks, strict=True)
    ]
    manifest = SYNTHETIC.manifest(list(names), EPS, len(labels), list(classes))
    return [
        Side(run=run, manifest=manifest, records=SYNTHETIC.join(*parts), model=name)
        for name in names
    ]


A = [INF, INF, INF, 0.05, 0.05, 0.05, 0.15, INF]
B = [INF, INF, 0.05, 0.05, 0.05, 0.05, 0.15, INF]


def test_the_published_figures_and_conclusions_come_out(golden):
    assert golden.n == 500 and golden.eps_text[golden.at] == "8/255"
    for number, model in enumerate(golden.models):
        assert 100 * model.mean_drop == pytest.approx(GOLDEN.MEAN_PER_MODEL[number], abs=0.05)
        totals = [100 * c.total_drop for c in model.per_class]
        assert (
            totals == pytest.approx(GOLDEN.TOTAL_DROP[number], abs=0.5) and np.argmin(totals) == 3
        )
    assert [100 * c.mean_drop for c in golden.classes] == pytest.approx(
        GOLDEN.MEAN_PER_CLASS, abs=0.1
    )
    assert golden.classes[3].rank.value == 1 and golden.classes[9].rank.value == 10
    sentences = golden.report().sentences
    text = " ".join(sentences)
    most, least = golden.losses
    assert (most.kind, most.subjects[0].name) == ("loses_most", "class 3")
    assert (least.kind, least.subjects[0].name) == ("loses_least", "class 9")
    assert (
        "Up to 8/255 class 3 loses most, with a mean loss over the models of 45.3 points; " in text
    )
    assert (
        "Peng2023Robust has the highest robust accuracy" in text
        and "Wang2023Better_WRN-70-16 may be as robust" in text
    )
    assert [printable(sentence) for sentence in sentences] == list(sentences)
    tables = {
        name: list(csv.DictReader(io.StringIO(content)))
        for name, content in csv_files(golden.report()).items()
    }
    assert len(tables["per_class.csv"]) == 5 * 10 * 9 and len(tables["pairs.csv"]) == 10 * 9
    assert sorted(float(row["rank"]) for row in tables["models.csv"]) == [1, 2, 3, 4, 5]


def test_by_hand():
    result = summarise(hand(A, B), "f")
    first, second = result.models
    assert [rate.k for rate in first.robust] == [8, 5, 4] and [
        rate.k for rate in second.robust
    ] == [8, 4, 3]
    assert [c.total_drop for c in first.per_class] == [-0.25, -0.75] and first.mean_drop == -0.5
    assert (first.rank.value, first.rank.low, first.rank.high, first.rivals) == (
        1,
        1,
        2,
        ["b"],
    ) and second.rank.value == 2
    (pair,) = result.pairs
    assert (pair.a, pair.b, pair.robust[2].only_a, pair.robust[2].only_b) == ("b", "a", 0, 1)
    assert [c.rank for c in result.classes] == [None, None], "of four samples nothing is said"
    compared = summarise(hand(A, B), "f", eps=0.1)
    assert [c.total_drop for c in compared.models[0].per_class] == [
        -0.25,
        -0.5,
    ] and compared.at == 1
    with pytest.raises(
        RequestError,
        match="at is 0.15, which is no budget of all runs: choose one of 26/255, 51/255",
    ):
        summarise(hand(A, B), "f", eps=0.15)
    assert [m.name for m in summarise([*hand(A), *hand(B, run="s")], "f").models] == [
        "r: a",
        "s: a",
    ]


def test_one_mean_drop_of_a_class_stands_in_the_answer_and_in_the_table():
    """Models without a robust sample and classes with little to lose take no part, whatever the
    breaks."""
    labels = np.repeat([0, 1, 2], [40, 40, 2])
    for seed in range(6):
        rng = np.random.default_rng(seed)
        breaks = [np.where(rng.random(82) < share, 0.05, INF) for share in rng.uniform(0.2, 0.8, 3)]
        for row in breaks:
            row[labels == 2] = 0.0
        result = summarise(
            hand(*breaks, [0.05] * 82, labels=labels, classes=("dog", "frog", "cat")), "f"
        )
        drops = [[np.mean(-1.0 * np.isfinite(row[labels == c])) for row in breaks] for c in (0, 1)]
        assert [c.mean_drop for c in result.classes[:2]] == pytest.approx(np.mean(drops, 1))
        assert result.classes[2].rank is None and any(
            "no sample is robust on d" in note for note in result.notes
        )
        over = "mean over a, b and c"
        tables = {b.name: b for b in result.report().blocks if isinstance(b, Table)}
        table = tables["total_drops"]
        column = {row[0]: row[list(table.columns).index(over)].value for row in table.rows}
        assert [column[c.name] for c in result.classes] == pytest.approx(
            [c.mean_drop for c in result.classes]
        )
        assert "taken over a, b and c" in tables["classes"].text
        assert "robust on d, which" in table.text
        text, largest = (
            " ".join(result.report().sentences),
            result.classes[int(np.argmin(np.mean(drops, 1)))],
        )
        is_named = (
            f"{largest.label} loses most" in text
            and f"mean loss over a, b and c of {-100 * largest.mean_drop:.1f} points" in text
            and "fewer than 5 samples are right on clean inputs: cat (class 2)" in text
        )
        assert is_named == (result.classes[0].mean_drop != result.classes[1].mean_drop)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    x = np.array(
        [[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9], [0.7, 0.2]],
        dtype=np.float32,
    )
    for name, value in (("near", 0.5), ("far", 0.6)):
        model = Recorder(threshold(value), name=name)
        run_audit(
            folder / name,
            model,
            x,
            np.array([0, 0, 0, 0, 0, 1]),
            eps="0,0.05,0.15",
            attack=("fgsm", "pgd?steps=3"),
        )
    return folder


def test_runs_are_compared_opened_and_written_again(runs, tmp_path, capsys):
    words = ["compare", str(runs / "near"), str(runs / "far"), "--out", str(tmp_path / "s")]
    assert cli([*words, "--json"]) == 0
    answer = Comparison.model_validate(json.loads(capsys.readouterr().out))
    assert [model.name for model in answer.models] == ["near", "far"]
    assert [rate.k for rate in answer.models[0].robust] == [5, 4, 3]
    assert cli(words) == 2 and "holds a comparison: add --resume" in capsys.readouterr().err
    assert brinell.open(tmp_path / "s") == answer
    page = (tmp_path / "s" / "report.html").read_text()
    (tmp_path / "s" / "report.html").unlink()
    assert (
        cli(["report", str(tmp_path / "s")]) == 0
        and (tmp_path / "s" / "report.html").read_text() == page
    )


def test_models_are_audited_first(runs, tmp_path, capsys):
    work = workspace(tmp_path, n=12)
    models = [
        f"{work / 'model.py'}:parabola?{options}"
        for options in ("name=near", "name=far&args=at=0.7")
    ]
    words = [
        "compare",
        *models,
        f"--data=npz:{work / 'data.npz'}",
        "--eps",
        "0.1",
        "--attack",
        "fgsm",
    ]
    assert cli([*words, "--out", str(tmp_path / "s")]) == 0
    out = capsys.readouterr().out
    assert "far is the most robust" in out and "page: " in out
    assert brinell.verify(tmp_path / "s" / "audit", trust=tmp_path).passed, (
        "the audit within has the models as it opens them"
    )
    assert cli([*words, "--out", str(tmp_path / "s"), "--resume"]) == 0
    capsys.readouterr()
    near = str(runs / "near")
    for words, message in (
        ([near], "a comparison needs two models or more, and .* has one, near"),
        (["digits-cnn"], "has one, digits-cnn"),
        ([str(runs), near], "is no run folder"),
        ([near, near], "a run is given twice"),
        ([near, str(runs / "far"), "--at", "0.05,0.1"], "models are compared at one budget"),
        (
            [near, str(runs / "far"), "--samples", "5"],
            "--samples is for models that are audited first",
        ),
        ([near, "no-such-model"], "no-such-model"),
    ):
        assert cli(["compare", *words, "--out", str(tmp_path / "no")]) == 2
        assert re.search(message, capsys.readouterr().err), words
    assert not (tmp_path / "no" / "audit").exists()


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(runs, tmp_path):
    brinell.compare([runs / "near", runs / "far"], out=tmp_path / "c")
    with chromium() as browser:
        check_everywhere(browser, tmp_path / "c" / "report.html")
