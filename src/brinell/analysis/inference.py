"""Grounds of what a sentence may say: corrected p-values, and orders of objects with ranks.

A sentence that names several comparisons needs p-values that are corrected for all of them (Holm
1979). The rank of an object follows from its corrected comparisons with all others (Mogstad,
Romano, Shaikh & Wilhelm 2024, Inference for ranks): with probability 0.95 all intervals hold
together.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.core.record import Array

LEVEL = 0.05
"""Significance level of every sentence, over all comparisons that it speaks of."""
LEAST_CORRELATED = 5
"""Objects from which a correlation over them is stated."""
QUANTILE = 1.959964
"""Quantile of the normal distribution of a two-sided interval of 95 %."""


def significant(p: float | None) -> bool:
    """True if a corrected p-value supports a claim."""
    return p is not None and p <= LEVEL * (1 + 1e-9)


def holm(p_values: Sequence[float] | Array) -> list[float]:
    """P-values corrected for being several (Holm 1979), in the order given.

    Each stays valid with all read together.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    stepwise = np.minimum(p[order] * np.arange(len(p), 0, -1), 1.0)
    # A p-value is never below that of a smaller one.
    adjusted[order] = np.maximum.accumulate(stepwise)
    return [float(value) for value in adjusted]


class Rank(Result):
    """A rank, 1 for the largest value, with its simultaneous interval; equal values share one."""

    value: float
    """The rank on these samples."""
    low: int
    """1 + the number of those that are shown to be ahead."""
    high: int
    """The number of all less those that are shown to be behind."""


class Order(NamedTuple):
    """Values of some objects, and which of them differ by more than chance."""

    values: Array
    """(k,) float64."""
    p: Array
    """(k, k) float64: p-value of each pair, corrected for the number of pairs; 1 on the
    diagonal."""

    def above(self, index: int) -> list[int]:
        """The objects whose value is significantly larger than that of object `index`."""
        return self._different(index, self.values > self.values[index])

    def below(self, index: int) -> list[int]:
        """The objects whose value is significantly smaller than that of object `index`."""
        return self._different(index, self.values < self.values[index])

    def _different(self, index: int, side: Array) -> list[int]:
        """The objects on one side that differ significantly from object `index`."""
        return np.flatnonzero(side & (self.p[index] <= LEVEL * (1 + 1e-9))).tolist()

    def rivals(self, index: int) -> list[int]:
        """The objects that do not differ significantly from object `index`."""
        decided = {index, *self.above(index), *self.below(index)}
        return [i for i in range(len(self.values)) if i not in decided]

    def rank(self, index: int) -> Rank:
        """Rank of an object."""
        ahead = (self.values > self.values[index]).sum()
        # Tied objects share the mean of their places.
        tied = (self.values == self.values[index]).sum()
        # Only those that are shown to be ahead, or behind, narrow the interval.
        low = 1 + len(self.above(index))
        high = len(self.values) - len(self.below(index))
        return Rank(value=float(ahead + (tied + 1) / 2), low=low, high=high)


def order(values: Sequence[float] | Array, compare: Callable[[int, int], float]) -> Order:
    """Order objects by their values (k,).

    `compare` gives the p-value of the difference of two of them.
    """
    pairs = [(i, j) for i in range(len(values)) for j in range(i)]
    p = np.ones((len(values), len(values)))
    p_values = holm([compare(i, j) for i, j in pairs])
    for (i, j), corrected in zip(pairs, p_values, strict=True):
        p[i, j] = corrected
        p[j, i] = corrected
    return Order(np.asarray(values, dtype=np.float64), p)


def compare_groups(values: Array, labels: Array, low: float, high: float) -> Order:
    """Order groups (n,) of independent values (n,) between two bounds by their means, ascending."""
    _, group, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.bincount(group, weights=values)
    squares = np.bincount(group, weights=values**2)
    return _compare_means(sums, squares, counts, low, high)


def compare_rates(successes: Array, counts: Array) -> Order:
    """Order independent proportions, (k,) successes among (k,) samples, by their rates."""
    # Of zeros and ones the sum of squares is the sum.
    return _compare_means(successes, successes, counts, low=0.0, high=1.0)


def _compare_means(sums: Array, squares: Array, counts: Array, low: float, high: float) -> Order:
    """Order means of independent samples by sums of values and of squares (k,).

    Each mean is taken with two further samples, one at each bound (Agresti & Caffo 2000, Simple and
    effective confidence intervals for proportions): of a few samples that are all alike, a test
    would claim too much. The degrees of freedom are those of Welch (1947): the normal distribution
    has too light a tail for many pairs of small groups.
    """
    from scipy.special import stdtr

    n = counts + 2
    means = (sums + low + high) / n
    variances = ((squares + low**2 + high**2) / n - means**2) / n

    # Every pair by Welch's test.
    i, j = np.tril_indices(len(counts), -1)
    total = variances[i] + variances[j]
    first = variances[i] ** 2 / (counts[i] - 1).clip(1)
    second = variances[j] ** 2 / (counts[j] - 1).clip(1)
    dof = total**2 / (first + second)
    t = np.abs(means[i] - means[j]) / np.sqrt(total)
    p = np.ones((len(counts), len(counts)))
    p[i, j] = holm(2 * stdtr(dof, -t))
    p[j, i] = p[i, j]
    return Order(sums / counts, p)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """Spearman's rank correlation of two values of each object, and its p-value by permutations.

    All orders are taken up to seven objects, and 9,999 of them of more. None if one of both values
    is the same for all objects.
    """
    from scipy.stats import permutation_test, rankdata

    # Equal values have no order that could be correlated.
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    ranks = rankdata(second)

    def correlation(values: Array) -> float:
        return float(np.corrcoef(rankdata(values), ranks)[0, 1])

    test = permutation_test(
        (np.asarray(first, dtype=np.float64),),
        correlation,
        permutation_type="pairings",
        # A fixed generator: the same values have the same p-value.
        rng=np.random.default_rng(0),
    )
    return float(test.statistic), float(test.pvalue)


class Correlation(Result):
    """Spearman's rank correlation of two values of some objects."""

    n: int
    """The objects."""
    value: float | None
    """From -1 to 1; null for fewer than five objects, or if all have the same value."""
    low: float | None
    """Lower end of its 95 % interval."""
    high: float | None
    """Upper end."""


def correlate_ranks(first: Sequence[float], second: Sequence[float]) -> Correlation:
    """Spearman's rank correlation of two values of each object, with its interval.

    The interval is that of Fisher's transform with the variance of Bonett & Wright (2000, Sample
    size requirements for estimating Pearson, Kendall and Spearman correlations, Psychometrika 65).
    Deviation: a correlation of 1 or -1, whose interval would have no width, counts as the nearest
    but half a step of ranks.
    """
    from scipy.stats import rankdata

    n = len(first)
    if n < LEAST_CORRELATED or len(set(first)) < 2 or len(set(second)) < 2:
        return Correlation(n=n, value=None, low=None, high=None)
    value = float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])

    most = 1 - 6 / (n * (n * n - 1))
    inner = float(np.clip(value, -most, most))
    # Bonett and Wright's variance, which holds better for strong correlations than Fisher's 1 / (n
    # - 3).
    error = ((1 + inner**2 / 2) / (n - 3)) ** 0.5
    centre = np.arctanh(inner)
    low, high = np.tanh([centre - QUANTILE * error, centre + QUANTILE * error]).tolist()
    # Rounding may put the value itself outside of its interval.
    return Correlation(n=n, value=value, low=min(low, value), high=max(high, value))
