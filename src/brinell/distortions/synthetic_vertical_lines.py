"""Vertical lines: the picture redrawn as short curved lines, upright side by side (LAION-C, Li et al. 2025, arXiv 2506.16950).

Each piece of a line has one colour, the mean of what it covers, so colours stay and local detail goes: contours must be read
across the lines.

Deviations: strengths are calibrated on photographs and are not the paper's. The ground between the lines is black.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale
from brinell.distortions._synthetic import Synthetic, cell_means

__all__ = ["VerticalLines"]

FILLED = 0.8
"""Thickness of a line, in distances between lines."""
LENGTH = 2.0
"""Length of a piece of a line, in distances between lines."""
SWAY, WAVES = 2.0, 2.0
"""How far a line sways to either side, in distances between lines, and how often from top to bottom at most."""


@dataclass(frozen=True, kw_only=True)
class VerticalLines(Synthetic):
    """Curved upright lines in pieces of one colour."""

    scale = Scale(small=(1, 1, 1.1, 1.4, 1.9), large=(1, 1.3, 2.3, 3.2, 5.1))
    """Distance between lines, in pixels."""

    def distort(self, x: Tensor, distance: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, H, W) as lines at this distance (n,)."""
        height, width = x.shape[-2:]
        numbers, distance = rng.uniform(4)[:, :, None, None], distance[:, None, None]
        down = (torch.arange(height, device=x.device) + 0.5)[:, None] / height
        right = torch.arange(width, device=x.device) + 0.5
        sway = SWAY * torch.sin(2 * math.pi * (numbers[:, 0] + (0.5 + (WAVES - 0.5) * numbers[:, 1]) * down))
        position = right / distance + sway + numbers[:, 2]
        line_number = position.floor()
        # Neighbours are cut at different heights.
        piece = (down * height / (distance * LENGTH) + 0.618 * line_number + numbers[:, 3]).floor()
        line, piece = line_number - line_number.amin((1, 2), keepdim=True), piece - piece.amin((1, 2), keepdim=True)
        index = (line * (piece.amax((1, 2), keepdim=True) + 1) + piece).long()
        colour = cell_means(x, index, int(index.max()) + 1).gather(2, index.flatten(1)[:, None].expand(-1, x.shape[1], -1))
        # How much of a pixel lies in the gap that is centred on the seam between two lines.
        seam, half = (0.5 - (position - line_number - 0.5).abs()) * distance, (1 - FILLED) / 2 * distance
        dark = (torch.minimum(seam + 0.5, half) - torch.maximum(seam - 0.5, -half)).clamp_min(0)
        return colour.reshape(x.shape) * (1 - dark)[:, None]
