"""Ranks and their agreement: values worked by hand, scipy's beside them, and intervals that cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _lazy import library
from brinell.analysis.ranks import (
    chance,
    kendall_w,
    ranked,
    shuffled,
    spearman,
    spearman_interval,
    spearman_test,
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
    correlation = spearman(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert correlation is None
    else:
        assert correlation == pytest.approx(stats.spearmanr(a, b).statistic)


def test_p_values_over_all_orders():
    rng = np.random.default_rng(0)
    # Of the 24 orders of four, one agrees fully and one not at all.
    assert spearman_test([1, 2, 3, 4], [10, 20, 30, 40], rng) == pytest.approx((2 / 24, 2 / 24))
    assert spearman_test([1, 2, 3], [5, 5, 5], rng) is None
    long_sequence = list(range(20))
    assert spearman_test(long_sequence, long_sequence, rng) == pytest.approx((1 / 2001, 1 / 2001), abs=1e-3)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6), st.randoms())
def test_no_order_has_a_smaller_p_value_than_the_smallest(pairs, random):
    a, b = zip(*pairs, strict=True)
    rng = np.random.default_rng(0)
    test = spearman_test(a, b, rng)
    if test is not None:
        orders = [random.sample(b, len(b)) for _ in range(8)] + [sorted(b), sorted(b, reverse=True)]
        orders = [[order[i] for i in np.argsort(np.argsort(a, kind="stable"))] for order in orders]
        p_values = [spearman_test(a, order, rng).p for order in orders]
        assert min(p_values) == pytest.approx(test.smallest)


def test_a_tie_of_nearly_all_leaves_no_small_p_value():
    test = spearman_test([0] * 29 + [1], range(30), np.random.default_rng(0))
    assert test.smallest > 0.05, "only one of thirty values differs: two of thirty places are the outermost"


def test_intervals_of_correlations():
    # Bonett & Wright: 0.5 over 30 pairs, tanh(atanh(0.5) -+ 1.96 sqrt(1.125 / 27)).
    low, high = spearman_interval(0.5, 30)
    assert (low, high) == pytest.approx((0.1482, 0.7392), abs=1e-3)
    assert spearman_interval(0.3, 3) is None
    low, high = spearman_interval(1.0, 6)
    assert low < 0.9 and high == 1
    assert spearman_interval(-1.0, 6) == (-1, -low)


def test_what_is_shuffled_keeps_the_sum():
    means = shuffled(VALUES, LABELS, np.random.default_rng(1), 500)
    counts = np.bincount(LABELS)
    assert (means * counts).sum(-1) / len(LABELS) == pytest.approx(np.tile(VALUES.mean(1), (500, 1)))
    assert means.mean(0) == pytest.approx(np.tile(VALUES.mean(1)[:, None], (1, 3)), abs=0.08)


def test_chance_counts_what_was_seen():
    assert chance(2.0, np.array([1.0, 2.0, 3.0])) == 3 / 4
    assert chance(9.0, np.zeros(99)) == 1 / 100
