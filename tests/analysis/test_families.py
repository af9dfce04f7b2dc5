"""Tests of several comparisons together: by enumeration of all exchanges, and by simulation of
models that are equally good."""

import itertools

import numpy as np
import pytest

from brinell.analysis.families import EXCHANGES, joint_p_values
from brinell.analysis.proportions import mcnemar


def curves(rng: np.random.Generator, n: int, budgets: int, lead: float = 0.0) -> np.ndarray:
    """(n, budgets) differences of two models whose margins are correlated; the second is ahead by
    `lead` of a standard deviation."""
    margins = np.sqrt(0.5) * rng.normal(size=n) + np.sqrt(0.5) * rng.normal(size=(2, n))
    margins[1] += lead
    right = margins[:, :, None] > np.linspace(-1, 1.5, budgets)
    return right[0].astype(int) - right[1].astype(int)


def all_exchanges(differences: np.ndarray) -> np.ndarray:
    """The p-values over every exchange of the samples."""
    signs = np.array(list(itertools.product((-1, 1), repeat=len(differences))))
    scale = np.sqrt((differences != 0).sum(0).clip(1))
    largest = (np.abs(signs @ differences) / scale).max(1)
    return np.array(
        [(largest >= value - 1e-9).mean() for value in np.abs(differences.sum(0)) / scale]
    )


def test_p_values_are_those_of_all_exchanges():
    rng = np.random.default_rng(0)
    for _ in range(12):
        differences = curves(rng, int(rng.integers(2, 11)), int(rng.integers(2, 6)), 1.0)
        exact = all_exchanges(differences)
        noise = 4 * np.sqrt(exact * (1 - exact) / EXCHANGES) + 2 / EXCHANGES
        assert (np.abs(joint_p_values(differences) - exact) <= noise).all()


def test_one_comparison_and_no_difference():
    rng = np.random.default_rng(1)
    single = curves(rng, 60, 1, 0.3)
    counts = int((single == 1).sum()), int((single == -1).sum())
    assert joint_p_values(single) == pytest.approx([mcnemar(*counts)])
    assert joint_p_values(np.zeros((5, 3), dtype=int)).tolist() == [1, 1, 1]


def test_equal_models_seldom_differ_at_any_of_many_budgets():
    rng = np.random.default_rng(2)
    trials = 150
    joint = separate = 0
    for _ in range(trials):
        differences = curves(rng, 60, 9)
        joint += (joint_p_values(differences) <= 0.05).any()
        by_budget = [mcnemar((d == 1).sum(), (d == -1).sum()) for d in differences.T]
        separate += min(by_budget) <= 0.05
    assert joint <= 0.05 * trials + 2.6 * np.sqrt(0.05 * 0.95 * trials)
    assert separate > 1.4 * joint


def test_a_true_difference_is_found_more_often_than_by_bonferroni():
    rng = np.random.default_rng(3)
    joint = bonferroni = 0
    for _ in range(60):
        differences = curves(rng, 100, 20, 0.35)
        joint += (joint_p_values(differences) <= 0.05).any()
        by_budget = [mcnemar((d == 1).sum(), (d == -1).sum()) for d in differences.T]
        bonferroni += 20 * min(by_budget) <= 0.05
    assert joint > bonferroni + 5


def test_far_differences_have_the_p_values_of_bonferroni():
    differences = np.ones((400, 3), dtype=int)
    p = joint_p_values(differences)
    assert (p == 3 * mcnemar(400, 0)).all() and p.max() < 1e-100
