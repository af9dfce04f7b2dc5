"""Detectors under attack, on one of which the change that makes an object vanish is known."""

import pytest

import brinell
from _spots import VANISHING, Final, Spots, entries, spots
from brinell.core.errors import BrinellError

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


def values(result, quantity):
    """A figure over the budgets without its intervals."""
    rates = {"recall": [result.clean_accuracy, *result.robust_accuracy]}
    curves = rates | {curve.quantity: curve.values for curve in result.figures}
    return [figure.value for figure in curves[quantity]]


def test_objects_vanish_exactly_where_the_formula_says(result):
    assert values(result, "missed") == [0, 0, 1] and values(result, "recall") == [1, 1, 0]
    assert values(result, "AP50")[0] == 1 and result.n == 4 and result.clean_accuracy.n == 5
    assert any("1 of 4 pictures have no object" in note for note in result.notes)


def test_curves_never_fall_and_figures_of_the_set_never_rise(result):
    for error in ("missed", "false", "mislabelled", "misplaced"):
        assert values(result, error) == sorted(values(result, error))
    for quantity in ("AP50", "AP", "recall"):
        assert values(result, quantity) == sorted(values(result, quantity), reverse=True)
    for figure in (figure for curve in result.figures for figure in curve.values):
        assert figure.low is None or figure.low <= figure.value <= figure.high
        assert figure.low != figure.high or figure.low is None, (
            "pictures that are all alike give no interval"
        )


def test_quadrants_cannot_be_misplaced_and_another_class_takes_the_lead_at_half_their_difference(
    result,
):
    assert values(result, "misplaced") == [0, 0, 0]
    assert (
        values(result, "mislabelled")[0] == values(result, "mislabelled")[-1] == 0
    )  # 0.2 + eps stays below 0.46


def test_final_boxes_are_attacked_by_their_scores(tmp_path):
    result = brinell.audit(
        Final(), data(), eps=[0.5], attack="square?steps=25", out=tmp_path / "run"
    )
    assert values(result, "missed")[-1] > 0
    assert any("attacks ask it for scores" in note for note in result.notes)
    with pytest.raises(BrinellError, match="pgd cannot attack Final: it needs gradients"):
        brinell.audit(Final(), data(), eps=[0.1], attack="pgd", out=tmp_path / "other")


def test_rlab_places_patches_on_pictures_with_boxes(tmp_path):
    result = brinell.audit(
        Spots(),
        data(),
        norm="l2",
        eps=[8.0],
        attack="rlab?steps=40&patch=8&distortions=contrast",
        criterion="missed",
        out=tmp_path / "run",
    )
    assert values(result, "missed")[-1] == 1 and [curve.quantity for curve in result.figures] == [
        "AP50",
        "AP",
        "missed",
    ]


@pytest.mark.slow
def test_a_criterion_ends_an_attack(tmp_path):
    some = brinell.audit(
        Spots(),
        data(),
        eps=[0.4],
        attack="pgd?steps=3",
        criterion="missed:0.5",
        out=tmp_path / "some",
    )
    everything = brinell.audit(
        Spots(), data(), eps=[0.4], attack="pgd?steps=3", criterion="missed", out=tmp_path / "all"
    )
    assert sum(stage.forwards for stage in some.stages) <= sum(
        stage.forwards for stage in everything.stages
    )
    assert all(value >= 0.5 for value in values(some, "missed")[1:])
    shown = brinell.audit(
        Spots(),
        data(),
        eps=[0.4],
        attack="pgd?steps=3",
        criterion="missed@0.99",
        out=tmp_path / "shown",
    )
    assert shown.clean_accuracy.value == 0 and shown.clean_accuracy.quantity == "recall at 0.99"


REFUSALS = [
    ({"criterion": "lost"}, "criterion is 'lost': write"),
    ({"criterion": "missed:2"}, "criterion is 'missed:2': write"),
    ({"criterion": "missed@1"}, "criterion is 'missed@1': write"),
    ({"attack": "standard"}, "standard is a cascade"),
]


def test_what_cannot_be_carried_out_is_refused(tmp_path, subtests):
    for number, (settings, message) in enumerate(REFUSALS):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(BrinellError, match=message):
                brinell.audit(Spots(), data(), out=folder / "run", **{"eps": [0.1]} | settings)
    x, objects = spots(*PICTURES)
    two = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue", "grey"])
    with pytest.raises(BrinellError, match="tells 3 classes apart, and the boxes have 4"):
        brinell.audit(Spots(), two, eps=[0.1], out=tmp_path / "run")
