"""How far and how many queries it takes to break a sample; one that is robust counts as infinitely far."""

import math
from dataclasses import dataclass

import numpy as np

from brinell.analysis.curve import RIGHT, WRONG, Array, Grid
from brinell.analysis.results import Distribution
from brinell.core.record import Outcome, Records, has_broken

QUERIES = (50, 100, 250, 500, 1000, 2500, 5000)
"""Numbers of queries at which success is reported."""
NEARLY = 1.05
"""Factor by which a run must exceed the last of these before its own number of queries is reported too."""
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


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts between edges."""

    edges: Array
    """(bins + 1,) ascending."""
    counts: Array
    """(bins,) how many values lie in each bin; the last bin includes its upper edge."""


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


def success_by_queries(records: Records, cells: Grid, stage: str) -> list[tuple[int, int, int]]:
    """For budgets of queries: (queries, samples broken within them, samples tried) at the largest eps.

    The budgets end at what the run spent on a sample: the most on one that is robust or, where all were broken, the most until
    a success. Nothing is known of what more queries would have done.

    Empty for a stage that used gradients, or that was not tried on every sample that was right from the start: the hard ones that
    others left say nothing about all.
    """
    rows = (records.model == cells.model) & (records.attack == stage)
    sample = queries_to_success(records, cells, stage)
    attacked = len(sample.values) + sample.robust
    if records.backwards[rows].any() or attacked == 0 or attacked < int((cells.clean == RIGHT).sum()):
        return []
    robust = rows & (records.outcome == Outcome.SURVIVED)
    largest_cost = int(records.forwards[robust].max(initial=0)) or int(sample.values.max(initial=0))
    budgets = [queries for queries in QUERIES if queries <= largest_cost]
    if not budgets or largest_cost > NEARLY * budgets[-1]:
        budgets.append(largest_cost)
    return [(queries, int((sample.values <= queries).sum()), attacked) for queries in budgets]


def histogram(values: Array, *, bins: int = 20, top: float | None = None) -> Histogram | None:
    """Counts of finite `values` (n,) of 0 or more, in even bins; None without values.

    They reach from 0 to `top`, or to the largest value where that is more.
    """
    if not len(values):
        return None
    high = max(float(values.max()), top or 0.0)
    # float32 distances may exceed an eps by rounding; they belong into the last bin.
    edges = np.linspace(0.0, high * (1 + 1e-6) or 1.0, bins + 1)
    return Histogram(edges=edges, counts=np.histogram(values, edges)[0])


def histogram_of_counts(values: Array, *, bins: int = 20) -> Histogram | None:
    """Counts of whole numbers of 1 and more: one bin for each up to 2 x `bins`, else bins even in the logarithm.

    None without values.
    """
    if not len(values):
        return None
    high = max(1, int(values.max()))
    if high <= 2 * bins:
        edges = np.arange(high + 1) + 0.5
    else:
        # Between whole numbers, so that no bin is too narrow to hold one.
        edges = np.unique(np.rint(np.geomspace(1, high + 1, bins + 1))) - 0.5
    return Histogram(edges=edges, counts=np.histogram(values, edges)[0])


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
