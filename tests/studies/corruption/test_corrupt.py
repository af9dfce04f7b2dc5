"""Corruption errors by hand, placed beside whole, stored sets, and bad input."""

import json

import jsonschema
import numpy as np
import pytest

import brinell
from _browser import check_everywhere, chromium
from brinell.analysis.stats import mcnemar
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.datasets.npz import Npz
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.corruption.analysis import summarise
from brinell.studies.corruption.page import render, write
from brinell.studies.corruption.records import TABLE, Answers
from brinell.studies.corruption.words import reading

LABELS = np.array([0, 0, 1, 1])


def corruption(wrong, *, reference="ref", severities=(1, 2), kinds=("published-fog", "published-snow"), placed=None):
    """`wrong`: by model, the samples on which it errs: clean, then kind by severity."""
    parts = []
    for name, told in wrong.items():
        for (kind, severity), bad in told.items():
            pred = np.where(np.isin(np.arange(4), bad), 1 - LABELS, LABELS)
            more = {} if placed is None or kind == "clean" else {"placed": np.ma.MaskedArray(placed, mask=np.isin(LABELS, []))}
            parts.append(
                rows.build(
                    Answers, 4, model=name, kind=kind, severity=severity, sample_id=np.arange(4), label=LABELS, pred=pred, **more
                )
            )
    facts = {
        "request": {"reference": reference, "draws": 200, "seed": 0},
        "data": {"name": "d", "classes": ["a", "b"], "n": 4},
        "kinds": list(kinds),
        "severities": list(severities),
        "models": [{"name": name} for name in wrong],
    }
    return Folder(path="f", manifest=facts, rows=rows.concatenate(parts))


def told(clean, fog1, fog2, snow1, snow2):
    cells = [("clean", 0), ("published-fog", 1), ("published-fog", 2), ("published-snow", 1), ("published-snow", 2)]
    return dict(zip(cells, (clean, fog1, fog2, snow1, snow2), strict=True))


TWO = {"net": told([], [0], [0, 1], [], [3]), "ref": told([0], [0, 1], [0, 1, 2], [0], [0, 1])}


def test_corruption_errors_by_hand():
    result = summarise(corruption(TWO))
    net, ref = result.models
    # Fog: (1 + 2) / (2 + 3); snow: (0 + 1) / (1 + 2); relative: 3 / (5 - 2) and 1 / (3 - 2).
    assert [kind.ce.value for kind in net.kinds] == pytest.approx([3 / 5, 1 / 3])
    assert [kind.relative_ce.value for kind in net.kinds] == pytest.approx([1, 1])
    assert net.mce.value == pytest.approx((3 / 5 + 1 / 3) / 2) and net.relative_mce.value == pytest.approx(1)
    assert net.mce.low <= net.mce.value <= net.mce.high
    assert ref.mce.value == pytest.approx(1) and ref.mce.low == pytest.approx(1)
    assert result.mce == net.mce
    assert [(one.kind, one.severity, one.accuracy.k) for one in result.kinds[:4]] == [
        ("published-fog", 1, 3),
        ("published-fog", 2, 2),
        ("published-snow", 1, 4),
        ("published-snow", 2, 3),
    ]
    assert net.accuracy == pytest.approx(12 / 16) and [c.accuracy for c in net.per_class] == pytest.approx([5 / 8, 7 / 8])
    assert any("2 of the 15 published kinds" in note for note in result.notes)


def test_a_perfect_reference():
    result = summarise(corruption({"net": TWO["net"], "ref": told([], [0], [1], [], [])}))
    assert result.mce.value is None and result.models[0].kinds[0].ce.value is not None
    assert any("ref makes no error under published-snow: the corruption error is undefined" in note for note in result.notes)
    assert "–" in render(result)


def test_without_a_reference():
    result = summarise(corruption(TWO, reference=None))
    assert result.mce.value is None and any("no --reference is named" in note for note in result.notes)


def test_kinds_beyond_the_fifteen_are_in_no_mean():
    extra = {
        name: {(k if k != "published-snow" else "published-saturate", s): v for (k, s), v in cells.items()}
        for name, cells in TWO.items()
    }
    assert summarise(corruption(extra, kinds=("published-fog", "published-saturate"))).mce.value == pytest.approx(3 / 5)


def test_placed_beside_whole():
    result = summarise(corruption(TWO, placed=np.array([True, True, False, False])))
    level = result.kinds[0]  # the whole input corrupted: sample 0 wrong; placed: 0 and 1
    assert (level.placed.k, level.uniform.k, level.placed.n) == (2, 3, 4)
    assert level.cost == pytest.approx(-0.25) and level.p == mcnemar(0, 1) and level.low <= level.cost <= level.high
    assert "Placed on patches within the same L2" in " ".join(reading(result)) and "Placed on patches" in render(result)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "c"
    words = ["--model", "digits-cnn?width=4", "--model", "digits-cnn?width=4&seed=1", "--reference", "digits-cnn-w4"]
    more = [
        "--samples",
        "20",
        "--kind",
        "published-gaussian-noise",
        "--kind",
        "published-contrast",
        "--severity",
        "3",
        "--severity",
        "5",
    ]
    assert (
        cli(["corrupt", *words, *more, "--placed", "2", "--steps", "10", "--keep", "--draws", "100", "--out", str(folder)]) == 0
    )
    return folder


def test_the_command(made, root, tmp_path, capsys):
    stored = TABLE.read(made)
    assert len(stored.rows) == 2 * (1 + 2 * 2) * 20
    result = summarise(stored)
    assert result.n == 20 and {one.severity for one in result.kinds} == {3, 5}
    assert all(one.placed is not None and one.placed.n <= 2 for one in result.kinds)
    data = Npz(path=str(made / "set" / "published-contrast" / "5.npz"))()
    assert len(data) == 20 and data.domain.shape == (1, 8, 8)
    assert data.labels().tolist() == stored.rows.label[:20].tolist()
    capsys.readouterr()
    words = ["corrupt", "--model", "digits-cnn?width=4", "--samples", "10", "--kind", "published-fog", "--draws", "100"]
    assert cli([*words, "--out", str(tmp_path / "d"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/corrupt.json").read_text()))
    assert "mce" in answer and {"kind", "severity", "accuracy"} <= set(answer["kinds"][0])
    assert {"value", "low", "high", "n", "k"} <= set(answer["kinds"][0]["accuracy"])


def test_other_data_get_the_calibrated_distortions(tmp_path):
    x, y = np.random.default_rng(0).random((6, 1, 50), dtype=np.float32), np.array([0, 1] * 3)
    result = brinell.corrupt(
        lambda signals: np.stack([signals.mean((1, 2)), 1 - signals.mean((1, 2))], 1),
        brinell.data(x, y, kind="signal"),
        severity=(1, 5),
        draws=100,
        out=tmp_path / "c",
    )
    kinds = {one.kind for one in result.kinds}
    assert "baseline-wander" in kinds and "gaussian-noise" in kinds and "published-fog" not in kinds and "fog" not in kinds
    with pytest.raises(RequestError, match="published-fog corrupts images of 1 or 3 channels"):
        brinell.corrupt(lambda s: s[:, 0, :2], brinell.data(x, y, kind="signal"), kind="published-fog", out=tmp_path / "d")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kind", "fogg"], "there is no distortion 'fogg', did you mean 'fog'"),
        (["--kind", "gradient-sign"], "follows the gradient of a model"),
        (["--severity", "6"], "severities are 1 to 5"),
        (["--reference", "other"], "which is none of the models digits-cnn-w4"),
        (["--model", "digits-cnn?width=4"], "two models are called"),
    ],
)
def test_bad_input(words, message, tmp_path, capsys):
    assert cli(["corrupt", "--model", "digits-cnn?width=4", *words, "--samples", "5", "--out", str(tmp_path / "c")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


@pytest.mark.browser
def test_the_page_in_a_browser(made):
    with chromium() as browser:
        check_everywhere(browser, write(made))
