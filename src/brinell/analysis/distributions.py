"""How far and how many queries it takes to break a sample; one that is robust counts as infinitely far."""

import math
from dataclasses import dataclass

import numpy as np

from brinell.analysis.curve import RIGHT, WRONG, Array, Grid
from brinell.analysis.results import Distribution
from brinell.core.record import Outcome, Records, has_broken

NORMS = ("linf", "l2", "l1", "l0")
"""Distances that the records hold a column of."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Values of the samples that broke, and how many did not."""

    of: str
    """`distance` or `queries`."""
    attack: str | None
    """Stage, or None for all together."""
    values: Array
    """(found,) float64."""
    robust: int
    """Samples without a success, which count as infinity."""

    def summary(self) -> Distribution:
        """Quantiles, with None where they are infinite."""
        quantiles = [quantile(self.values, self.robust, q) for q in (0.1, 0.5, 0.9)]
        q10, median, q90 = (None if value is None or math.isinf(value) else value for value in quantiles)
        successes = len(self.values)
        return Distribution(
            of=self.of, attack=self.attack, successes=successes, robust=self.robust, q10=q10, median=median, q90=q90
        )


def distance_at_success(records: Records, cells: Grid, distance: str) -> Sample:
    """Smallest distance at which each initially right sample was broken, over all stages.

    Samples wrong from the start are left out: no distance was needed. For budgeted attacks this is an upper bound close to
    the smallest budget that broke the sample, not the distance to the decision boundary.
    """
    right = cells.clean == RIGHT
    smallest = np.full(len(cells.ids), np.inf)
    if distance in NORMS:
        size = getattr(records, distance)
        rows = np.flatnonzero((records.model == cells.model) & has_broken(records))
        samples = np.searchsorted(cells.ids, records.sample_id[rows])
        np.minimum.at(smallest, samples, np.asarray(size[rows], dtype=np.float64))
    distances = smallest[right & np.isfinite(smallest)]
    return Sample(of="distance", attack=None, values=distances, robust=int(right.sum()) - len(distances))


def queries_to_success(records: Records, cells: Grid, stage: str) -> Sample:
    """Forwards until `stage` first broke each sample that it ran on at the largest eps.

    Left out: samples wrong from the start, and those that an earlier stage had broken at that eps, on which it did not run.
    """
    position = cells.stages.index(stage)
    at_top = np.isclose(np.ma.filled(records.attacked, 0), cells.eps[-1]) & (records.outcome != Outcome.FAILED)
    tried = np.flatnonzero((records.model == cells.model) & (records.attack == stage) & at_top)
    values = np.asarray(np.ma.compressed(records.queries_to_success[tried]), dtype=np.float64)
    index = np.searchsorted(cells.ids, records.sample_id[tried])
    broken = int((cells.states[position, index, -1] == WRONG).sum())
    return Sample(of="queries", attack=stage, values=values, robust=len(tried) - max(broken, len(values)))


def quantile(successes: Array, failures: int, q: float) -> float | None:
    """The `q` quantile of `successes` together with `failures` values of infinity.

    Args:
        successes: (n,) finite values of the successes, any order.
        failures: how many more had no success, 0 or more.
        q: between 0 and 1; 0.5 is the median.

    Returns:
        The smallest value that a share `q` of all does not exceed; infinity where that falls among the failures; None
        where there are neither successes nor failures.

    Raises:
        ValueError: `q` is not in [0, 1], `failures` is negative or `successes` holds a value that is not finite.
    """
    if not 0 <= q <= 1 or failures < 0 or not np.isfinite(successes).all():
        raise ValueError("a quantile needs q in [0, 1], failures >= 0 and finite values")
    total = len(successes) + failures
    if total == 0:
        return None
    # Without the guard a product like 0.7 * 10 would round up to the next rank.
    rank = max(math.ceil(q * total - 1e-9) - 1, 0)
    return float(np.sort(successes)[rank]) if rank < len(successes) else math.inf
