"""Ratios of the means of paired costs, with intervals that hold where few pairs differ."""

from typing import Any

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval

DRAWS = 4000
"""Draws of the weights of pairs."""
LEAST_PAIRS = 30
LEAST_DIFFERING = 8
"""Pairs, and pairs among them that differ, without which a ratio has no interval: with fewer no
method that was tried holds the truth of skewed costs in 92 of 100 cases."""


def ratio(
    above: np.ndarray[Any, Any], below: np.ndarray[Any, Any]
) -> tuple[float, Interval | None]:
    """The mean of costs over that of others of the same samples, with a 95 % interval.

    The interval is the middle of the ratios under random weights of the pairs (the Bayesian
    bootstrap, Rubin 1981) and of two imagined ones, which lie as far from the ratio as the farthest
    pair, one on either side. It is None for fewer than `LEAST_PAIRS` pairs, or if fewer than
    `LEAST_DIFFERING` of them differ: the truth may then lie in pairs that were not drawn.

    Args:
        above: (n,) costs of at least 0, n at least 1, of which the ratio is.
        below: (n,) those of the same samples that it is to, not all 0.
    """
    value = above.mean() / below.mean()
    if len(above) < LEAST_PAIRS or (above != below).sum() < LEAST_DIFFERING:
        return float(value), None
    middle = below.mean()
    if np.ptp(above / below) > 1e-12 * value:
        farthest = np.abs(above - value * below).max()
    else:
        # All pairs have one ratio: the imagined ones differ by a whole cost.
        farthest = max(above.max(), below.max())

    weights = np.random.default_rng(0).standard_exponential((DRAWS, len(above) + 2))
    tops = weights @ [*above, value * middle - farthest, value * middle + farthest]
    ratios = tops / (weights @ [*below, middle, middle])
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(value), Interval(float(low), float(high))


def ratio_text(value: float, interval: Interval | None) -> str:
    """A ratio with its interval."""
    if interval is None:
        return f"{value:.2f}, too few inputs that differ for an interval"
    return f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
