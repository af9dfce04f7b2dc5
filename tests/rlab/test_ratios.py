"""Ratios of means with their bootstrap intervals."""

import numpy as np
import pytest

from brinell.rlab.ratios import MIN_PAIRS, ratio, ratio_text


def test_ratio_of_means_by_hand_and_its_interval():
    rng = np.random.default_rng(0)
    below = rng.gamma(5.0, size=200)
    above = 2 * below * rng.lognormal(0, 0.2, 200)
    value, interval = ratio(above, below)
    assert value == pytest.approx(above.mean() / below.mean()) and interval.low < value < interval.high
    # The delta method: the standard error of the logarithm of the ratio.
    error = (above / above.mean() - below / below.mean()).std(ddof=1) / np.sqrt(200)
    assert np.log(interval) == pytest.approx(np.log(value) + 1.96 * error * np.array([-1, 1]), abs=0.25 * error)
    turned, mirrored = ratio(below, above)
    assert turned == pytest.approx(1 / value) and mirrored == pytest.approx((1 / interval.high, 1 / interval.low))
    assert ratio(3 * above, below) == (pytest.approx(3 * value), pytest.approx((3 * interval.low, 3 * interval.high)))
    assert (
        ratio_text(value, interval) == f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
        and ratio_text(2.0, None) == "2.00"
    )


def test_ratio_of_medians_holds_the_middle_of_the_draws():
    rng = np.random.default_rng(1)
    above, below = rng.exponential(size=(2, 60)) + 0.1
    value, interval = ratio(above, below, np.median)
    assert value == np.median(above) / np.median(below) and interval.low < value < interval.high
    assert interval.high - interval.low > 0.1


def test_too_few_pairs_or_one_ratio_have_no_interval():
    values = np.linspace(1, 2, MIN_PAIRS)
    assert ratio(values[1:], values[:0:-1])[1] is None and ratio(values, values[::-1])[1] is not None
    assert ratio(3 * values, values) == (pytest.approx(3), None)
