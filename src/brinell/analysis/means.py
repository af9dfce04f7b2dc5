"""Means with intervals, also of differences between two methods on the same samples. "No data" is None, never 0.

Samples that belong together, such as frames of one video, are drawn together: their number is not the number of independent
observations.
"""

from typing import NamedTuple

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval
from brinell.core.record import Array

DRAWS = 4000
"""Bootstrap samples, and sign flips of a paired test."""


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
