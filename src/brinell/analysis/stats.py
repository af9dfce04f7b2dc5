"""Statistics: intervals and paired tests of proportions and of means, and quantiles in which a failure is infinitely far.

All rates are fractions in [0, 1]. "No data" is None everywhere, never 0: an empty group has no rate. Of means, samples
that belong together, such as frames of one video, are drawn together: their number is not that of independent observations.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval, wilson
from brinell.core.record import Array

DRAWS = 4000
"""Bootstrap samples, and sign flips of a paired test."""


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
    """Interval of p_a - p_b for two independent samples (Newcombe 1998, his method 10).

    Returns:
        The interval within [-1, 1]; None where either sample is empty.

    Raises:
        ValueError: a count is no count, or `confidence` is out of range.
    """
    a, b = wilson(k_a, n_a, confidence), wilson(k_b, n_b, confidence)
    if a is None or b is None:
        return None
    return _square_and_add(k_a / n_a, a, k_b / n_b, b, phi=0.0)


def paired_difference(both: int, only_a: int, only_b: int, neither: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of p_a - p_b on the same samples (Newcombe 1998, paired method 10).

    Args:
        both: samples that both got right.
        only_a: samples that only A got right.
        only_b: samples that only B got right.
        neither: samples that neither got right.
        confidence: between 0 and 1.

    Returns:
        The interval within [-1, 1]; None without samples.

    Raises:
        ValueError: a count is negative, or `confidence` is out of range.
    """
    if min(both, only_a, only_b, neither) < 0:
        raise ValueError(f"({both}, {only_a}, {only_b}, {neither}) are no counts")
    n = both + only_a + only_b + neither
    k_a, k_b = both + only_a, both + only_b
    a, b = wilson(k_a, n, confidence), wilson(k_b, n, confidence)
    if a is None or b is None:
        return None
    return _square_and_add(k_a / n, a, k_b / n, b, phi=_phi(both, only_a, only_b, neither))


def _phi(both: int, only_a: int, only_b: int, neither: int) -> float:
    """Newcombe's correlation of the pairs, in which a positive association is corrected for continuity."""
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    if margins == 0:
        return 0.0
    n = both + only_a + only_b + neither
    cross: float = both * neither - only_a * only_b
    if cross > 0:
        cross = max(cross - n / 2, 0.0)
    return cross / math.sqrt(margins)


def _square_and_add(p_a: float, a: Interval, p_b: float, b: Interval, *, phi: float) -> Interval:
    def distance(x: float, y: float) -> float:
        return math.sqrt(max(x * x - 2 * phi * x * y + y * y, 0.0))

    d = p_a - p_b
    low = d - distance(p_a - a.low, b.high - p_b)
    high = d + distance(a.high - p_a, p_b - b.low)
    return Interval(max(low, -1.0), min(high, 1.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for being several (Holm 1979), in the order given: each stays valid with all read together."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def quantile(found: np.ndarray[Any, Any], failures: int, q: float) -> float | None:
    """The `q` quantile of `found` together with `failures` values of infinity.

    Args:
        found: (n,) finite values of the successes, any order.
        failures: how many more had no success, 0 or more.
        q: between 0 and 1; 0.5 is the median.

    Returns:
        The smallest value that a share `q` of all does not exceed; infinity where that falls among the failures; None
        where there are neither successes nor failures.

    Raises:
        ValueError: `q` is not in [0, 1], `failures` is negative or `found` holds a value that is not finite.
    """
    if not 0 <= q <= 1 or failures < 0 or not np.isfinite(found).all():
        raise ValueError("a quantile needs q in [0, 1], failures >= 0 and finite values")
    total = len(found) + failures
    if total == 0:
        return None
    # Without the guard a product like 0.7 * 10 would round up to the next rank.
    rank = max(math.ceil(q * total - 1e-9) - 1, 0)
    return float(np.sort(found)[rank]) if rank < len(found) else math.inf


class Mean(NamedTuple):
    """A mean with its interval."""

    value: float
    interval: Interval
    n: int
    """Values that it is a mean of."""


def mean(values: Array, groups: Array | None = None, confidence: float = CONFIDENCE) -> Mean | None:
    """The mean of the values that are not NaN, with its percentile bootstrap interval (Efron 1979).

    Args:
        values: (n,) float64; NaN for no value.
        groups: (n,) which belong together and are drawn together; None for each by itself.
        confidence: of the interval, between 0 and 1.

    Returns:
        None where there is no value.
    """
    sums, counts = _by_group(values, groups)
    if not len(sums):
        return None
    drawn = np.random.default_rng(0).integers(len(sums), size=(DRAWS, len(sums)))
    found = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Mean(float(sums.sum() / counts.sum()), Interval(float(low), float(high)), int(counts.sum()))


def sign_flips(differences: Array, groups: Array | None = None) -> float | None:
    """Two-sided p-value of a mean difference of pairs, by turning the signs of whole groups at random.

    Exact up to 12 groups, where all ways are counted; otherwise over `DRAWS` ways, the observed one among them.

    Args:
        differences: (n,) float64; NaN for no pair.
        groups: (n,) as for `mean`.

    Returns:
        The probability of a mean as far from 0, if either sign were as likely; None where there is no pair.
    """
    sums, _ = _by_group(differences, groups)
    if not len(sums):
        return None
    if len(sums) <= 12:
        signs = 1 - 2 * ((np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums))) & 1)
        found = np.abs(signs @ sums)
    else:
        signs = 1 - 2 * np.random.default_rng(0).integers(2, size=(DRAWS - 1, len(sums)))
        found = np.append(np.abs(signs @ sums), abs(sums.sum()))
    return float((found >= abs(sums.sum()) * (1 - 1e-9)).mean())


def _by_group(values: Array, groups: Array | None) -> tuple[Array, Array]:
    """Sums and counts of the values of each group that has any."""
    there = ~np.isnan(values)
    of = np.arange(int(there.sum())) if groups is None else np.unique(groups[there], return_inverse=True)[1].ravel()
    counts = np.bincount(of)
    return np.bincount(of, weights=values[there]), counts
