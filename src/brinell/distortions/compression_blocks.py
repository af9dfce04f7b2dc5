"""Compression blocks: blocks of a damaged video stand still until the next key frame.

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
        """`x` (n, C, frames, H, W) with this share (n,) of the blocks lost."""
        height, width = x.shape[3:]
        cells = [min(BLOCKS, height), min(BLOCKS, width)]
        rows = _blocks_along(height, cells[0], x.device)
        columns = _blocks_along(width, cells[1], x.device)
        starts = range(0, x.shape[2], GROUP)
        damaged = rng.uniform(len(starts), *cells) < share[:, None, None, None]

        out = x.clone()
        for index, start in enumerate(starts):
            # The mean of each block in the key frame, shown at every place of the block.
            # First of the rows (axis 2), then of the columns (axis 3).
            means = _means(_means(x[:, :, start], rows, cells[0], 2), columns, cells[1], 3)
            shown = means[:, :, rows][..., columns][:, :, None]
            mask = damaged[:, index][:, rows][:, :, columns][:, None, None]
            group = slice(start, start + GROUP)
            out[:, :, group] = torch.where(mask, shown, x[:, :, group])
        return out


def _blocks_along(side: int, count: int, device: torch.device) -> Tensor:
    """(side,) int64: the block of each place along an axis that is cut into `count` of them."""
    return (torch.arange(side, device=device) * count).div(side, rounding_mode="floor")


def _means(x: Tensor, block: Tensor, count: int, axis: int) -> Tensor:
    """Means along an axis (n, C, H, W) of the values whose `block` is the same, `count` of them."""
    shape = [count if dim == axis else side for dim, side in enumerate(x.shape)]
    sums = torch.zeros(shape, device=x.device, dtype=x.dtype).index_add_(axis, block, x)
    members = torch.bincount(block, minlength=count)
    return sums / members.reshape([-1 if dim == axis else 1 for dim in range(x.ndim)])
