"""Detectors under attack, on one of which the change that makes an object vanish is known."""

from dataclasses import replace

import pytest

import brinell
from _spots import VANISHING, Final, Spots, entries, spots
from brinell.core.errors import BrinellError
from brinell.studies.dense.detection_analysis import open_study, summary
from brinell.studies.dense.records import TABLE
from brinell.studies.dense.results import Figure

EPS = (0.98 * VANISHING, 1.02 * VANISHING)
PICTURES = ([(0, 0), (3, 1)], [(1, 2)], [], [(2, 0), (0, 2)])


def data():
    """Four pictures, one without objects."""
    x, objects = spots(*PICTURES)
    return brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense") / "study"
    return brinell.audit(Spots(), data(), eps=list(EPS), attack="pgd?steps=8", out=folder)


def values(figures):
    """The figures without their intervals."""
    return [figure.value for figure in figures]


def test_objects_vanish_exactly_where_the_formula_says(result):
    assert values(result.errors.missed) == [0, 0, 1]
    assert result.recall[0].value == 1 and result.recall[-1].value == 0
    assert values(result.ap50)[0] == 1 and result.n == 4 and result.objects == 5 and result.with_objects == 3


def test_curves_never_fall_and_figures_of_the_set_never_rise(result):
    for error in ("missed", "false", "mislabelled", "misplaced"):
        assert values(getattr(result.errors, error)) == sorted(values(getattr(result.errors, error)))
    for figures in (result.ap50, result.ap, result.recall):
        assert values(figures) == sorted(values(figures), reverse=True)
        assert all(figure.low <= figure.value <= figure.high for figure in figures)


def test_quadrants_cannot_be_misplaced_and_another_class_takes_the_lead_at_half_their_difference(result):
    assert values(result.errors.misplaced) == [0, 0, 0]
    assert values(result.errors.mislabelled)[0] == 0 and values(result.errors.mislabelled)[-1] == 0  # 0.2 + eps stays below 0.46


def test_lower_scores_of_all_boxes_change_recall_and_not_ap(result):
    folder = TABLE.read(result.folder)
    study = open_study(folder)
    study.boxes = [None if boxes is None else replace(boxes, scores=boxes.scores / 10) for boxes in study.boxes]
    changed = summary(folder, study)
    assert changed.ap50[0] == result.ap50[0] and changed.recall[0].value == 0
    assert isinstance(changed.ap50[0], Figure)


def test_final_boxes_are_attacked_by_their_scores(tmp_path):
    result = brinell.audit(Final(), data(), eps=[0.5], attack="square?steps=25", out=tmp_path / "run")
    assert result.errors.missed[-1].value > 0
    assert any("attacks ask it for scores" in note for note in result.notes)
    with pytest.raises(BrinellError, match="pgd needs gradients, and Final gives scores only"):
        brinell.audit(Final(), data(), eps=[0.1], attack="pgd", out=tmp_path / "other")


def test_rlab_places_patches_on_pictures_with_boxes(tmp_path):
    result = brinell.dense(
        Spots(),
        data(),
        norm="l2",
        eps=[8.0],
        attack="rlab?steps=40&patch=8&distortions=contrast",
        criterion="missed",
        out=tmp_path / "run",
    )
    assert result.errors.missed[-1].value == 1 and not result.errors.false


def test_a_criterion_ends_an_attack(tmp_path):
    some = brinell.dense(Spots(), data(), eps=[0.4], attack="pgd?steps=3", criterion="missed:0.5", out=tmp_path / "some")
    everything = brinell.dense(Spots(), data(), eps=[0.4], attack="pgd?steps=3", criterion="missed", out=tmp_path / "all")
    assert sum(aim.forwards for aim in some.aims) <= sum(aim.forwards for aim in everything.aims)
    assert all(figure.value >= 0.5 for figure in some.errors.missed[1:])


REFUSALS = [
    ({"criterion": "lost"}, "criterion is 'lost': write"),
    ({"criterion": "missed:2"}, "criterion is 'missed:2': write"),
    ({"norm": "l2", "lipschitz": 1.0}, "certifies maps alone"),
    ({"attack": "standard"}, "standard is a cascade"),
]


def test_what_cannot_be_carried_out_is_refused(tmp_path, subtests):
    for number, (settings, message) in enumerate(REFUSALS):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(BrinellError, match=message):
                brinell.dense(Spots(), data(), out=folder / "run", **{"eps": [0.1]} | settings)
    x, objects = spots(*PICTURES)
    two = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue", "grey"])
    with pytest.raises(BrinellError, match="tells 3 classes apart, and the boxes have 4"):
        brinell.dense(Spots(), two, eps=[0.1], out=tmp_path / "run")
