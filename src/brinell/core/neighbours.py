"""The nearest sample of the same and of another class in a reference set: exact, in Linf, L2, L1
and L0.

The search skips whatever a lower bound shows to be farther away than the nearest candidate so far,
so most pairs of samples are never compared in all their values. Values lie on a grid of bytes
(8-bit images) or are float32.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
FEW_CANDIDATES = 24
"""This many candidates are compared in all their values at once, rather than bounded further."""
ROWS = 64
"""Rows of a block of lower bounds."""
GROUPS = 64
"""Groups of values whose sums bound L1 from below; values whose differences bound Linf."""
BLOCK = 1024
"""Rows and columns of a block of distances between all samples."""
POWERS = {"linf": float("inf"), "l2": 2.0, "l1": 1.0, "l0": 0.0}
"""Norm to the p of torch.cdist, for which 0 counts what differs."""


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The nearest sample of the same class and of another class for each sample, with its distance.

    Arrays are (n,).
    """

    same_class: Array
    """float64; infinite where the class has no other (different) sample."""
    same_at: Array
    """int64, -1 for none."""
    other_class: Array
    """float64; infinite if all samples have the same class."""
    other_at: Array
    """int64, -1 for none."""


class Reference:
    """Labelled samples among which neighbours are searched.

    They are prepared once for any number of searches.

    Args:
        values: (m, d) uint8 or float32.
        labels: (m,) int64.
    """

    def __init__(self, values: Array, labels: Array) -> None:
        self._order = np.argsort(labels, kind="stable")
        # The inverse: from a position in the reference to its place in the order of the classes.
        self._place = np.empty_like(self._order)
        self._place[self._order] = np.arange(len(labels))
        self._values = values[self._order]
        self._labels = labels[self._order]
        self._searches: dict[str, _NormSearch] = {}

    def nearest(
        self,
        norm: str,
        x: Array,
        labels: Array,
        first: Neighbours | None = None,
        itself: Array | None = None,
    ) -> Neighbours:
        """The nearest reference samples of each input, in its own class and in the others.

        Args:
            norm: linf, l2, l1 or l0.
            x: (n, d) of the same type as the reference.
            labels: (n,) int64.
            first: neighbours in any norm, from which the search begins; it is faster with them.
            itself: (n,) int64, the position in the reference of each input that is one of its
                samples and so no neighbour of its own; -1 for none.

        Returns:
            Distances in the units of the arrays.
        """
        if norm not in self._searches:
            self._searches[norm] = _NormSearch(norm, self._values)
        search = self._searches[norm]
        m = len(self._labels)
        size = {side: np.full(len(x), np.inf) for side in ("same", "other")}
        positions = {side: np.full(len(x), -1) for side in ("same", "other")}

        for row in range(len(x)):
            if row % ROWS == 0:
                search.begin(x[row : row + ROWS])
            # Samples are sorted by class, so the own class is one span and the others are two.
            low, high = np.searchsorted(self._labels, [labels[row], labels[row] + 1]).tolist()
            out = -1 if itself is None or itself[row] < 0 else int(self._place[itself[row]])
            for side, spans in (("same", [(low, high)]), ("other", [(0, low), (high, m)])):
                # The neighbour in another norm is a good first guess, which rules out most
                # candidates.
                guess = -1 if first is None else int(getattr(first, f"{side}_at")[row])
                guess = int(self._place[guess]) if guess >= 0 else -1
                size[side][row], place = search.find(row % ROWS, guess, spans, out)
                positions[side][row] = self._order[place] if place >= 0 else -1

        return Neighbours(
            same_class=size["same"],
            same_at=positions["same"],
            other_class=size["other"],
            other_at=positions["other"],
        )


class _NormSearch:
    """Finds the nearest candidate of one query after another.

    Lower bounds are computed for a block of queries at once.

    Linf: the largest difference in some of the values. L2: the distance itself, less what rounding
    can add. L1: squared L2 over the range, since no value differs by more, and differences of sums
    over groups of values. L0: the number of values of which exactly one equals the most frequent
    one (the background, say).
    """

    def __init__(self, norm: str, reference: Array) -> None:
        self.norm = norm
        values = reference.shape[1]
        # Neighbouring values are alike, and Linf is bounded by the first few: they are taken from
        # all over the input. Multiples of the golden ratio spread each prefix evenly.
        golden = np.arange(values) * ((5**0.5 - 1) / 2) % 1
        self.spread = np.arange(values) if norm == "l2" else np.argsort(golden, kind="stable")
        self.reference = reference
        if norm != "l2":
            self.reference = np.ascontiguousarray(reference[:, self.spread])

        self.edges = np.linspace(0, values, min(GROUPS, values) + 1).astype(np.int64)
        # 1 for values that are all equal, by which nothing is divided in vain.
        self.range = float(reference.max()) - float(reference.min()) or 1.0
        self.frequent = _frequent(self.reference) if norm == "l0" else None
        self.first_columns = (
            torch.from_numpy(self.reference[:, :GROUPS].astype(np.float32))
            if norm == "linf"
            else None
        )
        self.sums = self._sums(reference) if norm == "l1" else None
        self.points = torch.empty(0) if norm == "linf" else self._points(self.reference)
        self.square = (self.points * self.points).sum(-1)

    def _points(self, values: Array) -> Tensor:
        """Values relative to the most frequent ones, as float32."""
        return torch.from_numpy(
            (values if self.frequent is None else values != self.frequent).astype(
                np.float32, copy=False
            )
        )

    def _sums(self, values: Array) -> Tensor:
        """(n, groups): sums of neighbouring values."""
        return torch.from_numpy(
            np.add.reduceat(values.astype(np.float32, copy=False), self.edges[:-1], axis=1)
        )

    def begin(self, queries: Array) -> None:
        """Take the next queries (b, d), and bound their distances to all candidates from below."""
        self.queries = queries[:, self.spread]
        if self.first_columns is not None:
            self.bound = torch.cdist(
                torch.from_numpy(self.queries[:, :GROUPS].astype(np.float32)),
                self.first_columns,
                p=torch.inf,
            ).numpy()
            return

        # Squared L2 distances by a matrix product: |q|^2 + |p|^2 - 2 q p. Of L0's zeros and ones
        # they are the number of values that differ.
        q = self._points(self.queries)
        square = (q * q).sum(1, keepdim=True) + self.square[None, :]
        bound = torch.addmm(square, q, self.points.T, alpha=-2)
        if self.norm != "l0":
            # Rounding may not lift a bound above the distance: take off more than it can add.
            bound = bound.sub_(square, alpha=1e-5).clamp_min_(0)
            bound = bound.sqrt_() if self.sums is None else bound.div_(self.range)

        if self.sums is not None:
            sums = self._sums(queries)
            # Sums of float32 are off by at most so much, which must not lift a bound either.
            slack = 1e-5 * (sums.abs().sum(1)[:, None] + self.sums.abs().sum(1)[None, :])
            bound = torch.maximum(bound, torch.cdist(sums, self.sums, p=1.0).sub_(slack))
        self.bound = bound.numpy()

    def find(
        self, row: int, guess: int, spans: list[tuple[int, int]], itself: int
    ) -> tuple[float, int]:
        """Distance and place of the nearest candidate but `itself`; infinite and -1 for none."""
        best = float(self.sizes(row, np.array([guess]))[0]) if guess >= 0 else np.inf

        for low, high in spans:
            bound = self.bound[row, low:high]
            likely = (
                np.argpartition(bound, FEW_CANDIDATES)[:FEW_CANDIDATES] + low
                if high - low > 2 * FEW_CANDIDATES
                else np.arange(low, high)
            )

            # The likely ones first: the closer they are, the more of the others are ruled out.
            for first in (True, False):
                candidates = (
                    likely if first else self._nearer(row, np.flatnonzero(bound < best) + low, best)
                )
                candidates = candidates[candidates != itself]
                sizes = self.sizes(row, candidates)
                if len(candidates) and sizes.min() < best:
                    best, guess = float(sizes.min()), int(candidates[sizes.argmin()])
        return best, guess

    def _nearer(self, row: int, candidates: Array, best: float) -> Array:
        """The candidates that further values do not rule out; only Linf sees that from a few."""
        # The first GROUPS values are in the bound already; each further slice doubles in length.
        stops = [GROUPS, 3 * GROUPS, 7 * GROUPS] if self.norm == "linf" else []
        for low, high in zip(stops, stops[1:], strict=False):
            if low < len(self.spread) and len(candidates) > FEW_CANDIDATES:
                candidates = candidates[self.sizes(row, candidates, slice(low, high)) < best]
        return candidates

    def sizes(self, row: int, candidates: Array, values: slice = slice(None)) -> Array:
        """(len(candidates),) float64: distances from a query to reference samples.

        With some of the `values`, the part that these make up.
        """
        query = self.queries[row, values]
        rows = self.reference[candidates, values]
        if self.norm == "l2":
            change = torch.from_numpy(rows).float() - torch.from_numpy(query).float()
            return np.asarray(torch.linalg.vector_norm(change, dim=1, dtype=torch.float64).numpy())
        if self.norm == "l0":
            return np.asarray(np.count_nonzero(rows != query, axis=1), dtype=np.float64)

        # Bytes wrap around below 0, so the smaller is taken from the larger.
        if rows.dtype == np.uint8:
            gap = np.maximum(rows, query)
            gap -= np.minimum(rows, query)
            return np.asarray(
                gap.max(1) if self.norm == "linf" else gap.sum(1, dtype=np.int64), dtype=np.float64
            )
        gap = np.abs(rows - query)
        return np.asarray(
            gap.max(1) if self.norm == "linf" else gap.sum(1, dtype=np.float64), dtype=np.float64
        )


def _frequent(reference: Array) -> Array:
    """(d,) the most frequent of all values in bytes; of other numbers, each value's smallest."""
    if reference.dtype == np.uint8:
        return np.full(
            reference.shape[1],
            np.bincount(reference.ravel(), minlength=256).argmax(),
            dtype=np.uint8,
        )
    return np.asarray(reference.min(0))


def class_means(x: Tensor, labels: Array, classes: int, norm: str) -> Array:
    """Mean distances between classes, and within each between different samples; nothing n x n is
    kept.

    L2 distances come out of matrix products, whose float32 errors are some 1e-6 of the squared
    length; the others are computed from the differences. Returns (classes, classes) float64, NaN
    for classes without a pair.
    """
    of_class = torch.nn.functional.one_hot(torch.from_numpy(labels), classes).double()
    total = torch.zeros(classes, classes, dtype=torch.float64)

    for part, y_part in zip(torch.split(x, BLOCK), torch.split(of_class, BLOCK), strict=True):
        for block, y_block in zip(torch.split(x, BLOCK), torch.split(of_class, BLOCK), strict=True):
            size = torch.cdist(part, block, p=POWERS[norm], compute_mode="use_mm_for_euclid_dist")
            if part.data_ptr() == block.data_ptr():
                size.fill_diagonal_(0)
            total += y_part.T @ size.double() @ y_block

    # A sample is no pair with itself.
    samples = of_class.sum(0)
    pairs = samples[:, None] * samples - torch.diag(samples)
    return np.asarray((total / pairs).numpy())
