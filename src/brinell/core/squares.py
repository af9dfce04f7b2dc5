"""Squares of one side in a grid of places: how large one must be, what it holds, where it lies.

For any number of axes: squares of an image, segments of a signal, cubes of a video. A square is cut
where an axis is shorter than its side. Squares of one side are numbered by their first places, the
last axis running fastest.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def by_side(eps: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each side within eps (n,), from 1 on, and the rows (m,) whose squares have it."""
    sides = eps.floor()
    for side in torch.unique(sides[sides >= 1]).tolist():
        yield int(side), (sides == side).nonzero()[:, 0]


def side(delta: Tensor) -> Tensor:
    """(n,): side of the smallest square around all changes (n, *shape); 0 where there are none."""
    changed = delta.ne(0) if delta.ndim == 2 else delta.ne(0).any(1)
    lengths = [_length(changed.movedim(axis, 1)) for axis in range(1, changed.ndim)]
    return torch.stack(lengths).amax(0).to(delta.dtype)


def _length(changed: Tensor) -> Tensor:
    """(n,): from the first to the last change along the first axis of (n, length, ...)."""
    line = changed[..., None].flatten(2).any(2)
    length = line.shape[1]
    # Counted from 1 at both ends, so that 0 means a line without a change.
    position = torch.arange(1, length + 1, device=line.device)
    last = (line * position).amax(1)
    first_from_end = (line * position.flip(0)).amax(1)
    return (last + first_from_end - length).clamp_min(0)


def over_channels(values: Tensor) -> Tensor:
    """(n, *grid): values (n, *shape) added up over the channels; a vector has none."""
    return values if values.ndim == 2 else values.sum(1)


def sums(values: Tensor, side: int) -> Tensor:
    """(n, *starts): what values (n, *grid) add up to in every square of this side."""
    for axis in range(1, values.ndim):
        # No running sum: what leaves one would leave its rounding behind.
        values = values.unfold(axis, min(side, values.shape[axis]), 1).sum(-1)
    return values


def places(numbers: Tensor, side: int, grid: Sequence[int]) -> Tensor:
    """(n, volume) int64: the places, counted flat, of the squares of these numbers (n,)."""
    flat = torch.zeros(len(numbers), 1, dtype=torch.int64, device=numbers.device)
    stride = 1
    # The last axis runs fastest, in the numbers and in the places of a square as well.
    for length in reversed(grid):
        width = min(side, length)
        starts = length - width + 1
        positions = (numbers % starts)[:, None] + torch.arange(width, device=numbers.device)
        flat = (stride * positions[:, :, None] + flat[:, None]).flatten(1)
        numbers = numbers // starts
        stride *= length
    return flat
