"""Tests of several dependent comparisons of two models on the same samples.

Whoever looks at nine budgets looks nine times. The budgets are strongly dependent, so a correction
that takes them as separate loses power. Here the models' answers to a sample are exchanged at all
budgets together, sample by sample at random, which keeps the dependence; a difference counts if it
is larger than the largest difference over all budgets usually is (Westfall & Young 1993,
Resampling-based multiple testing, section 2.3; single step).
"""

import numpy as np

from brinell.analysis.proportions import mcnemar
from brinell.core.record import Array

EXCHANGES = 4000
"""Random exchanges; smaller p-values than one over their number are Bonferroni's."""
SEED = 0
"""Of the exchanges: the same samples always have the same p-values."""
MOST_VALUES = 2**24
"""Values of random signs that are held at a time."""


def joint_p_values(differences: Array) -> Array:
    """Two-sided p-values of paired differences, corrected for being looked at together.

    With a probability of at most 0.05 any of them is at most 0.05 where two models are equally
    good in all comparisons. One comparison alone has McNemar's exact p-value.

    Args:
        differences: (samples, comparisons) int: 1 where the first model alone is right, -1 where
            the second alone is, 0 where they agree.

    Returns:
        (comparisons,) float64.
    """
    only_first = (differences == 1).sum(0).tolist()
    only_second = (differences == -1).sum(0).tolist()
    exact = np.array([mcnemar(*pair) for pair in zip(only_first, only_second, strict=True)])
    if len(exact) < 2:
        return exact

    differing = differences[(differences != 0).any(1)].astype(np.float32)
    # A comparison without a difference has the statistic 0 under every exchange.
    scale = np.sqrt((differing != 0).sum(0).clip(1)).astype(np.float32)
    statistic = np.abs(differing.sum(0)) / scale
    largest = _largest_by_exchange(differing, scale)
    # Rounding must not make an exchange that equals the observed one look smaller.
    exceedances = (largest[:, None] >= statistic * (1 - 1e-5)).sum(0)
    by_exchange = (1 + exceedances) / (1 + EXCHANGES)

    bonferroni = exact * len(exact)
    return np.asarray(np.where(bonferroni < 1 / EXCHANGES, bonferroni, by_exchange))


def _largest_by_exchange(differing: Array, scale: Array) -> Array:
    """(EXCHANGES,) the largest statistic over all comparisons under each random exchange."""
    rng = np.random.default_rng(SEED)
    rows = max(1, MOST_VALUES // max(1, len(differing)))
    parts = []
    for first in range(0, EXCHANGES, rows):
        count = min(rows, EXCHANGES - first)
        # To exchange the models at a sample turns the signs of all its differences at once.
        signs = rng.integers(0, 2, (count, len(differing)), dtype=np.int8)
        sums = (2 * signs.astype(np.float32) - 1) @ differing
        parts.append((np.abs(sums) / scale).max(1))
    return np.concatenate(parts)
