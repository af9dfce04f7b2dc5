"""Helpers of the synthetic corruptions: the grid of tiles, outlines of shapes, and small drawn pictures.

Li, Klein, Brendel, Geirhos & Zimmermann 2025, LAION-C: an out-of-distribution benchmark for web-scale vision models (arXiv
2506.16950): web-scale training sets contain the kinds of ImageNet-C, so six artificial kinds take their place. Each file here
follows the paper's description of one kind.

Deviations of all:
- Parameters are calibrated as those of the other distortions are (docs/reference/distortions.md), not the paper's, so accuracies
  do not compare with the paper's. Severity 3 of one kind is as strong as severity 3 of another.
- A distortion sees one input, so foreign pictures (tiles of the mosaic, stickers) are drawn and not taken from other photographs.
- Nothing is rounded to 8 bits.
"""

import math

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scaled

CORNERS = (3, 4, 5, 0)
"""Outlines of shapes by their number: a triangle, a square, a star with five points, a disc."""
INNER = 0.4
"""Distance of the notches of a star from its middle, where its points are at 1."""


class Synthetic(Scaled):
    """An artificial corruption of images (n, channels, height, width) in [0, 1]."""

    domains = frozenset({"image"})
    suite = "synthetic"


def cells(length: int, side: float, device: torch.device) -> tuple[Tensor, int]:
    """(length,) int64: the cell of each place on an axis in cells of about this side, and how many cells there are."""
    count = min(length, max(1, round(length / side)))
    return torch.arange(length, device=device) * count // length, count


def cell_means(x: Tensor, index: Tensor, count: int) -> Tensor:
    """(n, C, count): the mean over the places (n or 1, H, W) that belong to each cell; 0 for a cell without any."""
    index = index.reshape(len(index), 1, -1).expand(len(x), x.shape[1], -1)
    # In float64, so that the mean of many equal values is that value.
    values = x.flatten(2).double()
    sums = torch.zeros(len(x), x.shape[1], count, dtype=values.dtype, device=x.device).scatter_add_(2, index, values)
    places = torch.zeros_like(sums).scatter_add_(2, index, torch.ones_like(values))
    return (sums / places.clamp_min(1)).to(x.dtype)


def inside(corners: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """True where points lie in shapes of area 1 about the origin; all three broadcast together.

    `corners` is a member of `CORNERS`: 3 or 4 for a regular polygon, 5 for a star, 0 for a disc.
    """
    angle, distance = torch.atan2(down, right), torch.hypot(right, down)
    limit = torch.full_like(angle + corners, math.pi**-0.5)
    for number in (3, 4, 5):
        sector = 2 * math.pi / number
        turn = (angle.remainder(sector) - sector / 2).abs()  # 0 in the middle of an edge, sector / 2 at a corner
        if number < 5:
            edge = math.cos(sector / 2) / turn.cos()
            area = number / 2 * math.sin(sector)
        else:
            # Through the corner at distance 1 and the notch at distance INNER, sector / 2 apart.
            across = sector / 2 - turn
            edge = INNER * math.sin(sector / 2) / (INNER * (sector / 2 - across).sin() + across.sin())
            area = number * INNER * math.sin(sector / 2)
        limit = torch.where(corners == number, edge / area**0.5, limit)
    return distance <= limit


def drawn(numbers: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Small pictures in [0, 1]: a disc on a ground that runs from one colour to another.

    Args:
        numbers: (..., channels, 6), uniform in (0, 1): three colours of each channel; of the first, place and size of the disc.
        right: (...): place in the picture from 0 at the left edge to 1; it broadcasts with the leading axes of `numbers`.
        down: the same from the upper edge.

    Returns:
        (..., channels).
    """
    first, last, mark = numbers[..., 0], numbers[..., 1], numbers[..., 2]
    column, row, size = (numbers[..., 0, place] for place in (3, 4, 5))
    ground = first + (last - first) * ((right + down) / 2)[..., None]
    disc = torch.hypot(right - column, down - row) <= 0.15 + 0.25 * size
    return torch.where(disc[..., None], mark, ground)


def turned(numbers: Tensor, area: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(n, H, W) twice: right and down from a random middle, along random axes, in units in which a shape of area 1 has `area`.

    `numbers` (n, 3) place and turn it; `area` (n,) is a share of the picture.
    """
    height, width = x.shape[-2:]
    unit = (area * height * width).sqrt().clamp_min(1e-6)[:, None, None]
    down = (torch.arange(height, device=x.device) + 0.5)[:, None] - numbers[:, 0, None, None] * height
    right = (torch.arange(width, device=x.device) + 0.5) - numbers[:, 1, None, None] * width
    angle = 2 * math.pi * numbers[:, 2, None, None]
    return (right * angle.cos() + down * angle.sin()) / unit, (down * angle.cos() - right * angle.sin()) / unit


def shades(rng: Streams, count: int, channels: int) -> Tensor:
    """(n, count, channels): random colours."""
    return rng.fold("shades").uniform(count, channels)
