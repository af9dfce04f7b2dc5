"""How far and how many queries it takes to break a sample; one that is robust counts as infinitely far."""

import math

import numpy as np

from brinell.analysis.curve import RIGHT, WRONG, Array, Grid
from brinell.analysis.results import Distribution
from brinell.core.record import Outcome, Records, has_broken

NORMS = ("linf", "l2", "l1", "l0")
"""Distances that the records hold a column of."""


def distribution(of: str, attack: str | None, values: Array, robust: int) -> Distribution:
    """Quantiles of the finite `values` (n,) of samples that broke, and of `robust` ones that did not and count as infinite.

    Each quantile is the smallest value that its share of all does not exceed; None where that is infinite, or without samples.
    """
    ordered, total = np.sort(values), len(values) + robust
    # Without the guard a product like 0.7 * 10 would round up to the next rank.
    ranks = (max(math.ceil(q * total - 1e-9) - 1, 0) for q in (0.1, 0.5, 0.9))
    q10, median, q90 = (float(ordered[rank]) if rank < len(ordered) else None for rank in ranks)
    return Distribution(of=of, attack=attack, successes=len(values), robust=robust, q10=q10, median=median, q90=q90)


def distance_at_success(records: Records, cells: Grid, distance: str) -> Distribution:
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
    return distribution("distance", None, distances, int(right.sum()) - len(distances))


def queries_to_success(records: Records, cells: Grid, stage: str) -> Distribution:
    """Forwards until `stage` first broke each sample that it ran on at the largest eps.

    Left out: samples wrong from the start, and those that an earlier stage had broken at that eps, on which it did not run.
    """
    position = cells.stages.index(stage)
    at_top = np.isclose(np.ma.filled(records.attacked, 0), cells.eps[-1]) & (records.outcome != Outcome.FAILED)
    tried = np.flatnonzero((records.model == cells.model) & (records.attack == stage) & at_top)
    values = np.asarray(np.ma.compressed(records.queries_to_success[tried]), dtype=np.float64)
    index = np.searchsorted(cells.ids, records.sample_id[tried])
    broken = int((cells.states[position, index, -1] == WRONG).sum())
    return distribution("queries", stage, values, len(tried) - max(broken, len(values)))
