"""Distances between all samples of a data set, reduced on the way to class means and nearest neighbours; nothing n x n is kept.

Samples are flattened and sorted by class, so that the blocks of a class lie together: for blocks of two different classes every
pair is a pair of different labels, and only the few blocks on the diagonal compare labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brinell.core.neighbours import Neighbours
from brinell.core.record import Array

BLOCK = 2048
"""Rows and columns of a block: 16 MiB of distances, of which several copies fit into any cache that matters."""
POWERS = {"linf": float("inf"), "l2": 2.0, "l1": 1.0, "l0": 0.0}
"""Norm to the p of torch.cdist, for which 0 counts what differs."""


@dataclass(frozen=True, kw_only=True)
class ClassSums:
    """Sums of distances over pairs of classes; a pair of samples within a class counts once."""

    total: Array
    """(classes, classes) float64, symmetric."""
    pairs: Array
    """(classes, classes) int64."""

    def means(self) -> Array:
        """(classes, classes) float64, NaN for classes without a pair."""
        with np.errstate(invalid="ignore"):
            return np.where(self.pairs > 0, self.total / np.maximum(self.pairs, 1), np.nan)


def pair_counts(labels: Array, classes: int) -> Array:
    """(classes, classes) int64: pairs of different samples."""
    n = np.bincount(labels, minlength=classes).astype(np.int64)
    counts = np.outer(n, n)
    np.fill_diagonal(counts, n * (n - 1) // 2)
    return np.asarray(counts)


def class_means(x: Tensor, labels: Array, classes: int, norm: str) -> Array:
    """Mean distance within and between classes, over every pair; float32 differences, each computed separately.

    Args:
        x: (n, d) float32.
        labels: (n,) int64.
        classes: number of classes.
        norm: linf, l2, l1 or l0.

    Returns:
        (classes, classes) float64, NaN for classes without a pair.
    """
    order = np.argsort(labels, kind="stable")
    x, y = x[torch.from_numpy(order)], labels[order]
    total = np.zeros((classes, classes))
    for rows, columns in _halves(len(x), 512):
        size = torch.cdist(x[rows], x[columns], p=POWERS[norm], compute_mode="donot_use_mm_for_euclid_dist")
        _add(total, size, y[rows], y[columns], diagonal=rows == columns)
    return ClassSums(total=total, pairs=pair_counts(labels, classes)).means()


def l2_statistics(x: Tensor, labels: Array, classes: int) -> tuple[ClassSums, Neighbours]:
    """Sums of L2 distances over all pairs and each sample's nearest neighbours, in little more than the matrix products.

    Squared distances come out of one product of rows that carry their squared length, so that no pass is spent on adding them.
    Its float32 errors are some 1e-6 of the squared length; distances of neighbours are computed anew from the differences.

    Args:
        x: (n, d) float32; no two equal rows of one label, or they are each other's neighbours at 0.
        labels: (n,) int64.
        classes: how many there are.
    """
    order = np.argsort(labels, kind="stable")
    y = labels[order]
    x = x[torch.from_numpy(order)]
    left_factor, right_factor = _carrying(x)
    total = np.zeros((classes, classes))
    same_class, other_class = _Nearest(len(x)), _Nearest(len(x))
    buffer = torch.empty(BLOCK, BLOCK)
    for rows, columns in _halves(len(x), BLOCK):
        squared = torch.mm(left_factor[rows], right_factor[columns].T, out=_view(buffer, rows, columns))
        _note(same_class, other_class, squared, y, rows, columns, symmetric=True)
        _add(total, squared.clamp_min_(0).sqrt_(), y[rows], y[columns], diagonal=rows == columns)
    neighbours = _neighbours(x, x, same_class, other_class, order, order)
    return ClassSums(total=total, pairs=pair_counts(labels, classes)), neighbours


def l2_to(x: Tensor, labels: Array, reference: Tensor, reference_labels: Array) -> Neighbours:
    """Each sample's nearest neighbours in L2 among those of another set.

    Args:
        x: (n, d) float32.
        labels: (n,) int64.
        reference: (m, d) float32.
        reference_labels: (m,) int64.
    """
    order, reference_order = np.argsort(labels, kind="stable"), np.argsort(reference_labels, kind="stable")
    x, reference = x[torch.from_numpy(order)], reference[torch.from_numpy(reference_order)]
    y, z = labels[order], reference_labels[reference_order]
    left_factor, right_factor = _carrying(x)[0], _carrying(reference)[1]
    same_class, other_class = _Nearest(len(x)), _Nearest(len(x))
    buffer = torch.empty(BLOCK, BLOCK)
    for rows in _blocks(len(x), BLOCK):
        for columns in _blocks(len(reference), BLOCK):
            squared = torch.mm(left_factor[rows], right_factor[columns].T, out=_view(buffer, rows, columns))
            _note(same_class, other_class, squared, y, rows, columns, symmetric=False, z=z)
    return _neighbours(x, reference, same_class, other_class, order, reference_order)


class _Nearest:
    """The smallest value seen so far for each row, and its column."""

    def __init__(self, n: int) -> None:
        self.value = torch.full((n,), torch.inf)
        self.rows = torch.full((n,), -1, dtype=torch.int64)

    def update(self, span: slice, block: Tensor, start: int) -> None:
        """Take a block (rows, columns) whose first column is number `start`."""
        least = block.amin(1)
        # The position is searched only where the value is a new best: in the k-th block that is one row in k.
        improved = (least < self.value[span]).nonzero()[:, 0]
        if len(improved):
            self.value[span][improved] = least[improved]
            self.rows[span][improved] = block[improved].argmin(1) + start


def _note(
    same_class: _Nearest,
    other_class: _Nearest,
    squared: Tensor,
    y: Array,
    rows: slice,
    columns: slice,
    *,
    symmetric: bool,
    z: Array | None = None,
) -> None:
    """Update the nearest with a block of squared distances, for its rows and, if `symmetric`, for its columns too."""
    z = y if z is None else z
    disjoint = y[rows.stop - 1] < z[columns.start] or z[columns.stop - 1] < y[rows.start]
    diagonal = symmetric and rows == columns
    sides: list[tuple[_Nearest, Tensor]]
    if disjoint:
        sides = [(other_class, squared)]
    else:
        alike = torch.from_numpy(y[rows])[:, None] == torch.from_numpy(z[columns])[None, :]
        masked = squared.masked_fill(~alike, torch.inf)
        if diagonal:
            masked.fill_diagonal_(torch.inf)
        sides = [(same_class, masked), (other_class, squared.masked_fill(alike, torch.inf))]
    for nearest, block in sides:
        nearest.update(rows, block, columns.start)
        if symmetric and not diagonal:
            nearest.update(columns, block.T, rows.start)


def _carrying(x: Tensor) -> tuple[Tensor, Tensor]:
    """(n, d + 2) rows whose products with each other are squared distances."""
    square = (x * x).sum(1, keepdim=True)
    ones = torch.ones_like(square)
    return torch.cat([-2 * x, square, ones], 1), torch.cat([x, ones, square], 1)


def _neighbours(
    x: Tensor, reference: Tensor, same_class: _Nearest, other_class: _Nearest, order: Array, reference_order: Array
) -> Neighbours:
    """In the order of the caller, with distances from the differences themselves."""
    columns: dict[str, Array] = {}
    for name, nearest in (("same", same_class), ("other", other_class)):
        nearest_index = nearest.rows.numpy()
        value = np.full(len(nearest_index), np.inf)
        for rows in _blocks(len(nearest_index), BLOCK):
            rows_with_neighbour = np.flatnonzero(nearest_index[rows] >= 0) + rows.start
            if len(rows_with_neighbour):
                gap = x[torch.from_numpy(rows_with_neighbour)] - reference[torch.from_numpy(nearest_index[rows_with_neighbour])]
                value[rows_with_neighbour] = torch.linalg.vector_norm(gap, dim=1, dtype=torch.float64).numpy()
        distances = np.empty_like(value)
        distances[order] = value
        places = np.full(len(nearest_index), -1)
        places[order] = np.where(nearest_index >= 0, reference_order[nearest_index], -1)
        columns |= {f"{name}_class": distances, f"{name}_at": places}
    return Neighbours(**columns)


def _add(total: Array, size: Tensor, rows: Array, columns: Array, *, diagonal: bool) -> None:
    """Add a block of distances to the sums of its classes; on the diagonal pairs occur twice, and samples with themselves."""
    (a, i), (b, j) = _segments(rows), _segments(columns)
    if len(i) * len(j) <= 16:
        sums = np.array([[float(size[p:q, r:s].sum()) for r, s in j] for p, q in i])
    else:
        row_sums = torch.stack([size[p:q].sum(0) for p, q in i]) if len(i) > 1 else size.sum(0, keepdim=True)
        sums = np.stack([row_sums[:, r:s].sum(1, dtype=torch.float64).numpy() for r, s in j], 1)
    if diagonal:
        # Off the diagonal of classes the block holds both (a, b) and (b, a), as full sums; within a class each pair twice.
        total[np.ix_(a, b)] += np.where(a[:, None] == b[None, :], sums / 2, sums)
        return
    grid = np.zeros_like(total)
    grid[np.ix_(a, b)] = sums
    off = grid - np.diag(np.diag(grid))
    total += off + off.T + np.diag(np.diag(grid))


def _segments(labels: Array) -> tuple[Array, list[tuple[int, int]]]:
    """Distinct labels of samples that are sorted by label, and the first and the end row of each."""
    values, start = np.unique(labels, return_index=True)
    ends = [*start[1:].tolist(), len(labels)]
    return values, list(zip(start.tolist(), ends, strict=True))


def _blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _halves(n: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Blocks that hold every pair once, and those on the diagonal."""
    for rows in _blocks(n, size):
        for columns in _blocks(n, size):
            if columns.start >= rows.start:
                yield rows, columns


def _view(buffer: Tensor, rows: slice, columns: slice) -> Tensor:
    """A part of the buffer in the shape of a block."""
    return buffer.view(-1)[: (rows.stop - rows.start) * (columns.stop - columns.start)].view(
        rows.stop - rows.start, columns.stop - columns.start
    )
