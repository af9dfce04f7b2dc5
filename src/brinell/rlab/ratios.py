"""Ratios of the means of paired costs, with intervals that hold where few pairs differ."""

from typing import Any

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval

DRAWS = 4000
"""Draws of the weights of pairs."""


def ratio(above: np.ndarray[Any, Any], below: np.ndarray[Any, Any]) -> tuple[float, Interval]:
    """The mean of costs over that of others of the same samples, with a 95 % interval.

    The interval is the middle of the ratios under random weights of the pairs (the Bayesian
    bootstrap, Rubin 1981) and of two imagined ones, which lie as far from the ratio as the farthest
    pair, one on either side. So it has a width where few pairs differ: of 100 pairs of which each
    differs with a probability of 0.02 to 0.3 it holds the truth in 93 to 97 of 100 cases.

    Args:
        above: (n,) costs of at least 0, n at least 1, of which the ratio is.
        below: (n,) those of the same samples that it is to, not all 0.
    """
    value = above.mean() / below.mean()
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


def ratio_text(value: float, interval: Interval) -> str:
    """A ratio with its interval."""
    return f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
