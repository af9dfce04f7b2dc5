"""What is told of a hardening: findings beyond chance, with all that are read together corrected for their number."""

import pytest

from brinell.analysis.compare import _corrected
from brinell.analysis.results import ClassComparison, CompareResult, PairedRate, Share
from brinell.analysis.stats import mcnemar, paired_difference
from brinell.core.intervals import wilson
from brinell.studies.harden.analysis import HardenResult, Unseen, _unseen, summarise
from brinell.studies.harden.words import carries_over, reading, who_paid


def pair(both, gained, lost, neither):
    n = both + gained + lost + neither
    low, high = paired_difference(both, gained, lost, neither)
    return PairedRate(
        eps=0.0, both=both, only_a=gained, only_b=lost, neither=neither, n=n, missing=0, value_a=(both + gained) / n,
        value_b=(both + lost) / n, difference=(gained - lost) / n, low=low, high=high, p=mcnemar(gained, lost),
    )  # fmt: skip


def hardened(**by_class):
    """A result of which nothing but the classes' untouched inputs is looked at."""
    classes = [
        ClassComparison(class_=at, name=name, n=one.n, clean=one, p_clean=one.p, difference=[], low=[], high=[])
        for at, (name, one) in enumerate(by_class.items())
    ]
    return HardenResult.model_construct(comparison=CompareResult.model_construct(per_class=_corrected(classes)))


def test_a_loss_that_may_be_chance_is_told_as_such():
    said = who_paid(hardened(cat=pair(80, 2, 5, 13), dog=pair(90, 4, 2, 4)))
    assert said.startswith("No class lost accuracy on untouched inputs beyond chance; cat (class 0) fell most, from 85.0")
    assert "82.0" in said and "−3.0 points" in said and "100 samples" in said


def test_the_class_that_paid_is_one_whose_loss_is_beyond_chance():
    """Ten of ten lost samples have a p-value of 0.002, of two classes 0.004; the larger loss of three samples is chance."""
    said = who_paid(hardened(few=pair(0, 0, 1, 2), cat=pair(80, 0, 10, 10), dog=pair(85, 0, 9, 6)))
    assert (
        said.startswith("On untouched inputs cat (class 1) lost most: from 90.0") and "Class dog lost beyond chance too." in said
    )


def test_many_classes_together_are_held_to_more():
    """Six of six lost samples have a p-value of 0.031: a finding in one class, and none in ten."""
    one = pair(80, 0, 6, 14)
    assert mcnemar(0, 6) == pytest.approx(2 / 2**6)
    assert who_paid(hardened(cat=one)).startswith("On untouched inputs cat (class 0) lost most")
    others = {f"c{at}": pair(90, 0, 0, 10) for at in range(9)}
    assert who_paid(hardened(cat=one, **others)).startswith("No class lost accuracy on untouched inputs beyond chance")


def test_where_nothing_was_lost():
    assert who_paid(hardened(cat=pair(80, 6, 0, 14))) == "No class lost accuracy on untouched inputs."
    assert who_paid(hardened()) == ""
    assert "(with 7 samples of a class at most, only large losses would show)." in who_paid(hardened(cat=pair(7, 0, 0, 0)))


def change(name, gained, lost, seen=False):
    return {"name": name, "seen": seen, "both": 80 - gained, "only_after": gained, "only_before": lost, "neither": 20 - lost}


def test_p_values_of_changes_hold_with_all_of_them_read_together():
    """By hand: 2/2^6 and 2/2^10, of three rows; Holm takes three times the least and twice the next."""
    rows = _unseen([change("fog", 6, 0), change("blur", 0, 10), change("jpeg", 1, 1)])
    assert [row.p for row in rows] == pytest.approx([2 * 2 / 2**6, 3 * 2 / 2**10, 1.0])


def test_what_does_not_carry_over_is_named():
    worse, better = _unseen([change("blur", 0, 10), change("fog", 12, 0)])
    assert carries_over([worse, better]) == (
        "Of 2 changes that were not trained on, the model takes 1 better than before and 1 worse, beyond chance: robustness does "
        "not carry over to blur."
    )
    assert carries_over([better]).endswith("takes 1 better than before and none worse, beyond chance: it carries over to fog.")
    assert carries_over(_unseen([change("pgd", 12, 0, seen=True)])) == ""


def test_a_change_that_may_be_chance_is_no_finding():
    """The interval of six lost samples of a hundred excludes no change; with eight such rows it proves nothing."""
    rows = _unseen([change(f"c{at}", 0, 6) for at in range(8)])
    assert all(row.high < 0 for row in rows) and "none better than before and none worse" in carries_over(rows)


def test_the_rates_of_a_change_are_those_of_its_counts():
    (row,) = _unseen([change("fog", 6, 2)])
    assert isinstance(row, Unseen) and (row.before.k, row.after.k, row.n) == (76, 80, 100)
    assert row.before == Share(k=76, n=100, value=0.76, low=wilson(76, 100).low, high=wilson(76, 100).high)


def test_the_severity_is_said_once():
    names = ("blur", "fog", "jpeg", "contrast", "gain")
    rows = _unseen([change(f"{name}, severity 3", 0, 16) | {"distortion": name} for name in names])
    assert carries_over(rows).endswith("does not carry over to blur, fog, jpeg, contrast and 1 more (severity 3).")


def test_a_headline_above_what_pgd_leaves_is_corrected(done):
    result = summarise(done)
    name = "PGD, 20 steps, linf 0.15"
    assert not [one for one in reading(result) if "at most that" in one]
    lower = [
        row.model_copy(update={"after": row.after.model_copy(update={"value": 0.5})}) if row.name == name else row
        for row in result.unseen
    ]
    said = reading(result.model_copy(update={"unseen": lower}))
    assert said[1].startswith("PGD of 20 steps leaves 50.0") and "the robust accuracy is at most that" in said[1]
