"""Ratios of means of paired costs, with their intervals."""

import numpy as np
import pytest

from brinell.rlab.ratios import ratio, ratio_text


def test_a_ratio_has_the_interval_of_the_delta_method_where_all_pairs_differ():
    rng = np.random.default_rng(0)
    below = rng.gamma(5.0, size=200)
    above = 2 * below * rng.lognormal(0, 0.2, 200)
    value, interval = ratio(above, below)
    error = (above / above.mean() - below / below.mean()).std(ddof=1) / np.sqrt(200)
    assert value == pytest.approx(above.mean() / below.mean())
    assert np.log(interval) == pytest.approx(
        np.log(value) + 1.96 * error * np.array([-1, 1]), abs=0.5 * error
    )
    turned, mirrored = ratio(below, above)
    assert turned == pytest.approx(1 / value) and mirrored == pytest.approx(
        (1 / interval.high, 1 / interval.low), rel=0.01
    )
    assert ratio(3 * above, below)[0] == pytest.approx(3 * value)
    assert ratio_text(value, interval) == f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


@pytest.mark.parametrize("differing", [0, 1, 2, 3])
def test_few_pairs_that_differ_prove_nothing(differing):
    below = np.full(100, 300.0)
    above = below.copy()
    above[:differing] = 1
    _, (low, high) = ratio(above, below)
    assert 0.85 < low < 1 - differing / 100 * 299 / 300 + 1e-9 and 1 <= high < 1.03


@pytest.mark.parametrize("share", [0.02, 0.05, 0.3])
def test_the_interval_holds_the_truth_as_often_as_it_says(share):
    """Of costs of which a share is anything below the budget."""
    rng, hits = np.random.default_rng(1), 0
    for _ in range(200):
        below = np.full(100, 300.0)
        above = np.where(rng.random(100) < share, rng.integers(1, 301, 100), 300.0)
        _, (low, high) = ratio(above, below)
        hits += low <= 1 - share * (1 - 150.5 / 300) <= high
    assert hits >= 184
