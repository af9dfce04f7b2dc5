"""Sentences on a hardening report significant changes alone, with p-values corrected for all of
them."""

import math

import numpy as np
import pytest

import brinell
from brinell.analysis.inference import holm
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.results import ClassComparison, PairedRate
from brinell.core.domain import Domain
from brinell.reports.statements import NO_LOSS, changes_sentence, losses_sentence
from brinell.store import rows
from brinell.studies.harden.result import (
    ChangeRows,
    class_losses,
    unseen_of,
    unseen_statements,
    weaker_audit,
)
from brinell.training.changes import other_eps


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
        ClassComparison(class_=index, name=name, n=pair.n, clean=pair, p_clean=p, robust=[])
        for index, ((name, pair), p) in enumerate(zip(by_class.items(), corrected, strict=True))
    ]


def test_only_significant_losses_name_a_class():
    """Property: p-values are corrected for the number of classes, and the largest significant loss
    comes first.
    """
    losses = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        by_class = {
            f"c{i}": pair(80, int(rng.integers(4)), int(rng.choice([0, 3, 6, 14])), 3)
            for i in range(rng.integers(1, 8))
        }
        corrected = dict(
            zip(
                by_class,
                holm([mcnemar(one.only_a, one.only_b) for one in by_class.values()]),
                strict=True,
            )
        )
        lost = {
            name
            for name, one in by_class.items()
            if corrected[name] <= 0.05 and one.only_b > one.only_a
        }
        statements = class_losses(classes(**by_class))
        sentence = losses_sentence(statements)
        losses += bool(lost)
        assert (sentence == NO_LOSS) == (not lost)
        assert [entry.p for entry in statements] == pytest.approx(list(corrected.values()))
        for entry in statements:
            assert entry.supported or entry.low <= 0 <= entry.high
            assert not (entry.supported and entry.low < 0 < entry.high)
        if lost:
            largest = min(lost, key=lambda name: by_class[name].difference)
            size = (
                f"{-100 * by_class[largest].difference:.1f} points, {by_class[largest].n} samples"
            )
            assert f"({size})" in sentence
    assert 0 < losses < 40 and class_losses(classes()) == []


def changes(*counted):
    """Answers to changes by name, samples right only after and only before, of a hundred each, and
    what the change is."""
    parts = []
    for name, only_after, only_before, *facts in counted:
        (seen,) = facts or (False,)
        kinds = np.repeat(
            [0, 1, 2, 3], [80 - only_after, only_after, only_before, 20 - only_before]
        )
        shared = {"change": name, "seen": seen, "sample_id": np.arange(100)}
        shared |= dict.fromkeys(("clean_before", "clean_after"), True)
        shared |= dict.fromkeys(("l2_before", "l2_after"), 1.0)
        parts.append(
            rows.build(
                ChangeRows,
                100,
                **shared,
                before=np.isin(kinds, (0, 2)),
                after=np.isin(kinds, (0, 1)),
            )
        )
    return unseen_of(rows.concatenate(parts))


def test_changes_that_are_significant_are_counted_and_named():
    """Property: with Holm's correction over all changes; a change that the training used is not
    counted.
    """
    for seed in range(20):
        rng = np.random.default_rng(seed)
        drawn = [
            (
                f"n{i}",
                int(rng.choice([0, 2, 12])),
                int(rng.choice([0, 2, 12])),
                bool(rng.random() < 0.3),
            )
            for i in range(rng.integers(1, 7))
        ]
        found = changes(*drawn)
        assert [row.pair.p for row in found] == pytest.approx(
            holm([mcnemar(after, before) for _, after, before, *_ in drawn])
        )
        unseen = [row for row in found if not row.seen]
        better, worse = (
            [row for row in unseen if row.pair.p <= 0.05 and sign * row.pair.difference > 0]
            for sign in (1, -1)
        )
        said = unseen_statements(found)
        assert [entry.quantity for entry in said] == [row.name for row in unseen]
        text = changes_sentence(said)
        if unseen:
            assert ("not shown to be better or worse" in text) == (not better and not worse)
            for word, named in (("better", better), ("worse", worse)):
                assert (f"{word} under {len(named)} (" in text) == bool(named) and all(
                    row.name in text for row in named[:3]
                )


def test_no_interval_contradicts_its_p_value():
    """Property: over random counts of several changes, an interval that excludes 0 stands beside a
    corrected p-value of at most 0.05, and holds the difference.
    """
    excluding = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        drawn = [(f"n{i}", *rng.integers(0, 20, 2).tolist()) for i in range(rng.integers(1, 16))]
        for row in changes(*drawn):
            pair = row.pair
            excludes = pair.low > 0 or pair.high < 0
            excluding += excludes
            assert not excludes or pair.p <= 0.05
            assert pair.low <= pair.difference <= pair.high
    assert excluding > 10


def test_rates_of_a_change_follow_from_its_answers():
    (row,) = changes(("fog", 6, 2))
    assert (row.pair.value_b, row.pair.value_a, row.pair.n) == (0.76, 0.8, 100)
    assert (row.pair.both_robust, row.pair.only_a, row.pair.only_b, row.pair.neither) == (
        74,
        6,
        2,
        18,
    )


def test_a_lower_pgd_accuracy_is_reported(hardened_run):
    result = brinell.open(hardened_run)
    name = "PGD, 20 steps, Linf 0.15"
    assert not list(weaker_audit(result))
    lower = [
        row.model_copy(update={"pair": row.pair.model_copy(update={"value_a": 0.5})})
        if row.name == name
        else row
        for row in result.unseen
    ]
    (text,) = weaker_audit(result.model_copy(update={"unseen": lower}))
    assert text.startswith("PGD with 20 steps leaves 50.0") and "accuracy is at most that" in text


def test_a_budget_in_the_other_norm():
    """A quarter of half the diagonal of the cube: 8/255 of CIFAR-10 is 0.43 in L2, and back."""
    domain = Domain(kind="image", shape=(3, 32, 32))
    assert other_eps("linf", 8 / 255, domain) == pytest.approx(8 / 255 * math.sqrt(3072) / 4)
    assert other_eps("l2", other_eps("linf", 0.03, domain), domain) == pytest.approx(0.03)
