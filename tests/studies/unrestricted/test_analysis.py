"""Rates of an unrestricted attack from rows that were written by hand."""

import pytest

from brinell.core.intervals import wilson
from brinell.studies.unrestricted.analysis import FRACTION, summarise
from brinell.studies.unrestricted.records import COLUMNS, Outcome


def row(attempt, outcome, *, intended=0, judges=(0,), near=(1.0, 3.0, 2.0, 4.0), **more):
    """A row whose distances are the same in both norms, at the plain sample and at the end."""
    held = dict.fromkeys(COLUMNS)
    held |= {"attempt": attempt, "model": "m", "variant": "latent", "intended": intended, "outcome": str(outcome)}
    held |= {"forwards": 0, "backwards": 0, "judge_forwards": 1, "plain_aux": intended, "plain_judges": [intended]}
    for norm in ("l2", "linf"):
        for name, value in zip(("same", "other", "anchor_same", "anchor_other"), near, strict=True):
            held |= {f"plain_{norm}_{name}": value, f"{norm}_{name}": value}
    return held | {"aux": intended, "judges": list(judges)} | more


def manifest(**more):
    return {
        "data": {"name": "d", "classes": ["zero", "one"]},
        "models": [{"name": "m"}],
        "judges": [{"name": "j"}],
        "variants": {"latent": {"noise": 0.0}},
        "generator": {"same_data": True},
        "target": None,
        "attempts": 0,
        "state": "finished",
    } | more


ROWS = [
    row(0, Outcome.UNCLEAR, plain_judges=[1]),
    row(1, Outcome.GENERALISATION, intended=1),
    row(2, Outcome.FOOLED, forwards=5, latent_l2=1.0, moved_l2=2.0, moved_linf=0.5),
    row(3, Outcome.FOOLED, intended=1, judges=(1,), forwards=9, latent_l2=3.0, moved_l2=4.0, moved_linf=0.7),
    row(4, Outcome.CONTESTED, judges=(1,), near=(5.0, 3.0, 2.0, 4.0), forwards=7, latent_l2=2.0, moved_l2=3.0, moved_linf=0.6),
    row(5, Outcome.SURVIVED, forwards=200),
]


def test_two_kinds_of_failure_and_their_denominators():
    (one,) = summarise(manifest(attempts=6), ROWS, "run").results
    counts = {
        name: (getattr(one.total, name).k, getattr(one.total, name).n)
        for name in type(one.total).model_fields
        if name != "attempts"
    }
    assert counts == {
        "clear": (5, 6),
        "plain_accuracy": (4, 5),
        "generalisation": (1, 5),
        "adversarial": (2, 5),
        "contested": (1, 5),
        "searched_accuracy": (1, 5),
        "success": (2, 4),
        "success_by_auxiliary": (3, 4),
    }
    assert (one.total.success.low, one.total.success.high) == wilson(2, 4)
    assert [(c.class_name, c.attempts, c.success.k, c.success.n) for c in one.classes] == [("zero", 4, 1, 3), ("one", 2, 1, 1)]
    assert (one.cost.forwards, one.cost.median_queries, one.cost.median_latent_l2) == (221, 7.0, 2.0)


def test_who_sees_the_intended_class():
    (one,) = summarise(manifest(), ROWS, "run").results
    seen = {witness.name: (witness.plain.k, witness.plain.n, witness.found.k, witness.found.n) for witness in one.witnesses}
    assert seen == {
        "auxiliary classifier": (6, 6, 3, 3),
        "j": (5, 6, 2, 3),
        "nearest training sample, L2": (5, 6, 2, 3),
        "nearest training sample, Linf": (5, 6, 2, 3),
    }


@pytest.mark.parametrize(
    ("near", "constant", "alone"),
    [
        ((1.0, 3.0, 2.0, 4.0), True, True),
        ((1.9, 3.0, 1.5, 4.0), True, False),  # another sample of the class is nearer than the change is long
        ((2.0, 3.0, 2.5, 4.0), False, True),  # as near to the other class as may be
        ((3.0, 2.0, 2.0, 4.0), False, False),
    ],
)
def test_the_conditions_by_hand(near, constant, alone):
    assert FRACTION == 0.5
    (one,) = summarise(manifest(), [row(0, Outcome.FOOLED, near=near)], "run").results
    for held in (*one.found, *one.plain):
        assert (held.label_constant.k, held.no_interpolation.k, held.both.k) == (constant, alone, constant and alone)
        assert held.nearer_to_own.k == (near[0] < near[1]) and held.same == near[0] and held.training_other == near[3]


def test_no_data_is_not_zero():
    (one,) = summarise(manifest(), [row(0, Outcome.UNCLEAR)], "run").results
    assert one.total.success.value is None and one.total.success.n == 0 and one.total.clear.value == 0.0
    assert one.found[0].same is None and one.cost.median_queries is None


def test_warnings():
    said = summarise(manifest(judges=[], generator={"same_data": False}), [row(0, Outcome.UNCLEAR)], "run").warnings
    assert [text.split()[0] for text in said] == ["Nobody", "There", "The", "Only"]
    assert len(summarise(manifest(), [row(0, Outcome.FOOLED)], "run").warnings) == 1
