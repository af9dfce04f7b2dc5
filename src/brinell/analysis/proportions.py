"""Intervals and paired tests of proportions.

Rates are fractions in [0, 1]; an empty group has no rate: None, never 0.
"""

import math

from brinell.core.intervals import CONFIDENCE, Interval, clopper_pearson_low, wilson


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided p-value of McNemar's exact (binomial) test on the discordant pairs; 1.0 where A and
    B never differ.
    """
    from scipy.special import bdtr

    # `bdtr` is the binomial distribution function: at most so many of all at even odds.
    return (
        min(1.0, 2 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5)))
        if only_a != only_b
        else 1.0
    )


def exact_interval(k: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of `k` of `n`, at least one (Clopper & Pearson 1934): it holds at any
    confidence and any size.
    """
    error = (1 - confidence) / 2
    return Interval(clopper_pearson_low(k, n, error), 1 - clopper_pearson_low(n - k, n, error))


def paired_difference(
    both_right: int, only_a: int, only_b: int, neither: int, confidence: float = CONFIDENCE
) -> Interval | None:
    """Interval of p_a - p_b on the same samples, counted by who got them right (Newcombe 1998,
    paired method 10).

    None without samples.
    """
    n = both_right + only_a + only_b + neither
    k_a = both_right + only_a
    k_b = both_right + only_b
    a = wilson(k_a, n, confidence)
    b = wilson(k_b, n, confidence)
    if a is None or b is None:
        return None
    # The correlation of both outcomes narrows the interval, since most samples agree.
    phi = _phi(both_right, only_a, only_b, neither)
    p_a = k_a / n
    p_b = k_b / n

    # Newcombe's square-and-add: the distances of Wilson's ends, with their correlation.
    def distance(x: float, y: float) -> float:
        """Distance of two deviations with correlation phi."""
        return math.sqrt(max(x * x - 2 * phi * x * y + y * y, 0.0))

    low = p_a - p_b - distance(p_a - a.low, b.high - p_b)
    high = p_a - p_b + distance(a.high - p_a, p_b - b.low)
    return Interval(max(low, -1.0), min(high, 1.0))


def _phi(both_right: int, only_a: int, only_b: int, neither: int) -> float:
    """Newcombe's correlation of the pairs, in which a positive association is corrected for
    continuity.
    """
    margins = (
        (both_right + only_a) * (only_b + neither) * (both_right + only_b) * (only_a + neither)
    )
    if margins == 0:
        return 0.0
    n = both_right + only_a + only_b + neither
    cross: float = both_right * neither - only_a * only_b
    if cross > 0:
        cross = max(cross - n / 2, 0.0)
    return cross / math.sqrt(margins)
