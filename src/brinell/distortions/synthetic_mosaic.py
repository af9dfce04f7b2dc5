"""Mosaic: every tile of the picture gives way to a small picture of about its colour (LAION-C, Li et al. 2025, arXiv 2506.16950).

It breaks edges and textures and adds content that has nothing to do with the label; what is left are the colours of tiles.

Deviations: strengths are calibrated on photographs and are not the paper's. The small pictures are
drawn, and each is given exactly the mean colour of its tile; the paper's are other photographs of a similar colour.

Limit: it is not mild on small pictures, where tiles of two pixels are the smallest.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale
from brinell.distortions._synthetic import Synthetic, cell_means, cells, drawn

__all__ = ["Mosaic"]

CONTRAST = 0.5
"""The contrast of the small pictures, as a share of full contrast, before colours near black and white lower it."""
PIXELS = 2**20
"""Pixels that are drawn at once; it bounds memory and changes no result."""


@dataclass(frozen=True, kw_only=True)
class Mosaic(Synthetic):
    """Tiles of drawn pictures, each with the mean colour of what it covers."""

    scale = Scale(small=(2, 2, 2, 2.4, 3.7), large=(1.25, 2.4, 3.7, 5.8, 11))
    """Side of a tile, in pixels."""

    def distort(self, x: Tensor, side: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, H, W) in tiles of this side (n,)."""
        out = torch.empty_like(x)
        for value in torch.unique(side).tolist():
            for rows in (side == value).nonzero()[:, 0].split(max(1, PIXELS // x[0, 0].numel())):
                out[rows] = _tiled(x[rows], value, rng.select(rows))
        return out


def _tiled(x: Tensor, side: float, rng: Streams) -> Tensor:
    """`x` in tiles of this side."""
    height, width = x.shape[-2:]
    (rows, down_count), (columns, right_count) = cells(height, side, x.device), cells(width, side, x.device)
    index = (rows[:, None] * right_count + columns)[None]
    count = down_count * right_count
    down = (torch.arange(height, device=x.device) + 0.5) * down_count / height - rows
    right = (torch.arange(width, device=x.device) + 0.5) * right_count / width - columns
    numbers = rng.uniform(count, x.shape[1], 6)[:, index[0]]
    picture = drawn(numbers, right.expand(height, width), down[:, None].expand(height, width)).movedim(-1, 1)
    mean = cell_means(x, index, count)[:, :, index[0]]
    detail = picture - cell_means(picture, index, count)[:, :, index[0]]
    reach = torch.zeros(len(x), x.shape[1], count, device=x.device)
    reach.scatter_reduce_(2, index.reshape(1, 1, -1).expand(*x.shape[:2], -1), detail.abs().flatten(2), "amax")
    room = torch.minimum(mean, 1 - mean) / reach[:, :, index[0]].clamp_min(1e-6)
    return (mean + detail * room.clamp(max=CONTRAST)).clamp(0, 1)
