"""Ranks with ties, Spearman's correlation, its interval and its permutation test."""

import itertools
import math
from collections.abc import Sequence

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


def spearman_test(a: Sequence[float], b: Sequence[float], rng: np.random.Generator) -> float | None:
    """Two-sided p-value of a Spearman correlation: the share of orders that are at least as far from 0; None without a value.

    Every order of `b` is tried up to `EXACT` pairs; of more, `DRAWS` random ones, the given one counted with them.
    """
    if spearman(a, b) is None:
        return None
    if len(a) <= EXACT:
        orders = np.array(list(itertools.permutations(range(len(b)))))
    else:
        orders = rng.permuted(np.tile(np.arange(len(b)), (DRAWS + 1, 1)), axis=1)
        orders[0] = np.arange(len(b))
    x, y = (ranks - ranks.mean() for ranks in (ranked(np.asarray(side, dtype=np.float64)) for side in (a, b)))
    return float((np.abs((y[orders] * x).sum(1)) >= abs(float(x @ y)) - 1e-9).mean())
