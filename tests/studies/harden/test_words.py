"""Tests of the sentences on a hardening: they report significant changes only, with p-values corrected for multiple
comparisons."""

import math

import pytest
import torch

from brinell.analysis.compare import _corrected
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.results import ClassComparison, CompareResult, PairedRate, Share
from brinell.core.domain import Domain
from brinell.core.intervals import wilson
from brinell.studies.harden import unseen
from brinell.studies.harden.analysis import HardenResult, Unseen, _unseen, summarise
from brinell.studies.harden.words import class_losses, generalisation, reading


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
        missing=0,
        value_a=(both_right + only_after) / n,
        value_b=(both_right + only_before) / n,
        difference=(only_after - only_before) / n,
        low=low,
        high=high,
        p=mcnemar(only_after, only_before),
    )


def result_of(**by_class):
    """A result with the classes' clean accuracy only."""
    classes = [
        ClassComparison(class_=index, name=name, n=pair.n, clean=pair, p_clean=pair.p, difference=[], low=[], high=[])
        for index, (name, pair) in enumerate(by_class.items())
    ]
    return HardenResult.model_construct(comparison=CompareResult.model_construct(per_class=_corrected(classes)))


def test_an_insignificant_loss_is_not_a_finding():
    sentence = class_losses(result_of(cat=pair(80, 2, 5, 13), dog=pair(90, 4, 2, 4)))
    assert sentence.startswith("No class lost accuracy on clean inputs significantly; cat (class 0) fell most, from 85.0")
    assert "82.0" in sentence and "−3.0 points" in sentence and "100 samples" in sentence


def test_only_significant_losses_name_a_class():
    """Ten of ten lost samples have p = 0.002, or 0.004 corrected for two classes. A loss of three samples may be chance."""
    sentence = class_losses(result_of(few=pair(0, 0, 1, 2), cat=pair(80, 0, 10, 10), dog=pair(85, 0, 9, 6)))
    assert (
        sentence.startswith("On clean inputs cat (class 1) lost most: from 90.0")
        and "Class dog also lost significantly." in sentence
    )


def test_p_values_are_corrected_for_the_number_of_classes():
    """Six of six lost samples have p = 0.031: significant for one class, and not for ten."""
    loss = pair(80, 0, 6, 14)
    assert mcnemar(0, 6) == pytest.approx(2 / 2**6)
    assert class_losses(result_of(cat=loss)).startswith("On clean inputs cat (class 0) lost most")
    unchanged = {f"c{i}": pair(90, 0, 0, 10) for i in range(9)}
    assert class_losses(result_of(cat=loss, **unchanged)).startswith("No class lost accuracy on clean inputs significantly")


def test_no_losses():
    assert class_losses(result_of(cat=pair(80, 6, 0, 14))) == "No class lost accuracy on clean inputs."
    assert class_losses(result_of()) == ""
    assert "(with 7 samples of a class at most, only large losses would show)." in class_losses(result_of(cat=pair(7, 0, 0, 0)))


def change(name, only_after, only_before, is_seen=False):
    return {
        "name": name,
        "seen": is_seen,
        "both": 80 - only_after,
        "only_after": only_after,
        "only_before": only_before,
        "neither": 20 - only_before,
    }


def test_p_values_are_corrected_for_the_number_of_changes():
    """By hand: 2/2^6 and 2/2^10 in three rows; Holm multiplies the smallest by three and the next by two."""
    rows = _unseen([change("fog", 6, 0), change("blur", 0, 10), change("jpeg", 1, 1)])
    assert [row.p for row in rows] == pytest.approx([2 * 2 / 2**6, 3 * 2 / 2**10, 1.0])


def test_changes_with_significant_losses_are_named():
    loss, gain = _unseen([change("blur", 0, 10), change("fog", 12, 0)])
    assert generalisation([loss, gain]) == (
        "Under 2 changes that the training did not use, the model is significantly better in 1 and worse in 1: robustness does "
        "not generalise to blur."
    )
    assert generalisation([gain]).endswith("better in 1 and worse in 0: robustness generalises to fog.")
    assert generalisation(_unseen([change("pgd", 12, 0, is_seen=True)])) == ""


def test_an_insignificant_change_is_not_a_finding():
    """The interval of six lost samples of a hundred excludes zero, but eight such rows are not significant."""
    rows = _unseen([change(f"c{i}", 0, 6) for i in range(8)])
    assert all(row.high < 0 for row in rows) and "better in 0 and worse in 0" in generalisation(rows)


def test_rates_of_a_change_follow_from_its_counts():
    (row,) = _unseen([change("fog", 6, 2)])
    assert isinstance(row, Unseen) and (row.before.k, row.after.k, row.n) == (76, 80, 100)
    assert row.before == Share(k=76, n=100, value=0.76, low=wilson(76, 100).low, high=wilson(76, 100).high)


def test_a_common_severity_appears_once():
    names = ("blur", "fog", "jpeg", "contrast", "gain")
    rows = _unseen([change(f"{name}, severity 3", 0, 16) | {"distortion": name} for name in names])
    assert generalisation(rows).endswith("does not generalise to blur, fog, jpeg, contrast and 1 more (severity 3).")


def test_a_lower_pgd_accuracy_is_reported(hardened_run):
    result = summarise(hardened_run)
    name = "PGD, 20 steps, linf 0.15"
    assert not [sentence for sentence in reading(result) if "at most that" in sentence]
    lower = [
        row.model_copy(update={"after": row.after.model_copy(update={"value": 0.5})}) if row.name == name else row
        for row in result.unseen
    ]
    sentences = reading(result.model_copy(update={"unseen": lower}))
    assert sentences[1].startswith("PGD with 20 steps leaves 50.0") and "accuracy is at most that" in sentences[1]


def test_pairs_of_answers_are_counted(monkeypatch):
    """Of ten samples one is right twice, two after, three before, and four never; each network sees inputs of its own."""
    y = torch.zeros(10, dtype=torch.int64)
    before = torch.tensor([0] + [1] * 2 + [0] * 3 + [1] * 4)
    after = torch.tensor([0] + [0] * 2 + [1] * 3 + [1] * 4)
    monkeypatch.setattr(unseen, "is_correct", lambda network, x, labels: x == labels)
    row = unseen._row("fog", True, "before", "after", {"before": before, "after": after}.__getitem__, y)
    assert row == {"name": "fog", "seen": True, "both": 1, "only_after": 2, "only_before": 3, "neither": 4}


def test_a_budget_in_the_other_norm():
    """A quarter of half the diagonal of the cube: 8/255 of CIFAR-10 is 0.43 in L2, and back."""
    domain = Domain(kind="image", shape=(3, 32, 32))
    assert unseen.other_eps("linf", 8 / 255, domain) == pytest.approx(8 / 255 * math.sqrt(3072) / 4)
    assert unseen.other_eps("l2", unseen.other_eps("linf", 0.03, domain), domain) == pytest.approx(0.03)
