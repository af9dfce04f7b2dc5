"""Exact and score intervals."""

import pytest

from _lazy import library
from brinell.core.intervals import clopper_pearson_low, deviations, score_interval, wilson

stats = library("scipy.stats")


def test_the_exact_lower_end_is_the_quantile_of_the_beta_distribution():
    for k, n in ((0, 5), (1, 1), (1, 5), (5, 5), (17, 40), (99, 100), (990, 1000)):
        for alpha in (0.001, 0.05, 0.5):
            expected = 0.0 if k == 0 else stats.beta.ppf(alpha, k, n - k + 1)
            assert clopper_pearson_low(k, n, alpha) == pytest.approx(expected, abs=1e-9), (
                k,
                n,
                alpha,
            )


def test_score_intervals_of_effective_numbers():
    assert deviations(0.95) == pytest.approx(1.959964, abs=1e-6) and deviations(
        0.5
    ) == pytest.approx(0.67449, abs=1e-5)
    assert score_interval(0.3, 50, deviations(0.95)) == pytest.approx(wilson(15, 50))
    low, high = score_interval(0.4, 12.5, 2.0)
    # The ends solve (p - end)^2 = z^2 end (1 - end) / n.
    for end in (low, high):
        assert (0.4 - end) ** 2 == pytest.approx(4 * end * (1 - end) / 12.5)
    assert score_interval(0.0, 10, 2.0).low == 0.0 and score_interval(1.0, 10, 2.0).high == 1.0
