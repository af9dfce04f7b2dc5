"""Corrected p-values, orders with simultaneous ranks, and equivalence: by hand, and properties of
orders made at random.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _lazy import library
from brinell.analysis.inference import (
    LEAST_CORRELATED,
    Rank,
    compare_groups,
    compare_rates,
    correlate_ranks,
    holm,
    order,
    significant,
)

stats = library("scipy.stats")


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_p_value_and_bonferronis(p_values):
    for p, corrected in zip(p_values, holm(p_values), strict=True):
        assert p <= corrected <= min(1, len(p_values) * p) + 1e-12
    corrected = holm(p_values)
    assert [corrected[i] for i in np.argsort(p_values, kind="stable")] == sorted(corrected), (
        "the order stays"
    )


@given(st.integers(0, 10**6), st.integers(2, 7))
def test_ranks_follow_from_the_pairs(seed, k):
    """Property: a rank lies in its interval, nothing above an object is below it, and one told from
    nobody may have any rank.
    """
    rng = np.random.default_rng(seed)
    values, p = rng.integers(0, 4, k) / 3, rng.random((k, k)) ** 6
    objects = order(values, lambda i, j: p[i, j] if values[i] != values[j] else 1.0)
    for i in range(k):
        rank, low, high = objects.rank(i).model_dump().values()
        assert 1 <= low <= rank <= high <= k
        assert len(objects.above(i)) + len(objects.below(i)) + len(objects.rivals(i)) == k - 1
        assert all(i in objects.below(other) for other in objects.above(i))
        if len(objects.rivals(i)) == k - 1:
            assert (low, high) == (1, k)
    assert sorted(objects.rank(i).value for i in range(k)) == sorted(
        np.sum([values > v, 0.5 * (values == v)]) + 0.5 for v in values
    )


@pytest.mark.parametrize(
    ("p", "verdict"), [(0.05, True), (0.0500001, False), (None, False), (0.0, True)]
)
def test_significance(p, verdict):
    assert significant(p) is verdict


@given(st.integers(1, 4), st.integers(2, 9))
def test_classes_of_a_few_samples_are_not_told_apart(n, classes):
    """Property: one class loses all its few samples and the others nothing, and still nothing is
    claimed.
    """
    labels = np.repeat(np.arange(classes), min(n, 2))
    values = -(labels == 0).astype(float)
    assert compare_groups(values, labels, -1.0, 0.0).rivals(0) == list(range(1, classes))


def test_classes_of_many_samples_are_told_apart():
    labels = np.repeat(np.arange(4), 50)
    objects = compare_groups(-np.isin(labels, (1, 3)).astype(float), labels, -1.0, 0.0)
    assert objects.above(1) == [0, 2] and objects.rivals(1) == [3]
    assert objects.rank(0) == Rank(value=1.5, low=1, high=2) and objects.rank(3) == Rank(
        value=3.5, low=3, high=4
    )


@given(st.integers(0, 10**6), st.integers(2, 8))
def test_rates_are_compared_like_values_of_zero_and_one(seed, classes):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 60)])
    values = (rng.random(len(labels)) < 0.2 + 0.6 * (labels % 2)).astype(float)
    successes, counts = np.bincount(labels, weights=values), np.bincount(labels)
    rates, groups = compare_rates(successes, counts), compare_groups(values, labels, 0.0, 1.0)
    assert rates.p == pytest.approx(groups.p) and rates.values == pytest.approx(groups.values)


def test_groups_are_compared_by_welchs_test_with_two_further_samples():
    """A value at each bound is added to each group (Agresti & Caffo 2000); p-values by scipy,
    corrected for the three pairs.
    """
    rng = np.random.default_rng(0)
    groups = [rng.uniform(0.2, 1.0, 9), rng.uniform(0.0, 0.5, 14), rng.uniform(0.3, 0.6, 6)]
    labels = np.repeat([4, 7, 9], [9, 14, 6])
    result = compare_groups(np.concatenate(groups), labels, 0.0, 1.0)
    assert result.values == pytest.approx([group.mean() for group in groups])
    larger = [np.array([*group, 0.0, 1.0]) for group in groups]
    means, variances = (
        [group.mean() for group in larger],
        [group.var() / len(group) for group in larger],
    )
    p_values = []
    for i, j in ((1, 0), (2, 0), (2, 1)):
        total = variances[i] + variances[j]
        dof = total**2 / sum(variances[k] ** 2 / (len(groups[k]) - 1) for k in (i, j))
        p_values.append(2 * stats.t.sf(abs(means[i] - means[j]) / np.sqrt(total), dof))
    corrected = holm(p_values)
    assert [result.p[pair] for pair in ((1, 0), (2, 0), (2, 1))] == pytest.approx(corrected)
    assert np.array_equal(result.p, result.p.T) and (np.diag(result.p) == 1).all()


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_correlations_depend_on_the_order_alone(seed, n):
    """Property: the correlation of ranks is scipy's, lies in its interval, keeps its value under
    any increasing function, and has the other sign for values in reverse.
    """
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 4, (2, n)).astype(float)
    figure = correlate_ranks(first, second)
    if n < LEAST_CORRELATED or np.ptp(first) == 0 or np.ptp(second) == 0:
        assert (figure.n, figure.value, figure.low, figure.high) == (n, None, None, None)
        return

    assert figure.value == pytest.approx(stats.spearmanr(first, second).statistic)
    assert -1 <= figure.low <= figure.value <= figure.high <= 1 and figure.low < figure.high
    assert correlate_ranks(np.exp(first), second**3) == figure
    reverse = correlate_ranks(-first, second)
    mirrored = (-reverse.value, -reverse.high, -reverse.low)
    assert mirrored == pytest.approx((figure.value, figure.low, figure.high))


@given(st.integers(0, 10**6), st.integers(0, LEAST_CORRELATED - 1))
def test_a_few_objects_or_equal_values_have_no_correlation(seed, n):
    """Property: one reason alone suffices: too few objects, or one side without differences."""
    values = np.random.default_rng(seed).normal(size=LEAST_CORRELATED + n)
    assert correlate_ranks(values[:n], values[:n]).value is None
    assert correlate_ranks(values, np.ones_like(values)).value is None
    assert correlate_ranks(np.ones_like(values), values).value is None
    assert correlate_ranks(values, values).value == pytest.approx(1.0)
