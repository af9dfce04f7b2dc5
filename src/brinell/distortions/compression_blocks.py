"""Compression blocks: data of a compressed video was lost, and blocks stand still, without detail,
until the next key frame.

A model of what a decoder shows, made without one: between two key frames a random share of the
blocks of a grid shows the mean of what the block held at the first of them, the same in all frames
up to the next. A block is an eighth of the frame each way, so that it hides as much of a small
frame as of a large one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled

BLOCKS = 8
"""Blocks along each side of a frame; as many as there are pixels where those are fewer."""
GROUP = 8
"""Frames from one key frame to the next."""


@dataclass(frozen=True, kw_only=True)
class CompressionBlocks(Scaled):
    """Blocks of a video lose their detail and stand still until the next key frame."""

    domains = frozenset({"video"})
    scale = Scale.constant(0.086, 0.17, 0.33, 0.55, 0.79)
    """Share of the blocks that are lost."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        sides = x.shape[3:]
        cells = [min(BLOCKS, side) for side in sides]
        rows, columns = (
            (torch.arange(side, device=x.device) * cell).div(side, rounding_mode="floor")
            for side, cell in zip(sides, cells, strict=True)
        )
        starts = range(0, x.shape[2], GROUP)
        damaged = rng.uniform(len(starts), *cells) < share[:, None, None, None]
        out = x.clone()
        for index, start in enumerate(starts):
            averages = _means(_means(x[:, :, start], rows, cells[0], 2), columns, cells[1], 3)
            group = slice(start, start + GROUP)
            mask = damaged[:, index][:, rows][:, :, columns][:, None, None]
            out[:, :, group] = torch.where(
                mask, averages[:, :, rows][..., columns][:, :, None], x[:, :, group]
            )
        return out


def _means(x: Tensor, block: Tensor, count: int, axis: int) -> Tensor:
    """Means along an axis (n, C, H, W) of the values whose `block` is the same, `count` of them."""
    shape = [count if dim == axis else side for dim, side in enumerate(x.shape)]
    members = torch.bincount(block, minlength=count).reshape(
        [-1 if dim == axis else 1 for dim in range(x.ndim)]
    )
    return torch.zeros(shape, device=x.device, dtype=x.dtype).index_add_(axis, block, x) / members
