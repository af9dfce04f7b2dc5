"""Confidence sequences: a fair game by enumeration, and exact error rates over all looks."""

import itertools
import math

import numpy as np
import pytest

from brinell.analysis import sequences
from brinell.analysis.sequences import (
    ValueCounts,
    decide,
    difference_sequence,
    log_wealth,
    lower_end,
    share_sequence,
)

VALUES = (0.0, 0.5, 1.0)


def naive_wealth(values: list[float], mean: float) -> float:
    """Sample after sample, stake after stake."""
    total = 0.0
    for share, weight in zip(sequences.stakes(mean), sequences.LOG_WEIGHTS, strict=True):
        wealth = 1.0
        for value in values:
            wealth *= 1 - share + share * value / mean
        total += math.exp(weight) * wealth
    return total


def counts_of(values: list[float]) -> ValueCounts:
    return ValueCounts(*(values.count(value) for value in VALUES))


def test_the_wealth_is_that_of_bets_one_after_another():
    rng = np.random.default_rng(0)
    for _ in range(30):
        values = rng.choice(VALUES, rng.integers(0, 30)).tolist()
        mean = rng.uniform(0.05, 1)
        wealth = math.exp(log_wealth(counts_of(values), mean))
        assert wealth == pytest.approx(naive_wealth(values, mean), rel=1e-9)


def test_the_game_is_fair_at_the_true_mean():
    rng = np.random.default_rng(1)
    for _ in range(10):
        shares = rng.dirichlet(np.ones(3))
        mean = float(shares @ VALUES)
        expected = 0.0
        for values in itertools.product(range(3), repeat=4):
            chance = math.prod(shares[index] for index in values)
            outcome = [VALUES[index] for index in values]
            expected += chance * math.exp(log_wealth(counts_of(outcome), mean))
        assert expected == pytest.approx(1, rel=1e-9)


def walk(truth: float, threshold: float, looks: int) -> tuple[float, float, float]:
    """Exact chances to pass and to fail at any look, and the mean number of samples.

    The number of successes is followed as a distribution; what is decided leaves it.
    """
    alive = np.ones(1)
    passed = failed = samples = 0.0
    for n in range(1, looks + 1):
        samples += alive.sum()
        following = np.zeros(n + 1)
        following[:-1] += alive * (1 - truth)
        following[1:] += alive * truth
        k = np.arange(n + 1)
        above = log_wealth(ValueCounts(n - k, 0 * k, k), threshold) >= math.log(40)
        below = log_wealth(ValueCounts(k, 0 * k, n - k), 1 - threshold) >= math.log(40)
        passed += following[above].sum()
        failed += following[below].sum()
        alive = np.where(above | below, 0, following)
    return passed, failed, samples


def test_errors_over_all_looks_are_within_their_limit():
    for threshold in (0.03, 0.4, 0.9):
        passed, failed, _ = walk(threshold, threshold, 300)
        assert passed <= 0.025 and failed <= 0.025, (threshold, passed, failed)
        assert passed + failed > 0.01  # not by deciding nothing


def test_clear_cases_are_decided_after_few_samples():
    for truth, samples in ((0.6, 53), (0.7, 27), (0.2, 49)):
        passed, failed, mean = walk(truth, 0.4, 300)
        assert mean < samples, (truth, mean)
        assert (passed if truth > 0.4 else failed) > 0.99


def test_decisions_are_those_of_the_interval():
    rng = np.random.default_rng(2)
    for _ in range(40):
        n = int(rng.integers(1, 400))
        k = int(rng.integers(0, n + 1))
        threshold = rng.uniform(0.01, 0.99)
        low, high = share_sequence(k, n)
        expected = "passes" if threshold < low else "fails" if threshold > high else "undecided"
        assert decide(k, n, threshold) == expected
        assert low <= k / n <= high


def test_intervals_close_as_samples_come_and_mirror():
    widths = []
    for n in (1, 10, 100, 1000, 10_000):
        low, high = share_sequence(3 * n // 10, n)
        widths.append(high - low)
        mirror = share_sequence(n - 3 * n // 10, n)
        assert mirror == pytest.approx((1 - high, 1 - low), abs=1e-9)
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.04
    low, high = difference_sequence(10, 3, 100)
    assert difference_sequence(3, 10, 100) == pytest.approx((-high, -low), abs=1e-9)
    assert low < 0.07 < high


def test_ends_without_samples_and_at_thresholds_that_decide_themselves():
    assert share_sequence(0, 0) is None and difference_sequence(0, 0, 0) is None
    assert lower_end(ValueCounts(np.zeros(3), 0, 0), 0.025).tolist() == [0, 0, 0]
    assert share_sequence(0, 20).low == 0 and share_sequence(20, 20).high == 1
    assert decide(0, 5, 0.0) == "passes" and decide(5, 5, 1.0) == "undecided"
    assert decide(4, 5, 1.0) == "fails"
