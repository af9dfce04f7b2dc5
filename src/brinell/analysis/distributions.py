"""How far and how many queries it takes to break a sample; one that is robust counts as infinitely far."""

import math
from dataclasses import dataclass

import numpy as np

from brinell.analysis.grid import RIGHT, WRONG, Array, Grid, eps_index
from brinell.analysis.results import Distribution
from brinell.analysis.stats import quantile
from brinell.core.record import Outcome, Records

QUERIES = (50, 100, 250, 500, 1000, 2500, 5000)
"""Budgets of queries at which success is told."""
NEARLY = 1.05
"""By how much a run must exceed the last of these for its own budget to be told, too."""
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
        known = [quantile(self.values, self.robust, q) for q in (0.1, 0.5, 0.9)]
        q10, median, q90 = (None if value is None or math.isinf(value) else value for value in known)
        found = len(self.values)
        return Distribution(of=self.of, attack=self.attack, found=found, robust=self.robust, q10=q10, median=median, q90=q90)


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
        fooled = (records.outcome == Outcome.FOOLED.value) | (records.outcome == Outcome.FOOLED_BELOW.value)
        rows = np.flatnonzero((records.model == cells.model) & fooled & ~np.ma.getmaskarray(size))
        where = np.searchsorted(cells.ids, records.sample_id[rows])
        np.minimum.at(smallest, where, np.asarray(size[rows], dtype=np.float64))
    found = smallest[right & np.isfinite(smallest)]
    return Sample(of="distance", attack=None, values=found, robust=int(right.sum()) - len(found))


def queries_to_success(records: Records, cells: Grid, stage: str) -> Sample:
    """Forwards until `stage` first broke each sample that it ran on at the largest eps.

    Left out: samples wrong from the start, and those that an earlier stage had broken at that eps, on which it did not run.
    """
    position = cells.stages.index(stage)
    mine = np.flatnonzero((records.model == cells.model) & (records.attack == stage))
    at_top = mine[eps_index(cells.eps, records.eps[mine]) == len(cells.eps) - 1]
    tried = np.isin(
        records.outcome[at_top].astype(str),
        [o.value for o in (Outcome.FOOLED, Outcome.FOOLED_BELOW, Outcome.SURVIVED, Outcome.SURVIVED_ABOVE)],
    )
    ids = records.sample_id[at_top][tried]
    queries = records.queries_to_success
    known = mine[~np.ma.getmaskarray(queries)[mine]]
    # A sample's first try is the one at its largest eps; later ones start from what that one found.
    order = known[np.lexsort((-records.eps[known], records.sample_id[known]))]
    first_ids, first = np.unique(records.sample_id[order], return_index=True)
    values = np.asarray(queries[order][first], dtype=np.float64)[np.isin(first_ids, ids)]
    broken = int((cells.states[position, np.searchsorted(cells.ids, ids), -1] == WRONG).sum())
    return Sample(of="queries", attack=stage, values=values, robust=len(ids) - max(broken, len(values)))


def success_by_queries(records: Records, cells: Grid, stage: str) -> list[tuple[int, int, int]]:
    """For budgets of queries: (queries, samples broken within them, samples tried) at the largest eps.

    The budgets end at what the run spent on a sample: the most on one that is robust or, where all were broken, the most until
    a success. Nothing is known of what more queries would have done.

    Empty for a stage that used gradients, or that was not tried on every sample that was right from the start: the hard ones that
    others left say nothing about all.
    """
    mine = (records.model == cells.model) & (records.attack == stage)
    sample = queries_to_success(records, cells, stage)
    tried = len(sample.values) + sample.robust
    if records.backwards[mine].any() or tried == 0 or tried < int((cells.clean == RIGHT).sum()):
        return []
    robust = mine & np.isin(records.outcome.astype(str), [Outcome.SURVIVED.value, Outcome.SURVIVED_ABOVE.value])
    spent = int(records.forwards[robust].max(initial=0)) or int(sample.values.max(initial=0))
    budgets = [queries for queries in QUERIES if queries <= spent]
    if not budgets or spent > NEARLY * budgets[-1]:
        budgets.append(spent)
    return [(queries, int((sample.values <= queries).sum()), tried) for queries in budgets]


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
