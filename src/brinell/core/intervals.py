"""Intervals of proportions. Rates are fractions in [0, 1]; an empty group has no rate and no interval."""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

CONFIDENCE = 0.95
"""Confidence of every interval unless a caller says otherwise."""


class Interval(NamedTuple):
    """Lower and upper end."""

    low: float
    high: float


def deviations(confidence: float) -> float:
    """How many standard deviations a two-sided interval of this confidence reaches.

    Raises:
        ValueError: a confidence that is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it lies between 0 and 1")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def check_counts(k: int, n: int) -> None:
    """Refuse what is no count of successes among trials.

    Raises:
        ValueError: `k` is negative or above `n`.
    """
    if n < 0 or not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no proportion")


def wilson(k: int, n: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's score interval of the proportion `k` / `n` (Wilson 1927), without continuity correction.

    Args:
        k: successes, 0 to `n`.
        n: trials, 0 or more.
        confidence: between 0 and 1.

    Returns:
        The interval within [0, 1]; None for `n` = 0, where there is no rate.

    Raises:
        ValueError: `k` or `n` is no count, or `confidence` is out of range.
    """
    check_counts(k, n)
    z = deviations(confidence)
    if n == 0:
        return None
    p, zz = k / n, z * z
    centre = (p + zz / (2 * n)) / (1 + zz / n)
    half = z / (1 + zz / n) * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    # At the ends the exact value is 0 or 1, which rounding would miss by an ulp.
    low = 0.0 if k == 0 else min(max(centre - half, 0.0), p)
    high = 1.0 if k == n else max(min(centre + half, 1.0), p)
    return Interval(low, high)


DRAWS = 4000
"""Bootstrap samples."""


def ratio(
    above: np.ndarray[Any, Any], below: np.ndarray[Any, Any], centre: Callable[..., Any] = np.mean
) -> tuple[float, Interval]:
    """The means (or what `centre` says) of pairs of values, one over the other, with the percentile bootstrap interval.

    Args:
        above: (n,) values, n at least 1, of which the ratio is.
        below: (n,) those of the same samples that it is to.
        centre: `np.mean` or `np.median`, which takes an `axis`.
    """
    drawn = np.random.default_rng(0).integers(len(above), size=(DRAWS, len(above)))
    ratios = centre(above[drawn], axis=1) / centre(below[drawn], axis=1)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(centre(above) / centre(below)), Interval(float(low), float(high))
