"""Orders and how they agree: ranks with ties, Spearman's correlation, Kendall's W, and what resampling says of them.

Two questions are asked of classes, and each has its own resampling. How far could a figure lie from what it is on these samples?
Samples are drawn again within each class (`resampled`). What would chance make of it, were all classes alike? The samples are
dealt out to the classes anew (`shuffled`), each with what all models made of it, so that samples that are hard for every model
do not pass for a class that is.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval, deviations
from brinell.core.record import Array

DRAWS = 2000
"""Draws behind an interval or a p-value."""
EXACT = 8
"""Up to so many pairs, every order is tried; of more, `DRAWS` of them."""


def ranked(values: Array) -> Array:
    """(..., n) float64: ranks along the last axis, 1 for the smallest; of equal values each has the mean of their ranks."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1])
    found = np.empty_like(flat)
    for row, into in zip(flat, found, strict=True):
        order = np.sort(row)
        into[:] = (np.searchsorted(order, row, "left") + np.searchsorted(order, row, "right") + 1) / 2
    return found.reshape(values.shape)


def spearman(a: Sequence[float] | Array, b: Sequence[float] | Array) -> float | None:
    """Spearman's rank correlation, ties by their mean rank; None for fewer than two pairs or where one side is all equal."""
    if len(a) < 2:
        return None
    x, y = (one - one.mean() for one in (ranked(np.asarray(side, dtype=np.float64)) for side in (a, b)))
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
        near = 1 - 12 / (n**3 - n) if n > 2 else 0.0
        found = spearman_interval(near, n, confidence)
        assert found is not None
        return Interval(found.low, 1.0) if rho > 0 else Interval(-1.0, -found.low)
    half = deviations(confidence) * math.sqrt((1 + rho * rho / 2) / (n - 3))
    return Interval(math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half))


def spearman_p(a: Sequence[float], b: Sequence[float], rng: np.random.Generator) -> float | None:
    """Two-sided p-value of a Spearman correlation: the share of all orders of `b` that agree or disagree as much.

    Every order is tried up to `EXACT` pairs; of more, `DRAWS` random ones, the given one counted with them.
    """
    seen = spearman(a, b)
    if seen is None:
        return None
    if len(a) <= EXACT:
        orders = np.array(list(itertools.permutations(range(len(b)))))
    else:
        orders = np.array([np.arange(len(b)), *(rng.permutation(len(b)) for _ in range(DRAWS))])
    x, y = ranked(np.asarray(a, dtype=np.float64)), ranked(np.asarray(b, dtype=np.float64))
    x, y = x - x.mean(), y - y.mean()
    all_of_them = (y[orders] * x).sum(1) / math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((np.abs(all_of_them) >= abs(seen) - 1e-9).mean())


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


def resampled(values: Array, labels: Array, rng: np.random.Generator, draws: int = DRAWS) -> Array:
    """Means per class when samples are drawn again, with replacement, within each class.

    Args:
        values: (models, samples): what is averaged.
        labels: (samples,): the class of each.
        rng: where the draws come from.
        draws: how many.

    Returns:
        (draws, models, classes), the classes that occur ascending. A draw has the same samples for every model.
    """
    classes = np.unique(labels)
    found = np.empty((draws, len(values), len(classes)))
    for at, index in enumerate(classes):
        mine = values[:, labels == index].astype(np.float64)
        n = mine.shape[1]
        for start in range(0, draws, 256):
            count = min(256, draws - start)
            weights = rng.multinomial(n, np.full(n, 1 / n), size=count)
            found[start : start + count, :, at] = weights @ mine.T / n
    return found


def shuffled(values: Array, labels: Array, rng: np.random.Generator, draws: int = DRAWS) -> Array:
    """Means per class when the samples are dealt out to the classes anew; arguments and result as of `resampled`."""
    classes, counts = np.unique(labels, return_counts=True)
    ends = np.cumsum(counts)
    found = np.empty((draws, len(values), len(classes)))
    for draw in range(draws):
        sums = np.add.reduceat(values[:, rng.permutation(values.shape[1])].astype(np.float64), [0, *ends[:-1]], axis=1)
        found[draw] = sums / counts
    return found


def percentile_interval(draws: Array, value: float, confidence: float = CONFIDENCE) -> Interval:
    """The interval that holds this share of the draws, and the value itself where noise has moved all draws to one side."""
    known = draws[np.isfinite(draws)]
    if not len(known):
        return Interval(value, value)
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(min(float(low), value), max(float(high), value))


def chance(seen: float, draws: Array) -> float:
    """P-value: how often the draws are as large as what was seen, which counts as one of them."""
    known = draws[np.isfinite(draws)]
    return float((1 + (known >= seen - 1e-12).sum()) / (1 + len(known)))


def weighted(means: Array, labels: Array) -> Array:
    """(..., models): the mean over all samples, of means per class (..., models, classes)."""
    counts = np.unique(labels, return_counts=True)[1]
    return np.asarray((means * counts).sum(-1) / counts.sum())
