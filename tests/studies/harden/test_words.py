"""Tests of the sentences on a hardening: they report significant changes only, with p-values corrected for multiple
comparisons."""

import math

import numpy as np
import pytest

import brinell
from brinell.analysis.inference import holm
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.results import ClassComparison, PairedRate, Share
from brinell.core.domain import Domain
from brinell.core.intervals import wilson
from brinell.store import rows
from brinell.studies.harden.result import Answers, class_losses, generalisation, unseen_of, weaker_audit
from brinell.studies.harden.run import other_eps


def pair(both_right, only_after, only_before, both_wrong):
    n = both_right + only_after + only_before + both_wrong
    low, high = paired_difference(both_right, only_after, only_before, both_wrong)
    return PairedRate(
        eps=0.0,
        both_robust=both_right,
        only_a=only_after,
        only_b=only_before,
        neither=both_wrong,
        n=n,
        value_a=(both_right + only_after) / n,
        value_b=(both_right + only_before) / n,
        difference=(only_after - only_before) / n,
        low=low,
        high=high,
        p=mcnemar(only_after, only_before),
    )


def classes(**by_class):
    """The comparison of each class by its clean accuracy only."""
    corrected = holm([pair.p for pair in by_class.values()])
    return [
        ClassComparison(class_=index, name=name, n=pair.n, clean=pair, p_clean=p, difference=[], low=[], high=[])
        for index, ((name, pair), p) in enumerate(zip(by_class.items(), corrected, strict=True))
    ]


NO_LOSS = "No class is shown to have lost accuracy on clean inputs."


def test_an_insignificant_loss_is_not_a_finding():
    assert class_losses(classes(cat=pair(80, 2, 5, 13), dog=pair(90, 4, 2, 4))) == NO_LOSS


def test_only_significant_losses_name_a_class():
    """Ten of ten lost samples have p = 0.002, or 0.004 corrected for two classes. A loss of three samples may be chance."""
    sentence = class_losses(classes(few=pair(0, 0, 1, 2), cat=pair(80, 0, 10, 10), dog=pair(85, 0, 9, 6)))
    assert sentence.startswith("On clean inputs cat (class 1) lost most: from 90.0") and "−10.0 points" in sentence
    assert "100 samples" in sentence and sentence.endswith(" Class dog also lost significantly.")


def test_p_values_are_corrected_for_the_number_of_classes():
    """Six of six lost samples have p = 0.031: significant for one class, and not for ten."""
    loss = pair(80, 0, 6, 14)
    assert mcnemar(0, 6) == pytest.approx(2 / 2**6)
    assert class_losses(classes(cat=loss)).startswith("On clean inputs cat (class 0) lost most")
    unchanged = {f"c{i}": pair(90, 0, 0, 10) for i in range(9)}
    assert class_losses(classes(cat=loss, **unchanged)) == NO_LOSS


def test_no_losses():
    assert class_losses(classes(cat=pair(80, 6, 0, 14))) == NO_LOSS
    assert class_losses(classes()) == ""


def changes(*counted):
    """Answers to changes by name, samples right only after and only before, of a hundred each, and what the change is."""
    parts = []
    for name, only_after, only_before, *facts in counted:
        distortion, seen = facts or ("", False)
        kinds = np.repeat([0, 1, 2, 3], [80 - only_after, only_after, only_before, 20 - only_before])
        shared = {"change": name, "distortion": distortion, "seen": seen, "sample_id": np.arange(100)}
        parts.append(rows.build(Answers, 100, **shared, before=np.isin(kinds, (0, 2)), after=np.isin(kinds, (0, 1))))
    return unseen_of(rows.concatenate(parts))


def test_p_values_are_corrected_for_the_number_of_changes():
    """By hand: 2/2^6 and 2/2^10 in three rows; Holm multiplies the smallest by three and the next by two."""
    found = changes(("fog", 6, 0), ("blur", 0, 10), ("jpeg", 1, 1))
    assert [row.p for row in found] == pytest.approx([2 * 2 / 2**6, 3 * 2 / 2**10, 1.0])


def test_changes_with_significant_losses_are_named():
    loss, gain = changes(("blur", 0, 10), ("fog", 12, 0))
    assert generalisation([loss, gain]) == (
        "Under 2 changes that the training did not use, the model is significantly better in 1 and worse in 1: robustness does "
        "not generalise to blur."
    )
    assert generalisation([gain]).endswith("better in 1 and worse in 0: robustness generalises to fog.")
    assert generalisation(changes(("pgd", 12, 0, "", True))) == ""


def test_an_insignificant_change_is_not_a_finding():
    """The interval of six lost samples of a hundred excludes zero, but eight such rows are not significant."""
    found = changes(*((f"c{i}", 0, 6) for i in range(8)))
    assert all(row.pair.high < 0 for row in found) and "better in 0 and worse in 0" in generalisation(found)


def test_rates_of_a_change_follow_from_its_answers():
    (row,) = changes(("fog", 6, 2))
    assert (row.before.k, row.after.k, row.pair.n) == (76, 80, 100)
    assert (row.pair.both_robust, row.pair.only_a, row.pair.only_b, row.pair.neither) == (74, 6, 2, 18)
    assert row.before == Share(k=76, n=100, value=0.76, low=wilson(76, 100).low, high=wilson(76, 100).high)


def test_distortions_are_named_as_the_public_knows_them():
    names = ("blur", "fog", "jpeg", "contrast", "gain", "hum")
    found = changes(*((f"{name}, severity 3", 0, 16, name, False) for name in names))
    assert generalisation(found).endswith("does not generalise to blur, fog, jpeg, contrast and 2 more.")


def test_a_lower_pgd_accuracy_is_reported(hardened_run):
    result = brinell.open(hardened_run)
    name = "PGD, 20 steps, linf 0.15"
    assert not list(weaker_audit(result))
    lower = [
        row.model_copy(update={"after": row.after.model_copy(update={"value": 0.5})}) if row.name == name else row
        for row in result.unseen
    ]
    (text,) = weaker_audit(result.model_copy(update={"unseen": lower}))
    assert text.startswith("PGD with 20 steps leaves 50.0") and "accuracy is at most that" in text


def test_a_budget_in_the_other_norm():
    """A quarter of half the diagonal of the cube: 8/255 of CIFAR-10 is 0.43 in L2, and back."""
    domain = Domain(kind="image", shape=(3, 32, 32))
    assert other_eps("linf", 8 / 255, domain) == pytest.approx(8 / 255 * math.sqrt(3072) / 4)
    assert other_eps("l2", other_eps("linf", 0.03, domain), domain) == pytest.approx(0.03)
