"""Intervals and paired tests of proportions. Rates are fractions in [0, 1]; an empty group has no rate: None, never 0."""

import math

from brinell.core.intervals import CONFIDENCE, Interval, wilson


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided p-value of McNemar's exact (binomial) test on the discordant pairs.

    Args:
        only_a: samples that only A got right, 0 or more.
        only_b: samples that only B got right, 0 or more.

    Returns:
        The probability, if A and B were equally good, of a split at least as uneven; 1.0 where they never differ.

    Raises:
        ValueError: a count is negative.
    """
    if min(only_a, only_b) < 0:
        raise ValueError(f"{only_a} and {only_b} are no counts")
    n, k = only_a + only_b, min(only_a, only_b)
    if 2 * k == n:
        return 1.0
    # Sum of C(n, i) / 2^n in logarithms: the plain integers overflow a float from n = 1030 on.
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2) for i in range(k + 1)]
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))


def difference(k_a: int, n_a: int, k_b: int, n_b: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of p_a - p_b for two independent samples (Newcombe 1998, method 10).

    Returns:
        The interval within [-1, 1]; None if a sample is empty.

    Raises:
        ValueError: a count is negative or too large, or `confidence` is out of range.
    """
    a, b = wilson(k_a, n_a, confidence), wilson(k_b, n_b, confidence)
    if a is None or b is None:
        return None
    return _square_and_add(k_a / n_a, a, k_b / n_b, b, phi=0.0)


def paired_difference(both_right: int, only_a: int, only_b: int, neither: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of p_a - p_b on the same samples (Newcombe 1998, paired method 10).

    Args:
        both_right: samples that both got right.
        only_a: samples that only A got right.
        only_b: samples that only B got right.
        neither: samples that neither got right.
        confidence: between 0 and 1.

    Returns:
        The interval within [-1, 1]; None without samples.

    Raises:
        ValueError: a count is negative, or `confidence` is out of range.
    """
    if min(both_right, only_a, only_b, neither) < 0:
        raise ValueError(f"({both_right}, {only_a}, {only_b}, {neither}) are no counts")
    n = both_right + only_a + only_b + neither
    k_a, k_b = both_right + only_a, both_right + only_b
    a, b = wilson(k_a, n, confidence), wilson(k_b, n, confidence)
    if a is None or b is None:
        return None
    return _square_and_add(k_a / n, a, k_b / n, b, phi=_phi(both_right, only_a, only_b, neither))


def _phi(both_right: int, only_a: int, only_b: int, neither: int) -> float:
    """Newcombe's correlation of the pairs, in which a positive association is corrected for continuity."""
    margins = (both_right + only_a) * (only_b + neither) * (both_right + only_b) * (only_a + neither)
    if margins == 0:
        return 0.0
    n = both_right + only_a + only_b + neither
    cross: float = both_right * neither - only_a * only_b
    if cross > 0:
        cross = max(cross - n / 2, 0.0)
    return cross / math.sqrt(margins)


def _square_and_add(p_a: float, a: Interval, p_b: float, b: Interval, *, phi: float) -> Interval:
    """Newcombe's square-and-add interval for a difference of two rates with correlation phi."""

    def distance(x: float, y: float) -> float:
        """Distance of two deviations with correlation phi."""
        return math.sqrt(max(x * x - 2 * phi * x * y + y * y, 0.0))

    d = p_a - p_b
    low = d - distance(p_a - a.low, b.high - p_b)
    high = d + distance(a.high - p_a, p_b - b.low)
    return Interval(max(low, -1.0), min(high, 1.0))
