"""Ranks with ties, Spearman's correlation, Kendall's W, and what chance makes of both.

How large would a figure be by chance if all classes were alike? Samples are assigned to classes at random (`shuffled`), each
with the outcomes of all models, so that samples that are hard for every model do not make a class look hard.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval, deviations
from brinell.core.record import Array

DRAWS = 2000
"""Random orders behind a p-value."""
EXACT = 8
"""Up to so many pairs, every order is tried; of more, `DRAWS` of them."""


def ranked(values: Array) -> Array:
    """(..., n) float64: ranks along the last axis, 1 for the smallest; of equal values each has the mean of their ranks."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1])
    ranks = np.empty_like(flat)
    for row, into in zip(flat, ranks, strict=True):
        order = np.sort(row)
        into[:] = (np.searchsorted(order, row, "left") + np.searchsorted(order, row, "right") + 1) / 2
    return ranks.reshape(values.shape)


def spearman(a: Sequence[float] | Array, b: Sequence[float] | Array) -> float | None:
    """Spearman's rank correlation, ties by their mean rank; None for fewer than two pairs or where one side is all equal."""
    if len(a) < 2:
        return None
    x, y = (ranks - ranks.mean() for ranks in (ranked(np.asarray(side, dtype=np.float64)) for side in (a, b)))
    size = math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size else None


def spearman_interval(rho: float, n: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of a Spearman correlation over n pairs (Bonett & Wright 2000, Sample size requirements, equation 4).

    Fisher's transform with the variance (1 + rho^2 / 2) / (n - 3); None for fewer than four pairs, and where every pair is in
    order, where the transform has no value: with so few pairs that says nothing of how near to 1 the truth is.
    """
    if n < 4:
        return None
    if abs(rho) >= 1 - 1e-12:
        # The widest that is known: what a correlation of one swap of neighbours, the nearest that can be seen, would have.
        nearest = 1 - 12 / (n**3 - n) if n > 2 else 0.0
        interval = spearman_interval(nearest, n, confidence)
        assert interval is not None
        return Interval(interval.low, 1.0) if rho > 0 else Interval(-1.0, -interval.low)
    half = deviations(confidence) * math.sqrt((1 + rho * rho / 2) / (n - 3))
    return Interval(math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half))


class RankTest(NamedTuple):
    """A permutation test of a rank correlation."""

    p: float
    """Two-sided p-value: the share of all orders whose correlation is at least as far from 0."""
    smallest: float
    """The smallest p-value that any order of these values has: above the level, the test cannot tell anything."""


def spearman_test(a: Sequence[float], b: Sequence[float], rng: np.random.Generator) -> RankTest | None:
    """Test a Spearman correlation; None where it has no value.

    Every order of `b` is tried up to `EXACT` pairs; of more, `DRAWS` random ones, the given one counted with them.
    """
    observed = spearman(a, b)
    if observed is None:
        return None
    if len(a) <= EXACT:
        orders = _all_orders(len(b))
    else:
        orders = rng.permuted(np.tile(np.arange(len(b)), (DRAWS + 1, 1)), axis=1)
        orders[0] = np.arange(len(b))
    x, y = ranked(np.asarray(a, dtype=np.float64)), ranked(np.asarray(b, dtype=np.float64))
    x, y = x - x.mean(), y - y.mean()
    sums = np.abs((y[orders] * x).sum(1))
    largest = max(float(np.sort(x) @ np.sort(y)), -float(np.sort(x) @ np.sort(y)[::-1]))
    p, smallest = (float((sums >= limit - 1e-9).mean()) for limit in (abs(float(x @ y)), largest))
    return RankTest(p, max(smallest, 1 / len(orders)))


@functools.cache
def _all_orders(n: int) -> Array:
    """(n!, n) int64: every order of n values."""
    return np.array(list(itertools.permutations(range(n))))


def kendall_w(scores: Array) -> Array:
    """Kendall's coefficient of concordance with the correction for ties (Kendall & Gibbons 1990, chapter 6).

    Args:
        scores: (..., raters, objects): what each rater says of each object.

    Returns:
        (...): 1 where all raters have one order, 0 where none shows through; NaN with one object, or where no rater tells any two
        objects apart.
    """
    ranks = ranked(scores)
    raters, objects = ranks.shape[-2:]
    spread = ((ranks.sum(-2) - raters * (objects + 1) / 2) ** 2).sum(-1)
    # Of a rater with ties, the variance of its ranks is smaller by exactly the correction: sum t^3 - t over its groups of ties.
    most = raters * ((ranks - (objects + 1) / 2) ** 2).sum((-1, -2))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(spread / most, dtype=np.float64)


def shuffled(values: Array, labels: Array, rng: np.random.Generator, draws: int = DRAWS) -> Array:
    """Means per class after samples are assigned to classes at random.

    Args:
        values: (models, samples): what is averaged.
        labels: (samples,): the class of each.
        rng: where the orders come from.
        draws: how many.

    Returns:
        (draws, models, classes), the classes that occur ascending.
    """
    counts = np.unique(labels, return_counts=True)[1]
    ends = np.cumsum(counts)
    means = np.empty((draws, len(values), len(counts)))
    for draw in range(draws):
        sums = np.add.reduceat(values[:, rng.permutation(values.shape[1])].astype(np.float64), [0, *ends[:-1]], axis=1)
        means[draw] = sums / counts
    return means


def chance(observed: float, draws: Array) -> float:
    """P-value: the share of the draws that are at least as large as the observed value, which counts as a draw itself."""
    finite = draws[np.isfinite(draws)]
    return float((1 + (finite >= observed - 1e-12).sum()) / (1 + len(finite)))
