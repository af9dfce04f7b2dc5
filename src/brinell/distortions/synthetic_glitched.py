"""Glitched: bands of the picture shifted, with stripes across and channels apart (LAION-C, Li et al. 2025, arXiv 2506.16950).

It looks like a broken transmission: the parts are there, and their order is not.

Deviations: strengths are calibrated on photographs and are not the paper's. What leaves a band on one side comes in on the other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, opaque
from brinell.distortions._synthetic import Synthetic, shades

__all__ = ["Glitched"]

BANDS = 16
"""Bands of a picture, fewer where it has fewer rows."""
SHIFT, APART = 0.25, 0.05
"""How far a band, and within it the first and the last channel from the others, move at most, as shares of the width."""
STRIPE, OPACITY = 0.25, 0.5
"""Height of the stripe across a shifted band as a share of it, and how much of the picture the stripe hides."""


@dataclass(frozen=True, kw_only=True)
class Glitched(Synthetic):
    """Bands shifted by random distances, their channels apart, each under a stripe of a random colour."""

    scale = Scale(small=(0.0625, 0.125, 0.1875, 0.3125, 0.5), large=(0.0625, 0.125, 0.1875, 0.3125, 0.5625))
    """Share of the bands that are shifted; at least one is."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, H, W) with this share (n,) of its bands shifted."""
        n, channels, height, width = x.shape
        bands = min(BANDS, height)
        row = torch.arange(height, device=x.device)
        band = row * bands // height
        first = (band * height + bands - 1) // bands  # the row with which a band begins
        numbers = rng.fold("bands").uniform(bands, 3)
        hit = numbers[..., 0].argsort(1).argsort(1) < (share * bands).round().clamp_min(1)[:, None]
        shift = torch.ceil(numbers[..., 1] * SHIFT * width) * torch.where(numbers[..., 2] < 0.5, -1, 1)
        apart = torch.linspace(-1, 1, channels, device=x.device) if channels > 1 else torch.zeros(1, device=x.device)
        shifted = shift[:, None] + (apart * max(1.0, APART * width)).round()[None, :, None]
        shifted = torch.where(hit[:, None], shifted, 0.0).long()[:, :, band]
        source = (torch.arange(width, device=x.device) - shifted[..., None]) % width
        stripe = (row - first < max(1.0, STRIPE * height / bands)).to(x.dtype) * OPACITY * hit[:, band]
        return opaque(
            shades(rng, bands, channels)[:, band].movedim(-1, 1)[..., None], stripe[:, None, :, None], x.gather(3, source)
        )
