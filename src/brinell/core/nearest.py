"""Nearest neighbours in Linf, L1 and L0, exact, without looking at every value of every pair.

Each search begins at the neighbour in L2, which bounds the answer from above, and leaves out whatever a lower bound shows to be
farther. Samples are the rows of one array; values lie on a grid of bytes (8-bit images) or are float32.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.pairs import Neighbours

Array = np.ndarray[Any, Any]
FEW = 24
"""So many candidates are compared in all their values at once, rather than distorted further."""
ROWS = 64
"""Rows of a block of lower bounds."""
GROUPS = 64
"""Groups of values whose sums bound L1 from below; values whose differences bound Linf."""


def nearest(
    norm: str,
    x: Array,
    labels: Array,
    reference: Array,
    known: Array,
    first: Neighbours,
    *,
    own: bool,
    on_rows: Callable[[int], None] | None = None,
) -> Neighbours:
    """The nearest neighbours of `x` among `reference`.

    Args:
        norm: linf, l1 or l0.
        x: (n, d) uint8 or float32.
        labels: (n,) int64.
        reference: (m, d) of the same type.
        known: (m,) int64, the labels of the reference.
        first: neighbours in L2 (or any), from which the search begins.
        own: whether `x` is the reference itself, and a sample no neighbour of its own.
        on_rows: called with the number of rows that are done.

    Returns:
        Distances in the units of the arrays.
    """
    order = np.argsort(known, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    z = known[order]
    search = _Search(norm, reference[order])
    found = {side: np.full(len(x), np.inf) for side in ("same", "other")}
    at = {side: np.full(len(x), -1) for side in ("same", "other")}
    for start in range(0, len(x), ROWS):
        rows = np.arange(start, min(start + ROWS, len(x)))
        search.begin(x[rows])
        for i in rows.tolist():
            low, high = np.searchsorted(z, [labels[i], labels[i] + 1]).tolist()
            itself = int(place[i]) if own else -1
            for side, guess, spans in (
                ("same", first.same_at[i], [(low, high)]),
                ("other", first.other_at[i], [(0, low), (high, len(z))]),
            ):
                guess = int(place[guess]) if guess >= 0 else -1
                found[side][i], there = search.find(i - start, guess, spans, itself)
                at[side][i] = order[there] if there >= 0 else -1
        if on_rows:
            on_rows(len(rows))
    return Neighbours(same=found["same"], same_at=at["same"], other=found["other"], other_at=at["other"])


class _Search:
    """Finds the nearest candidate of one query after another, by lower bounds for a block of queries at once.

    Linf: the largest difference in some of the values. L1: squared L2 over the range, for no value differs by more, and
    differences of sums over groups of values. L0: the values of which exactly one is the usual one (the background, say).
    """

    def __init__(self, norm: str, reference: Array) -> None:
        self.norm, values = norm, reference.shape[1]
        self.spread = _spread(values)
        self.reference = np.ascontiguousarray(reference[:, self.spread])
        self.edges = np.linspace(0, values, min(GROUPS, values) + 1).astype(np.int64)
        self.range = float(reference.max()) - float(reference.min()) or 1.0
        self.usual = _usual(self.reference) if norm == "l0" else None
        self.some = torch.from_numpy(self.reference[:, :GROUPS].astype(np.float32)) if norm == "linf" else None
        self.sums = self._sums(reference) if norm == "l1" else None
        self.points = torch.empty(0) if norm == "linf" else self._points(self.reference)
        self.square = (self.points * self.points).sum(-1)

    def _points(self, values: Array) -> Tensor:
        return torch.from_numpy((values if self.usual is None else values != self.usual).astype(np.float32))

    def _sums(self, values: Array) -> Tensor:
        return torch.from_numpy(np.add.reduceat(values.astype(np.float32, copy=False), self.edges[:-1], axis=1))

    def begin(self, queries: Array) -> None:
        """Take the next queries (b, d), and find all bounds."""
        self.queries = queries[:, self.spread]
        if self.some is not None:
            self.bound = torch.cdist(
                torch.from_numpy(self.queries[:, :GROUPS].astype(np.float32)), self.some, p=torch.inf
            ).numpy()
            return
        q = self._points(self.queries)
        square = (q * q).sum(1, keepdim=True) + self.square[None, :]
        bound = torch.addmm(square, q, self.points.T, alpha=-2)
        if self.sums is not None:
            # Rounding may not lift a bound above the distance: take off more than it can add.
            bound = bound.sub_(square, alpha=1e-5).clamp_min_(0).div_(self.range)
            sums = self._sums(queries)
            slack = 1e-5 * (sums.abs().sum(1)[:, None] + self.sums.abs().sum(1)[None, :])
            bound = torch.maximum(bound, torch.cdist(sums, self.sums, p=1.0).sub_(slack))
        self.bound = bound.numpy()

    def find(self, row: int, guess: int, spans: list[tuple[int, int]], itself: int) -> tuple[float, int]:
        """Distance and place of the nearest candidate but `itself`; infinite and -1 where there is none."""
        best = float(self.sizes(row, np.array([guess]))[0]) if guess >= 0 else np.inf
        for low, high in spans:
            bound = self.bound[row, low:high]
            likely = np.argpartition(bound, FEW)[:FEW] + low if high - low > 2 * FEW else np.arange(low, high)
            for first in (True, False):
                at = likely if first else self._nearer(row, np.flatnonzero(bound < best) + low, best)
                at = at[at != itself]
                sizes = self.sizes(row, at)
                if len(at) and sizes.min() < best:
                    best, guess = float(sizes.min()), int(at[sizes.argmin()])
        return best, guess

    def _nearer(self, row: int, at: Array, best: float) -> Array:
        """Of some candidates, those that further values do not rule out; Linf alone sees that from a few."""
        stops = [GROUPS, 3 * GROUPS, 7 * GROUPS] if self.norm == "linf" else []
        for low, high in zip(stops, stops[1:], strict=False):
            if low < len(self.spread) and len(at) > FEW:
                at = at[self.sizes(row, at, slice(low, high)) < best]
        return at

    def sizes(self, row: int, at: Array, values: slice = slice(None)) -> Array:
        """(len(at),) float64: the distances themselves, or what some of the values make of them."""
        query, rows = self.queries[row, values], self.reference[at, values]
        if self.norm == "l0":
            return np.asarray(np.count_nonzero(rows != query, axis=1), dtype=np.float64)
        if rows.dtype == np.uint8:
            gap = np.maximum(rows, query)
            gap -= np.minimum(rows, query)
            return np.asarray(gap.max(1) if self.norm == "linf" else gap.sum(1, dtype=np.int64), dtype=np.float64)
        gap = np.abs(rows - query)
        return np.asarray(gap.max(1) if self.norm == "linf" else gap.sum(1, dtype=np.float64), dtype=np.float64)


def _spread(values: int) -> Array:
    """An order of the values in which every beginning is spread evenly over all: neighbouring values say much the same."""
    return np.argsort(np.arange(values) * ((5**0.5 - 1) / 2) % 1, kind="stable")


def _usual(reference: Array) -> Array:
    """(d,) the commonest of all values in bytes; of other numbers, each value's smallest."""
    if reference.dtype == np.uint8:
        return np.full(reference.shape[1], np.bincount(reference.ravel(), minlength=256).argmax(), dtype=np.uint8)
    return np.asarray(reference.min(0))
