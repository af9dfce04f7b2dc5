"""Corruption errors by hand, stored sets, and bad input."""

import json
from pathlib import Path
from typing import get_args

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import brinell
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.settings import Suite
from brinell.datasets._memory import from_arrays
from brinell.distortions._shared import suite_of
from brinell.reports import html
from brinell.store import rows
from brinell.store.files import read_arrays
from brinell.store.table import Folder
from brinell.studies.corruption import STUDY, CorruptRequest
from brinell.studies.corruption.result import (
    CLEAN,
    CorruptFacts,
    CorruptionRows,
    example_path,
    summarise,
)
from brinell.studies.corruption.run import open_kinds

LABELS = np.array([0, 0, 1, 1])


def corruption(
    wrong,
    *,
    reference="ref",
    severities=(1, 2),
    kinds=("published-fog", "published-snow"),
    idle_kinds=(),
):
    """`wrong`: by model, the samples on which it errs: clean, then kind by severity."""
    parts = []
    for name, answers in wrong.items():
        for (kind, severity), bad in answers.items():
            pred = np.where(np.isin(np.arange(4), bad), 1 - LABELS, LABELS)
            l2 = np.full(4, 0.0 if kind in idle_kinds else 1.0)
            columns = {"model": name, "kind": kind, "severity": severity, "pred": pred, "l2": l2}
            parts.append(
                rows.build(CorruptionRows, 4, sample_id=np.arange(4), label=LABELS, **columns)
            )
    manifest = {
        "data": {"name": "d", "classes": ["a", "b"]},
        "models": [{"name": name} for name in wrong],
        "seconds": 1.0,
    }
    return Folder(
        path=Path("f"),
        manifest=manifest,
        request=CorruptRequest(reference=reference),
        facts=CorruptFacts(kinds=list(kinds), severities=list(severities)),
        rows=rows.concatenate(parts),
    )


def page(result):
    return html.page(result.report())


def answers(clean, fog1, fog2, snow1, snow2):
    cells = [
        ("clean", 0),
        ("published-fog", 1),
        ("published-fog", 2),
        ("published-snow", 1),
        ("published-snow", 2),
    ]
    return dict(zip(cells, (clean, fog1, fog2, snow1, snow2), strict=True))


TWO = {
    "net": answers([], [0], [0, 1], [], [3]),
    "ref": answers([0], [0, 1], [0, 1, 2], [0], [0, 1]),
}


def test_corruption_errors_by_hand():
    result = summarise(corruption(TWO))
    net, ref = result.models
    # Fog: (1 + 2) / (2 + 3); snow: (0 + 1) / (1 + 2).
    assert [kind.ce.value for kind in net.kinds] == pytest.approx([3 / 5, 1 / 3])
    assert net.mce.value == pytest.approx((3 / 5 + 1 / 3) / 2)
    assert net.mce.low is None and net.mce.high is None, "four samples have no interval"
    assert ref.mce.value == pytest.approx(1)
    assert [[level.k for level in kind.levels] for kind in net.kinds] == [[3, 2], [4, 3]]
    assert net.accuracy == pytest.approx(12 / 16) and [
        c.accuracy for c in net.per_class
    ] == pytest.approx([5 / 8, 7 / 8])
    assert any("2 of the 15 published kinds" in note for note in result.notes)


def test_a_perfect_reference():
    result = summarise(corruption({"net": TWO["net"], "ref": answers([], [0], [1], [], [])}))
    assert result.models[0].mce.value is None and result.models[0].kinds[0].ce.value is not None
    assert any("are undefined; choose another reference" in note for note in result.notes)
    assert not any("of the 15 published kinds" in note for note in result.notes)
    assert "–" in page(result)


def test_without_a_reference():
    result = summarise(corruption(TWO, reference=None))
    assert result.models[0].mce.value is None and "mCE" not in page(result)


def test_kinds_beyond_the_fifteen_are_in_no_mean():
    extra = {
        name: {
            (k if k != "published-snow" else "published-saturate", s): v
            for (k, s), v in cells.items()
        }
        for name, cells in TWO.items()
    }
    assert summarise(corruption(extra, kinds=("published-fog", "published-saturate"))).models[
        0
    ].mce.value == pytest.approx(3 / 5)


def test_a_corruption_that_changes_nothing_is_in_no_mean():
    for idle_kind in ("published-fog", "published-snow"):
        result, only = (
            summarise(corruption(TWO, idle_kinds=(idle_kind,))),
            {"published-fog": 1, "published-snow": 0}[idle_kind],
        )
        reference = summarise(corruption(TWO)).models[0]
        net = result.models[0]
        assert [kind.active for kind in net.kinds] == [only == 0, only == 1]
        assert (
            net.accuracy == reference.kinds[only].accuracy
            and net.mce.value == reference.kinds[only].ce.value
        )
        assert not net.statements and idle_kind not in result.report().sentences[0]
        note = (
            f"{idle_kind} changes none of these samples at any severity: the means "
            "are over the other 1 of 2 corruptions"
        )
        assert note in result.notes and "changes no sample: in no mean" in page(result)


@pytest.fixture(scope="module")
def corruption_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "c"
    words = [
        "--model",
        "digits-cnn?width=4",
        "--model",
        "digits-cnn?width=4&seed=1",
        "--reference",
        "digits-cnn-w4",
    ]
    further_rows = [
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
    assert cli(["corrupt", *words, *further_rows, "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_command(corruption_folder, root, tmp_path, capsys):
    stored = STUDY.table().read(corruption_folder)
    assert len(stored.rows) == 2 * (1 + 2 * 2) * 20
    result = brinell.open(corruption_folder)
    assert result.n == 20 and result.facts.severities == [3, 5]
    capsys.readouterr()
    words = [
        "corrupt",
        "--model",
        "digits-cnn?width=4",
        "--samples",
        "10",
        "--kind",
        "published-fog",
    ]
    assert cli([*words, "--out", str(tmp_path / "d"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/corrupt.json").read_text()))
    assert "mce" in answer["models"][0] and {"value", "low", "high", "n", "k"} <= set(
        answer["models"][0]["kinds"][0]["levels"][0]
    )


def test_the_page_shows_the_kinds_that_cost_most_first(corruption_folder):
    """Property: each pair is a sample of the data and its corruption; three kinds are open, in the
    order of accuracy.
    """
    stored = STUDY.table().read(corruption_folder)
    result = brinell.open(corruption_folder)
    accuracies = {kind.kind: kind.accuracy for kind in result.models[0].kinds if kind.active}
    captions = [example.caption.partition(",")[0] for example in result.report().blocks[1].examples]
    assert captions == [result.label(kind) for kind in sorted(accuracies, key=accuracies.get)]
    for number, kind in enumerate(result.facts.kinds):
        arrays = read_arrays(corruption_folder / example_path(number))
        rows = stored.rows
        mask = (rows.model == result.names[0]) & (rows.kind == kind) & (rows.severity == 5)
        position = int(np.flatnonzero(rows.sample_id[mask] == arrays["sample"][0])[0])
        length = np.linalg.norm(arrays["corrupted"].astype(float) - arrays["clean"])
        assert rows.l2[mask][position] == pytest.approx(length, rel=1e-5)
        clean = (rows.model == result.names[0]) & (rows.kind == CLEAN)
        losses = (rows.pred[clean] == rows.label[clean]) & (rows.pred[mask] != rows.label[mask])
        assert losses[position] or not losses.any()
        assert arrays["classes"].tolist() == [
            rows.label[mask][position],
            rows.pred[clean][position],
            rows.pred[mask][position],
        ]
    assert len(page(result)) < 4e5 and len(result.report().blocks[1].examples) == 2


def test_other_data_get_the_calibrated_distortions(tmp_path):
    x, y = np.random.default_rng(0).random((6, 1, 50), dtype=np.float32), np.array([0, 1] * 3)
    result = brinell.corrupt(
        lambda signals: np.stack([signals.mean((1, 2)), 1 - signals.mean((1, 2))], 1),
        brinell.data(x, y, kind="signal"),
        severity=(1, 5),
        out=tmp_path / "c",
    )
    kinds = set(result.facts.kinds)
    assert (
        "baseline-wander" in kinds
        and "gaussian-noise" in kinds
        and "published-fog" not in kinds
        and "fog" not in kinds
    )
    with pytest.raises(RequestError, match="published-fog corrupts images of 1 or 3 channels"):
        brinell.corrupt(
            lambda s: s[:, 0, :2],
            brinell.data(x, y, kind="signal"),
            kind="published-fog",
            out=tmp_path / "d",
        )


BAD_INPUT = [
    (["--kind", "fogg"], "there is no distortion 'fogg', did you mean 'fog'"),
    (["--severity", "6"], "severities are 1 to 5"),
    (["--reference", "other"], "which is not one of the models digits-cnn-w4"),
    (["--model", "digits-cnn?width=4"], "two models are called"),
]


def test_bad_input(tmp_path, capsys, subtests):
    for number, (words, message) in enumerate(BAD_INPUT):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert (
                cli(
                    [
                        "corrupt",
                        "--model",
                        "digits-cnn?width=4",
                        *words,
                        "--samples",
                        "5",
                        "--out",
                        str(folder / "c"),
                    ]
                )
                == 2
            )
            assert message in capsys.readouterr().err
            assert not (folder / "c").exists()


SHAPES = {
    "image": st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)),
    "signal": st.tuples(st.integers(1, 3), st.integers(1, 9)),
    "video": st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    "vector": st.tuples(st.integers(1, 9)),
}


@settings(max_examples=8, deadline=None)
@given(
    drawn_shape=st.sampled_from(sorted(SHAPES)).flatmap(
        lambda kind: st.tuples(st.just(kind), SHAPES[kind])
    ),
    suites=st.lists(st.sampled_from(get_args(Suite)), max_size=3),
    name=st.sampled_from([None, "gaussian-noise"]),
)
def test_a_suite_is_all_of_its_distortions_that_fit(drawn_shape, suites, name):
    kind, shape = drawn_shape
    dataset = from_arrays(
        torch.zeros(2, *shape), torch.tensor([0, 1]), domain=Domain(kind=kind, shape=shape)
    )
    fits = {"calibrated": True, "published": kind == "image" and shape[0] in (1, 3)}
    names = [] if name is None else [name]
    if wrong := next((suite for suite in suites if not fits[suite]), None):
        with pytest.raises(RequestError, match=f"no {wrong} distortion fits {kind} data"):
            open_kinds([*names, *suites], dataset)
        return
    kinds = open_kinds([*names, *suites], dataset)
    expected = set(suites) or (
        set() if names else {"published" if fits["published"] else "calibrated"}
    )
    assert {
        suite_of(distortion) for label, distortion in kinds.items() if label != name
    } == expected
    assert len([label for label in kinds if label.startswith("published-")]) == 19 * (
        "published" in expected
    )
    assert ("gaussian-noise" in kinds) == (name is not None or "calibrated" in expected)
