"""Ratios of means of paired costs, with their intervals."""

import numpy as np
import pytest

from brinell.rlab.ratios import LEAST_DIFFERING, LEAST_PAIRS, ratio, ratio_text


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


def test_few_pairs_or_few_that_differ_have_no_interval():
    rng = np.random.default_rng(2)
    for _ in range(40):
        n = int(rng.integers(2, 120))
        differing = int(rng.integers(0, n + 1))
        below = rng.integers(1, 300, n).astype(float)
        above = below + (np.arange(n) < differing) * rng.integers(1, 300, n)
        value, interval = ratio(above, below)
        assert (interval is None) == (n < LEAST_PAIRS or differing < LEAST_DIFFERING)
        assert ("too few inputs" in ratio_text(value, interval)) == (interval is None)


@pytest.mark.parametrize(("share", "n"), [(0.05, 100), (0.1, 100), (0.3, 30), (0.3, 100)])
@pytest.mark.parametrize("factor", [5, 20])
def test_an_interval_holds_the_truth_where_differences_are_rare_and_large(share, n, factor):
    """Costs of which a share is many times larger on one side, which a mean hardly sees."""
    rng, hits = np.random.default_rng(1), []
    for _ in range(300):
        below = np.minimum(rng.geometric(0.02, n), 200).astype(float)
        above = np.where(rng.random(n) < share, factor, 1) * below
        interval = ratio(above, below)[1]
        if interval is not None:
            hits.append(interval.low <= 1 + share * (factor - 1) <= interval.high)
    assert len(hits) > 20 and np.mean(hits) > 0.95 - 2.6 * np.sqrt(0.95 * 0.05 / len(hits))
