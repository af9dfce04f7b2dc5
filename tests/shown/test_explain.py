"""The best explanation by the measure that was asked for, beside the controls on the same inputs."""

import numpy as np
import pytest

import brinell
from brinell.core.domain import Domain
from brinell.core.patches import PatchGrid
from brinell.reports.csv import csv_files
from brinell.reports.values import Percent, Points, Table
from brinell.studies.explain import STUDY
from brinell.studies.explain.best_of import best_of
from brinell.studies.explain.result import base_method, is_control, load_arrays

N = 12


def table_of(report, name):
    (table,) = [b for b in report.blocks if isinstance(b, Table) and b.name == name]
    return table


def test_the_best_and_what_cannot_be_told_from_it_by_hand():
    """`a` is 0.5 above `b` on every sample, give or take 0.01, and equal to `c` on average."""
    noise = np.resize([0.01, -0.01], 40)
    swing = np.resize([0.2, -0.2], 40)
    columns = {"a": 0.8 + noise, "b": 0.3 - noise, "c": 0.79 + swing, "random": 0.9 + noise}
    best = best_of("gain", columns, np.arange(40).astype(str), ["a", "b", "c"])
    assert best.name == "a", "a control is never the best"
    assert best.behind["b"].value == pytest.approx(0.5) and best.behind["b"].told
    assert best.behind["c"].value == pytest.approx(0.01) and not best.behind["c"].told
    assert best.behind["random"].value == pytest.approx(-0.1)
    assert best.statement.rivals == ["c"]
    assert best_of("dice", {"a": np.full(4, np.nan)}, np.arange(4).astype(str), ["a"]) is None


@pytest.fixture(scope="module")
def explained(patterns, tmp_path_factory):
    """Two explanations of twelve samples with a truth: the first two rows of each picture."""
    folder = tmp_path_factory.mktemp("explain")
    masks = np.zeros((24, 8, 8), np.uint8)
    masks[:, :2] = 1
    np.savez(folder / "masks.npz", masks=masks)
    settings = {"samples": N, "method": ["gradient", "occlusion"], "steps": 4}
    truth = folder / "masks.npz"
    return brinell.explain(
        patterns.model, patterns.data, truth=truth, out=folder / "run", **settings
    )


def test_controls_are_measured_on_the_same_inputs(explained):
    """Nobody asked for random and centre: they are there, and decide what is faithful."""
    names = [method.name for method in explained.methods if base_method(method.name) == method.name]
    assert names == ["gradient", "occlusion", "centre", "random"]
    for method in explained.methods:
        control = is_control(method.name) or base_method(method.name) != method.name
        assert (method.faithful is None) == control


def test_each_method_has_its_measures_and_its_difference_to_the_best(explained):
    """The differences are those of the means, since all methods have the same samples."""
    report = explained.report()
    by_name = {method.name: method for method in explained.methods}
    table = table_of(report, "methods")
    assert table.columns == (
        "method",
        "deletion",
        "insertion",
        "from deletion to insertion",
        "gap",
        "behind the best",
        "above the controls",
        "queries",
    )
    shown = {row[0]: row[1:] for row in table.rows}
    assert [*shown] == [
        "gradient",
        "gradient, blurred",
        "occlusion",
        "occlusion, blurred",
        "centre",
        "random",
    ]
    (best,) = [entry for entry in explained.best if entry.measure == "gain"]
    assert best.name == max(("gradient", "occlusion"), key=lambda name: by_name[name].gain.value)
    for name, (deletion, insertion, _, gap, behind, verdict, _) in shown.items():
        method = by_name[name]
        assert (deletion, insertion) == tuple(
            Percent(m.value, m.low, m.high) for m in (method.deletion, method.insertion)
        )
        assert gap.value == pytest.approx(insertion.value - deletion.value)
        if behind is not None:
            assert isinstance(behind, Points)
            assert behind.value == pytest.approx(by_name[best.name].gain.value - gap.value)
        assert verdict in (("shown", "not shown") if method.faithful is not None else (None,))


def test_dice_and_iou_stand_with_their_differences(explained):
    report = explained.report()
    table = table_of(report, "position")
    assert table.columns == ["method", "Dice", "Dice behind", "IoU", "IoU behind", "pointing"]
    by_name = {method.name: method for method in explained.methods}
    leaders = {entry.measure: entry.name for entry in explained.best}
    assert [row[0] for row in table.rows] == ["gradient", "occlusion", "centre", "random"]
    for name, dice, dice_behind, iou, iou_behind, pointing in table.rows:
        method = by_name[name]
        for measure, cell, behind in (("dice", dice, dice_behind), ("iou", iou, iou_behind)):
            figure = getattr(method, measure)
            assert (cell.value, cell.low, cell.high) == (figure.value, figure.low, figure.high)
            lead = getattr(by_name[leaders[measure]], measure).value
            if name == leaders[measure]:
                assert behind is None
            else:
                assert behind.value == pytest.approx(lead - figure.value)
        assert pointing.value == method.pointing.value
    head = csv_files(report)["position.csv"].splitlines()[0]
    assert "Dice behind, points" in head and "Dice low" in head


def test_the_headline_names_the_best_by_the_measure_asked_for(explained, explain_run):
    leaders = {entry.measure: entry for entry in explained.best}
    first, second, third, *_ = explained.report().sentences
    assert first.startswith(f"{leaders['dice'].name} has the highest overlap with the objects")
    assert second.startswith(f"{leaders['gain'].name} has the highest gap between insertion and ")
    for sentence, measure in ((first, "dice"), (second, "gain")):
        entry = leaders[measure]
        assert entry.statement.rivals == [n for n, other in entry.behind.items() if not other.told]
        for name in entry.statement.rivals:
            assert name in sentence.partition("; ")[2]
    assert "random has" in third and "centre has" in third
    without_truth = brinell.open(explain_run).report().sentences
    assert "has the highest gap" in without_truth[0]


def test_one_method_and_no_measure_say_what_they_can(patterns, tmp_path):
    result = brinell.explain(
        patterns.model, patterns.data, samples=2, method="gradient", steps=0, out=tmp_path / "run"
    )
    assert result.best == [] and [method.name for method in result.methods] == [
        "gradient",
        "gradient, blurred",
        "gradient, inverse",
    ]
    assert result.report().sentences == ["1 method explained 2 samples."]


def test_the_attacks_own_mask_is_a_method(patterns, tmp_path):
    """The map of RLAB's mask is above 0 on whole patches alone, and scored like the others."""
    result = brinell.explain(
        patterns.model, patterns.data, samples=6, method="rlab-mask", steps=2, out=tmp_path / "run"
    )
    (method,) = [method for method in result.methods if method.name == "rlab-mask"]
    assert method.gain is not None and method.faithful in (True, False, None)
    assert 1 < method.queries <= 400 and method.blank < 6
    grid = PatchGrid.usual(Domain(kind="image", shape=(1, 8, 8)))
    rows = STUDY.table().read(result.folder).rows
    for sample in np.unique(rows.sample_id).tolist():
        values = load_arrays(tmp_path / "run", [sample])[f"map/rlab-mask/{sample}"].ravel()
        patches = values[grid.members.numpy()]
        assert (patches == patches[:, :1]).all() and (values >= 0).all() and (values == 0).any()
