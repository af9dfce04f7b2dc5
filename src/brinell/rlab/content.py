"""Features of a clean input, patch by patch, that mean the same for signals, images and video of any size."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.patches import PatchGrid

WINDOWS = (1.5, 3.0, 6.0)
"""Sides of the neighbourhoods that are looked at, in sides of a patch."""
TINY = 1e-30
FEATURES = 2 * len(WINDOWS) + 2
"""How many numbers describe a patch."""

_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def describe(x: Tensor, grid: PatchGrid) -> Tensor:
    """(n, *shape) inputs to (n, patches, FEATURES) float32.

    For each window around a patch the logarithm of the deviation and the mean, both in comparison with the other patches of the
    input (mean 0, deviation 1); then how far from the centre the patch lies, by the largest and the mean square coordinate.
    Offset and unit of the values make no difference, and an input that is flat has features of 0.
    """
    axes = grid.places_along
    flat = x.flatten(1)
    least, most = flat.aminmax(dim=1, keepdim=True)
    # Around its own middle, or an offset would drown the deviations in rounding.
    planes = ((flat - (least + most) / 2) / (most - least).clamp_min(TINY)).view(len(x), grid.channels, *axes)
    if len(axes) not in _POOLS:
        planes, axes = planes.flatten(2), (grid.places,)
    columns: list[Tensor] = []
    for window in WINDOWS:
        sides = [_odd(window * side, length) for side, length in zip(_sides(grid, len(axes)), axes, strict=True)]
        mean = _pool(planes, sides)
        deviation = (_pool(planes.square(), sides) - mean.square()).clamp_min(0).sqrt().mean(1)
        columns += [_of_patches((deviation + 1e-4).log(), grid), _of_patches(mean.mean(1), grid)]
    features = torch.stack(columns, 2)
    features = (features - features.mean(1, keepdim=True)) / (features.std(1, keepdim=True, correction=0) + 1e-4)
    away = (2 * grid.centres.to(x.device) - 1).square()
    position = torch.stack([away.amax(1), away.mean(1)], 1).expand(len(x), -1, -1)
    return torch.cat([features, position], 2)


def _sides(grid: PatchGrid, axes: int) -> tuple[int, ...]:
    return grid.patch if len(grid.patch) == axes else (grid.members.shape[1],)


def _odd(length_goal: float, length: int) -> int:
    """The odd side of a pooling window nearest to the wanted one, at least 1 and at most the length of the axis."""
    side = 2 * round((length_goal - 1) / 2) + 1
    return max(1, min(side, length - 1 + length % 2))


def _pool(planes: Tensor, sides: list[int]) -> Tensor:
    """Means over boxes that end at the edges, one axis after the other: the work of a whole box grows with its volume."""
    for axis, side in enumerate(sides):
        window = [side if dim == axis else 1 for dim in range(len(sides))]
        planes = _POOLS[len(sides)](planes, window, 1, [length // 2 for length in window], False, False)
    return planes


def _of_patches(values: Tensor, grid: PatchGrid) -> Tensor:
    """(n, *places) to the means (n, patches)."""
    return sums(values.flatten(1), grid) / patch_places(grid, values.device)[1].sum(1)


def sums(values: Tensor, grid: PatchGrid) -> Tensor:
    """(n, places) to the sums over each patch (n, patches)."""
    members, mask = patch_places(grid, values.device)
    return (values[:, members] * mask).sum(2)


@lru_cache(maxsize=8)
def patch_places(grid: PatchGrid, device: torch.device) -> tuple[Tensor, Tensor]:
    """The places of each patch, and which are not repeated, on a device, which waits for all that is brought there."""
    return grid.members.to(device), grid.not_repeated.to(device)


def squash(values: Tensor) -> Tensor:
    """Into (-1, 1), the small ones nearly unchanged."""
    return values / (1 + values.abs())
