"""The nearest sample of one's own and of another class in a reference set, exact, in L2 and Linf.

For some thousand inputs against a whole training set; nothing of the size of all pairs is kept.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
ROWS = 64
"""Inputs that are compared with the whole reference at once."""
PROBES = 64
"""Values by which most of the reference is told to be too far away in Linf."""


class Nearest(NamedTuple):
    """For each input how far the nearest reference sample of its own and of another class is, and which. Arrays are (n,)."""

    same: Array
    """float64; infinite where the reference has none."""
    same_at: Array
    """int64, -1 for none."""
    other: Array
    """float64; infinite where the reference has none."""
    other_at: Array
    """int64, -1 for none."""


def nearest(x: Tensor, labels: Tensor, reference: Tensor, known: Tensor, norm: str, itself: Tensor | None = None) -> Nearest:
    """Compare every input with every reference sample.

    Args:
        x: (n, *shape) float32.
        labels: (n,) int64.
        reference: (m, *shape) float32.
        known: (m,) int64, the labels of the reference.
        norm: l2 or linf.
        itself: (n,) int64, the place of each input in the reference, where it is one of its samples and no neighbour of its own.

    Raises:
        ValueError: another norm.
    """
    if norm not in ("l2", "linf"):
        raise ValueError(f"norm is {norm!r}; it is l2 or linf")
    flat, there = x.flatten(1), reference.flatten(1)
    probes = there.var(0, correction=0).topk(min(PROBES, there.shape[1])).indices
    length = there.square().sum(1)
    columns: list[list[Tensor]] = [[], [], [], []]
    for start in range(0, len(flat), ROWS):
        rows = slice(start, start + ROWS)
        part = flat[rows]
        if norm == "l2":  # the squared length of `part` is the same for the whole row
            bound = torch.addmm(length, part, there.T, alpha=-2)
        else:
            bound = torch.cdist(part[:, probes], there[:, probes], p=torch.inf)
        alike = labels[rows, None] == known
        out = torch.zeros_like(alike) if itself is None else itself[rows, None] == torch.arange(len(known), device=known.device)
        for number, wrong in enumerate((~alike | out, alike | out)):
            near = bound.masked_fill(wrong, torch.inf)
            value, at = _exact_l2(part, there, near) if norm == "l2" else _exact_linf(part, there, near)
            columns[2 * number].append(value)
            columns[2 * number + 1].append(at)
    return Nearest(*(torch.cat(column).numpy(force=True) if column else np.zeros(0) for column in columns))


def _exact_l2(x: Tensor, reference: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Among the first by a product that float32 rounds, the nearest by the differences themselves."""
    first = bound.topk(min(4, bound.shape[1]), largest=False)
    size = torch.linalg.vector_norm(x[:, None] - reference[first.indices], dim=2, dtype=torch.float64)
    return _least(size.masked_fill(first.values.isinf(), torch.inf), first.indices)


def _exact_linf(x: Tensor, reference: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Whatever the probes leave possible is compared in full; `bound` (rows, m) is at most the distance."""
    first = bound.topk(min(4, bound.shape[1]), largest=False)
    size = (x[:, None] - reference[first.indices]).abs().amax(2).masked_fill(first.values.isinf(), torch.inf)
    best, at = _least(size, first.indices)
    row, column = (bound < best[:, None]).nonzero(as_tuple=True)
    for start in range(0, len(row), 1 << 15):
        i, j = row[start : start + (1 << 15)], column[start : start + (1 << 15)]
        size = (x[i] - reference[j]).abs().amax(1)
        least = best.float().scatter_reduce(0, i, size, "amin")
        hit = (size == least[i]) & (least[i] < best[i])
        at[i[hit]] = j[hit]
        best = torch.minimum(best, least.double())
    return best, at


def _least(size: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    value, column = size.double().min(1)
    at = places.gather(1, column[:, None])[:, 0]
    return value, torch.where(value.isinf(), -1, at)
