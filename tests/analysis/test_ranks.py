"""Ranks and their agreement: values worked by hand, scipy's beside them, and intervals that cover."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _lazy import library
from brinell.analysis.ranks import (
    chance,
    kendall_w,
    percentile_interval,
    ranked,
    resampled,
    shuffled,
    spearman,
    spearman_interval,
    spearman_p,
    weighted,
)

stats = library("scipy.stats")

LABELS = np.array([0, 0, 0, 1, 1, 2])
VALUES = np.array([[1, 0, 1, 1, 1, 0], [0, 0, 0, 1, 0, 1]])


def test_equal_values_share_their_ranks():
    assert ranked(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]


@given(st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=2, max_size=6))
def test_ranks_are_those_of_scipy(rows):
    assert np.allclose(ranked(np.array(rows)), stats.rankdata(np.array(rows), axis=1))


def test_concordance_by_hand():
    # Sums of ranks 3, 6, 9, 12 and their mean 7.5 give S = 45; the most for 3 raters of 4 objects is 45.
    assert kendall_w(np.array([[1, 2, 3, 4]] * 3)) == 1
    # Sums 4, 4, 4: no order shows through.
    assert kendall_w(np.array([[1, 2, 3], [3, 2, 1]])) == 0
    # Ties: ranks 1, 2.5, 2.5 twice; with the correction for ties full agreement is 1.
    assert kendall_w(np.array([[1, 5, 5], [1, 5, 5]])) == pytest.approx(1)
    assert np.isnan(kendall_w(np.array([[1, 1], [2, 2]])))


@given(st.lists(st.lists(st.integers(0, 5), min_size=5, max_size=5), min_size=3, max_size=5))
def test_concordance_is_the_statistic_of_friedman(rows):
    x = np.array(rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        w, friedman = kendall_w(x), stats.friedmanchisquare(*x.T).statistic
    if np.isfinite(friedman):
        assert w == pytest.approx(friedman / (x.shape[0] * (x.shape[1] - 1)))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=9))
def test_correlations_are_those_of_scipy(pairs):
    a, b = zip(*pairs, strict=True)
    found = spearman(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(stats.spearmanr(a, b).statistic)


def test_p_values_over_all_orders():
    rng = np.random.default_rng(0)
    # Of the 24 orders of four, one agrees fully and one not at all.
    assert spearman_p([1, 2, 3, 4], [10, 20, 30, 40], rng) == pytest.approx(2 / 24)
    assert spearman_p([1, 2, 3], [5, 5, 5], rng) is None
    many = list(range(20))
    assert spearman_p(many, many, rng) == pytest.approx(1 / 2001, abs=1e-3)


def test_intervals_of_correlations():
    # Bonett & Wright: 0.5 over 30 pairs, tanh(atanh(0.5) -+ 1.96 sqrt(1.125 / 27)).
    low, high = spearman_interval(0.5, 30)
    assert (low, high) == pytest.approx((0.1482, 0.7392), abs=1e-3)
    assert spearman_interval(0.3, 3) is None
    low, high = spearman_interval(1.0, 6)
    assert low < 0.9 and high == 1
    assert spearman_interval(-1.0, 6) == (-1, -low)


def test_what_is_drawn_again():
    rng = np.random.default_rng(1)
    means = resampled(VALUES, LABELS, rng, 4000)
    assert means.shape == (4000, 2, 3)
    true = np.array([[2 / 3, 1, 0], [0, 0.5, 1]])
    assert means.mean(0) == pytest.approx(true, abs=0.03)
    # The spread is that of a proportion, and the two models see the same draw.
    assert means[:, 0, 0].std() == pytest.approx((2 / 3 / 3 / 3) ** 0.5, abs=0.02)
    assert (means[:, 0, 1] == 1).all() and set(means[:, 1, 1]) == {0, 0.5, 1}
    assert weighted(true, LABELS) == pytest.approx(VALUES.mean(1))


def test_what_is_shuffled_keeps_the_sum():
    means = shuffled(VALUES, LABELS, np.random.default_rng(1), 500)
    assert weighted(means, LABELS) == pytest.approx(np.tile(VALUES.mean(1), (500, 1)))
    assert means.mean(0) == pytest.approx(np.tile(VALUES.mean(1)[:, None], (1, 3)), abs=0.08)


def test_intervals_hold_the_value():
    assert percentile_interval(np.linspace(0, 1, 1001), 0.5) == pytest.approx((0.025, 0.975))
    assert percentile_interval(np.full(10, 0.2), 0.9) == (0.2, 0.9)
    assert percentile_interval(np.full(3, np.nan), 0.4) == (0.4, 0.4)


def test_chance_counts_what_was_seen():
    assert chance(2.0, np.array([1.0, 2.0, 3.0])) == 3 / 4
    assert chance(9.0, np.zeros(99)) == 1 / 100


def test_places_cover():
    """Of two equally good models, the interval of the first place holds both places nearly always."""
    rng, both = np.random.default_rng(3), 0
    labels = np.zeros(60, dtype=int)
    for _ in range(60):
        held = rng.random((2, 60)) < 0.5
        draws = ranked(-weighted(resampled(held, labels, rng, 300), labels))[:, 0]
        low, high = percentile_interval(draws, float(ranked(-held.mean(1))[0]))
        both += low <= 1.5 <= high
    assert both >= 53
