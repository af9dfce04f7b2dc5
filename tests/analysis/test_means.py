"""Means with intervals and p-values: known answers, and properties that hold for values made at
random.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _lazy import library
from brinell.analysis.means import MIN_GROUPS, mean, mean_difference, pseudo_values, sign_flips
from brinell.core.intervals import wilson

stats = library("scipy.stats")
arrays = st.integers(0, 10**6).map(np.random.default_rng)


def test_equal_values_have_no_interval():
    estimate = mean(np.array([0.5] * 20 + [np.nan]))
    assert estimate is not None and (estimate.value, estimate.interval, estimate.n) == (
        0.5,
        None,
        20,
    )
    assert mean(np.array([np.nan])) is None and mean(np.zeros(0)) is None


def test_symmetric_values_have_the_interval_of_t():
    values = np.random.default_rng(3).normal(2.0, 1.0, 400)
    values = np.concatenate([values, 4 - values])
    estimate = mean(values)
    assert estimate is not None
    reference = stats.ttest_1samp(values, 0)
    assert estimate.interval == pytest.approx(tuple(reference.confidence_interval()))
    assert mean_difference(values - 1.97).p == pytest.approx(
        stats.ttest_1samp(values - 1.97, 0).pvalue
    )


def test_proportions_are_wilsons():
    assert mean(np.array([1.0, 1, 1, 0, np.nan])).interval == wilson(3, 4)
    assert mean(np.ones(5), np.arange(5)).interval == wilson(5, 5)
    assert mean(np.ones(5), np.zeros(5)).interval is None


@given(arrays, st.integers(1, 12), st.booleans())
def test_a_few_groups_have_no_interval(rng, groups, binary):
    """Property: fewer than six groups, however many samples they have, allow no interval; six equal
    ones do.
    """
    values = rng.normal(size=(groups, 8))
    values = (values > 0).astype(float) if binary else values
    estimate = mean(values.ravel(), np.repeat(np.arange(groups), 8))
    deviating = len(np.unique(values.mean(1))) > 3
    if groups < MIN_GROUPS:
        assert estimate.interval is None
    elif binary or deviating:
        low, high = estimate.interval
        assert low <= estimate.value <= high and low < high


@given(arrays, st.floats(1.2, 5))
def test_a_group_that_dominates_leaves_no_interval(rng, factor):
    sizes = [1] * 8 + [round(40 * factor)]
    estimate = mean(rng.normal(size=sum(sizes)), np.repeat(np.arange(9), sizes))
    assert estimate.interval is None


@given(arrays, st.integers(6, 40), st.floats(-1, 1))
def test_p_value_and_interval_agree(rng, n, shift):
    """Property: the p-value is at most 0.05 only if the interval leaves out 0; beyond twelve groups
    also the reverse.
    """
    values = rng.exponential(1.0, n) + shift - 0.7
    estimate = mean_difference(values)
    outside = estimate.interval.low > 0 or estimate.interval.high < 0
    assert estimate.p > 0.05 or outside
    if n > 12:
        assert (estimate.p <= 0.05) == outside


@given(arrays, st.integers(7, 30), st.floats(0.1, 50), st.floats(-5, 5))
def test_intervals_follow_scale_and_shift(rng, n, scale, shift):
    values = rng.gamma(2.0, size=n)
    estimate, moved = mean_difference(values), mean_difference(-scale * values + shift)
    mirrored = (shift - scale * estimate.interval.high, shift - scale * estimate.interval.low)
    assert moved.interval == pytest.approx(mirrored, rel=1e-6, abs=1e-6)


def test_values_of_one_group_are_one_observation():
    values = np.repeat([0.0, 1.0, 0.2, 0.9, 0.3, 0.4, 0.8, 0.5], 25)
    separate, grouped = mean(values), mean(values, np.repeat(np.arange(8), 25))
    assert grouped.interval == pytest.approx(mean(values[::25]).interval), (
        "CR2 of equal groups is the variance of their means"
    )
    assert grouped.interval.high - grouped.interval.low > 3 * (
        separate.interval.high - separate.interval.low
    )


def test_sign_flips_by_hand():
    # Of eight ways two are as far from 0: all as they are, and all turned.
    assert sign_flips(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / 8)
    assert sign_flips(np.array([1.0, -1.0])) == 1.0
    assert mean_difference(
        np.array([1.0, 1.0, 1.0, 1.0]), np.array(["a", "a", "b", "b"])
    ).p == pytest.approx(2 / 4)
    assert mean_difference(np.array([np.nan])) is None
    assert mean_difference(np.full(40, 0.3)).p == pytest.approx(2.0**-39)
    assert mean_difference(np.zeros(40)).p == 1.0


@given(arrays, st.integers(2, 60))
def test_pseudo_values_have_the_mean_of_the_ratio(rng, n):
    above, below = rng.random(n), (rng.random(n) < 0.7).astype(float)
    if below.any():
        assert pseudo_values(above, below).mean() == pytest.approx(above.sum() / below.sum())
        # Over samples that all count, it is the value of each.
        assert pseudo_values(above, np.ones(n)) == pytest.approx(above)
    else:
        assert np.isnan(pseudo_values(above, below)).all()


@given(arrays, st.integers(6, 12), st.floats(0.1, 0.9))
def test_shares_over_groups_are_mirrored_and_no_narrower_than_wilsons(rng, groups, share):
    """Property: a share and its complement have mirrored intervals, and samples that stand in
    groups allow no narrower interval than as many independent ones.
    """
    members = np.repeat(np.arange(groups), rng.integers(2, 5, groups))
    chance = np.clip(share + rng.normal(0, 0.3, groups), 0, 1)
    values = (rng.random(len(members)) < chance[members]).astype(float)
    estimate = mean(values, members)
    complement = mean(1 - values, members)
    if estimate.interval is None:
        assert complement.interval is None
        return

    low, high = estimate.interval
    assert (1 - complement.interval.high, 1 - complement.interval.low) == pytest.approx((low, high))
    narrowest = wilson(int(values.sum()), len(values))
    assert low <= narrowest.low + 1e-12 and high >= narrowest.high - 1e-12
