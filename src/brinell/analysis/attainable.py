"""The claims that a study can support at all, by its numbers of samples and comparisons.

A test on few samples has a smallest p-value that it can attain (Tarone 1990, A modified Bonferroni
method for discrete data). No data can support a sentence if that value, corrected for all its
comparisons (Holm), is above the level. Every study that corrects for a family of comparisons says
so here, with the number of samples from which on it can decide.
"""

import math
from collections.abc import Callable

import numpy as np

from brinell.analysis.inference import compare_rates, significant
from brinell.analysis.means import EXACT_GROUPS

SmallestP = Callable[[int], float]
"""The smallest p-value that a single comparison of so many samples, groups or models can have."""


def shortfall(claim: str, comparisons: int, unit: str, n: int, smallest_p: SmallestP) -> str:
    """Why no data can support a claim, and the remedy; empty if some can.

    Args:
        claim: as it follows «no»: «method can be told from its controls».
        comparisons: number of comparisons for which the p-values are corrected; without one nothing
            is claimed.
        unit: what `n` counts.
        n: number of samples, groups of related samples or models.
        smallest_p: of one comparison.
    """
    needed = smallest_number(comparisons, smallest_p)
    if not comparisons or n >= needed:
        return ""
    count = "1 comparison needs" if comparisons == 1 else f"{comparisons} comparisons need"
    return f"Too few {unit} ({n}): no {claim}. {count} at least {needed}."


def smallest_number(comparisons: int, smallest_p: SmallestP) -> int:
    """The smallest number of samples with which one of `comparisons` can be significant (Holm)."""
    n = 1
    while not significant(min(1.0, max(comparisons, 1) * smallest_p(n))):
        n += 1
    return n


def pairs(objects: int) -> int:
    """Number of pairs among `objects` objects; an order needs the comparison of each pair."""
    return math.comb(objects, 2)


def smallest_mcnemar(n: int) -> float:
    """Smallest p-value of McNemar's test on `n` samples: all of them change in one direction."""
    return 2.0 ** (1 - n)


def smallest_mean(n: int) -> float:
    """Smallest p-value of a mean of `n` differences: all have one sign.

    The t test of many has no smallest value: 0.
    """
    return 2.0 ** (1 - n) if n <= EXACT_GROUPS else 0.0


def smallest_rates(n: int) -> float:
    """Of two groups of at most `n` samples: all values lie at opposite ends."""
    return float(compare_rates(np.array([0, n]), np.array([n, n])).p[0, 1])
