"""Areas under ROC curves and of pairs: by hand, against scikit-learn, and what an interval must
never do.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from brinell.analysis.auc import auc, auc_interval, pair_auc

scores = st.lists(st.integers(0, 5), min_size=2, max_size=20).map(
    lambda values: np.array(values, float)
)


def test_area_by_hand():
    assert auc(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == pytest.approx((0.75 + 1.0) / 2)
    assert (
        auc(np.array([]), np.array([1.0])) is None
        and auc_interval(np.array([0.0, 1.0]), np.array([1.0])) is None
    )


@given(scores, scores)
def test_the_interval_holds_the_area_and_never_collapses(clean, adversarial):
    low, high = auc_interval(clean, adversarial)
    area = auc(clean, adversarial)
    assert 0 <= low <= area <= high <= 1 and high - low > 0.05
    mirrored = auc_interval(adversarial, clean)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_perfect_separation_is_as_sure_as_the_smaller_group():
    """As Wilson's interval of a proportion with t instead of the normal distribution: 10 of 10, and
    200 of 200.
    """
    few, many = (auc_interval(np.zeros(200), np.ones(size)) for size in (10, 200))
    assert (
        few.low == pytest.approx(0.66, abs=0.01)
        and many.low == pytest.approx(0.981, abs=0.001)
        and few.high == many.high == 1
    )


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_pairs_agree_with_scikit_learn_and_their_values_with_the_jackknife(seed):
    rng = np.random.default_rng(seed)
    n = 40
    points, labels = np.round(rng.normal(size=n), 1), np.arange(n) % 3
    first, second = np.triu_indices(n, 1)
    value, values = pair_auc(np.abs(points[first] - points[second]), labels)
    assert value == pytest.approx(
        roc_auc_score(labels[first] != labels[second], np.abs(points[first] - points[second])),
        abs=1e-12,
    )
    assert values.mean() == pytest.approx(value, abs=1e-12)
    without = []
    for sample in range(n):
        kept = np.delete(np.arange(n), sample)
        i, j = np.triu_indices(n - 1, 1)
        without.append(pair_auc(np.abs(points[kept][i] - points[kept][j]), labels[kept])[0])
    jackknife = n * value - (n - 1) * np.array(without)
    assert np.corrcoef(jackknife, values)[0, 1] > 0.99 and jackknife.std() == pytest.approx(
        values.std(), rel=0.15
    )
