"""Attacks that try every sample by themselves (`alone=true`): success, distances and queries of
each, whatever the others found.
"""

from collections.abc import Sequence

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.core.intervals import wilson
from brinell.core.record import Array

QUERIES = (10, 100, 1000)
"""Numbers of queries within which success is stated."""
STEPS = (1, 2, 5)
"""Points of the curve of success over queries, in each power of ten."""


class QueryShare(Result):
    """Success within a number of queries."""

    queries: int
    k: int
    """Samples broken within so many queries."""
    n: int
    """Samples that the attack tried: the correctly classified ones."""
    value: float
    """`k` / `n`."""
    low: float
    """Lower end of the 95 % Wilson interval."""
    high: float
    """Upper end."""


class SeparateAttack(Result):
    """Figures of one attack by itself at the largest eps, on the samples that it tried."""

    n: int
    """Correctly classified samples that it tried."""
    success: list[QueryShare]
    """Success over queries, ascending; the last one is all that it found."""
    mean_distance: float | None
    """Mean distance of the closest inputs found, in the norm of the run; null for none."""
    median_distance: float | None
    largest_distance: float | None
    mean_queries: float
    """Mean forward evaluations until the first success; a failure counts with all that were
    spent on it."""
    median_queries: float
    """The median, likewise."""


def separate_attack(
    queries: Array, evaluations: Array, distance: Array, is_broken: Array
) -> SeparateAttack | None:
    """Figures of an attack by itself.

    Args:
        queries: (n,) forward evaluations until the first success; what stands for a failure plays
            no part.
        evaluations: (n,) forward evaluations of each sample.
        distance: (n,) distance of the closest input found.
        is_broken: (n,) bool: true where the attack succeeded.

    Returns:
        None if it tried no sample.
    """
    n = len(queries)
    if not n:
        return None

    successes = np.sort(queries[is_broken])
    limit = int(max(evaluations.max(initial=1), successes.max(initial=1)))
    # A failure costs all evaluations that it took; successes end at their first one.
    counted = np.where(is_broken, queries, evaluations)
    sizes = distance[is_broken & np.isfinite(distance)]

    return SeparateAttack(
        n=n,
        success=[
            _share(int(most), int(np.searchsorted(successes, most, side="right")), n)
            for most in _points(limit)
        ],
        mean_distance=float(sizes.mean()) if len(sizes) else None,
        median_distance=float(np.median(sizes)) if len(sizes) else None,
        largest_distance=float(sizes.max()) if len(sizes) else None,
        mean_queries=float(counted.mean()),
        median_queries=float(np.median(counted)),
    )


def share_within(success: Sequence[QueryShare], queries: int) -> QueryShare | None:
    """Success within so many queries; None if the attack never spent as many."""
    return next((entry for entry in success if entry.queries == queries), None)


def _points(limit: int) -> list[int]:
    """1, 2, 5, 10 and so on below the largest number of queries, and that number."""
    decades = range(len(str(limit)))
    return [*(p for d in decades for step in STEPS if (p := step * 10**d) < limit), limit]


def _share(queries: int, k: int, n: int) -> QueryShare:
    """The share of samples that succeed within so many queries, with its interval."""
    low, high = wilson(k, n) or (0.0, 1.0)
    return QueryShare(queries=queries, k=k, n=n, value=k / n, low=low, high=high)
