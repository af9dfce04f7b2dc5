"""Ranks and their agreement: values worked by hand, scipy's beside them, and intervals that cover."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _lazy import library
from brinell.analysis.ranks import ranked, spearman, spearman_interval, spearman_test

stats = library("scipy.stats")


def test_equal_values_share_their_ranks():
    assert ranked(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]


@given(st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=2, max_size=6))
def test_ranks_are_those_of_scipy(rows):
    assert np.allclose(ranked(np.array(rows)), stats.rankdata(np.array(rows), axis=1))


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
    assert spearman_test([1, 2, 3, 4], [10, 20, 30, 40], rng) == pytest.approx(2 / 24)
    assert spearman_test([1, 2, 3], [5, 5, 5], rng) is None
    long_sequence = list(range(20))
    assert spearman_test(long_sequence, long_sequence, rng) == pytest.approx(1 / 2001, abs=1e-3)


def test_intervals_of_correlations():
    # Bonett & Wright: 0.5 over 30 pairs, tanh(atanh(0.5) -+ 1.96 sqrt(1.125 / 27)).
    low, high = spearman_interval(0.5, 30)
    assert (low, high) == pytest.approx((0.1482, 0.7392), abs=1e-3)
    assert spearman_interval(0.3, 3) is None
    low, high = spearman_interval(1.0, 6)
    assert low < 0.9 and high == 1
    assert spearman_interval(-1.0, 6) == (-1, -low)
