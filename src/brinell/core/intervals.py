"""Intervals of proportions.

Rates are fractions in [0, 1]; an empty group has no rate and no interval.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

CONFIDENCE = 0.95
"""Confidence of every interval unless a caller says otherwise."""


class Interval(NamedTuple):
    """Lower and upper end."""

    low: float
    high: float


def deviations(confidence: float) -> float:
    """Half the width of a two-sided normal interval of this confidence, in standard deviations."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def clopper_pearson_low(k: int, n: int, alpha: float) -> float:
    """The lower end of the one-sided exact interval of `k` among `n` (Clopper & Pearson 1934).

    `alpha` is the largest probability that the end lies above the true proportion.
    """
    from scipy.special import betaincinv

    return float(betaincinv(k, n - k + 1, alpha)) if k else 0.0


def wilson(k: int, n: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's score interval of `k` / `n` (Wilson 1927), without continuity correction.

    None for `n` = 0.
    """
    return score_interval(k / n, n, deviations(confidence)) if n else None


def score_interval(p: float, n: float, z: float) -> Interval:
    """Interval of the proportion `p` of `n` samples that reaches `z` standard deviations.

    `n` may be an effective number of samples.
    """
    zz = z * z
    centre = (p + zz / (2 * n)) / (1 + zz / n)
    half = z / (1 + zz / n) * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    # At the ends the exact value is 0 or 1, which rounding would miss by an ulp.
    low = 0.0 if p == 0 else min(max(centre - half, 0.0), p)
    high = 1.0 if p == 1 else max(min(centre + half, 1.0), p)
    return Interval(low, high)
