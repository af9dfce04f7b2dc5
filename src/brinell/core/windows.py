"""Windows into a grid of values: their sides, the places they cover, and the bump that fills them.

Pure functions of shapes, for any number of axes: segments of a signal, rectangles of an image, blocks of a video. A grid is the
shape of one channel; places are counted in it as if it were flat, the last axis running fastest.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Sides = tuple[int, ...]


def sides(grid: Sequence[int], fraction: float, least: int = 1) -> Sides:
    """Side lengths of a window that covers `fraction` of the grid and is as near to a cube as the grid allows.

    On a square image this is the integer nearest to sqrt(fraction * width**2), for both sides. Where an axis is shorter than
    that, it is covered whole and the others make up for it. No side is below `least` unless its axis is.
    """
    volume, found = fraction * math.prod(grid), [0] * len(grid)
    for rank, axis in enumerate(sorted(range(len(grid)), key=lambda axis: grid[axis])):
        edge = min(grid[axis], volume ** (1 / (len(grid) - rank)))
        volume /= edge
        found[axis] = min(grid[axis], max(least, round(edge)))
    return tuple(found)


def strides(grid: Sequence[int]) -> Sides:
    """How far apart neighbours along each axis lie in the flat grid."""
    return tuple(math.prod(grid[axis + 1 :]) for axis in range(len(grid)))


def offsets(grid: Sequence[int], window: Sequence[int]) -> Tensor:
    """(volume,) int64: places of a window that starts at place 0 of the grid."""
    flat = torch.zeros(1, dtype=torch.int64)
    for side, stride in zip(window, strides(grid), strict=True):
        flat = (flat[:, None] + stride * torch.arange(side)).flatten()
    return flat


def starts(grid: Sequence[int], window: Sequence[int]) -> Sides:
    """Number of places along each axis at which a window can start and stay inside."""
    return tuple(size - side + 1 for size, side in zip(grid, window, strict=True))


def bump(window: Sequence[int]) -> Tensor:
    """(*window): a hill of nested boxes around the middle, whose k-th box from the middle adds 1 / k**2.

    Andriushchenko et al. 2020, eq. 2: at Chebyshev distance d from place floor(side / 2) of each axis it is
    sum_(k=0)^(n-d) 1 / (n + 1 - k)**2 with n = floor(longest side / 2).
    """
    distance = torch.zeros(*window, dtype=torch.int64)
    for axis, side in enumerate(window):
        away = (torch.arange(side) - side // 2).abs()
        distance = torch.maximum(distance, away.reshape(-1, *[1] * (len(window) - axis - 1)))
    steps = [1 / (j + 1) ** 2 for j in range(max(window) // 2 + 1)]
    return torch.tensor([math.fsum(steps[d:]) for d in range(len(steps))])[distance]


def opposite_bumps(window: Sequence[int]) -> Tensor:
    """(orientations, volume): a hill beside a hole, split along each axis that has two values at least; Euclidean length 1.

    Section 3.2 after eq. 2 of the same paper, where the window is a square and there are two orientations.
    """
    shapes = []
    for axis, side in enumerate(window):
        if side > 1:
            halves = [(*window[:axis], half, *window[axis + 1 :]) for half in (side // 2, side - side // 2)]
            shapes.append(torch.cat([bump(halves[0]), -bump(halves[1])], dim=axis).flatten())
    stacked = torch.stack(shapes) if shapes else bump(window).reshape(1, -1)
    return stacked / torch.linalg.vector_norm(stacked, dim=1, keepdim=True)


def tiles(grid: Sequence[int], count: int) -> tuple[Sides, Tensor, Tensor, Tensor]:
    """A tiling of the middle of the grid with `count` equal tiles along each axis, fewer where an axis is shorter.

    Returns:
        The sides of a tile; (places,) int64 places of the grid that are covered; the tile that covers each of them, counted
        flat; and its offset within that tile, counted flat.
    """
    side = tuple(max(1, size // count) for size in grid)
    number = tuple(min(count, size) for size in grid)
    place = torch.zeros(1, dtype=torch.int64)
    tile, inside = place, place
    for axis in range(len(grid)):
        along = torch.arange(side[axis] * number[axis])
        margin = (grid[axis] - len(along)) // 2
        place = (place[:, None] * grid[axis] + margin + along).flatten()
        tile = (tile[:, None] * number[axis] + along // side[axis]).flatten()
        inside = (inside[:, None] * side[axis] + along % side[axis]).flatten()
    return side, place, tile, inside
