"""Stickers: small pictures stuck over the picture (LAION-C, Li et al. 2025, arXiv 2506.16950).

They hide features of the object and offer others, of things that are not there.

Deviations: strengths are calibrated on photographs and are not the paper's. The small pictures are drawn, and have a white rim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale
from brinell.distortions._synthetic import Synthetic, drawn, turned

__all__ = ["Stickers"]

STICKERS = 8
"""Stickers on each picture."""
RIM = 0.08
"""Width of the white rim, as a share of a sticker's side."""


@dataclass(frozen=True, kw_only=True)
class Stickers(Synthetic):
    """Square stickers at random places, turned by random angles."""

    scale = Scale(small=(0.011, 0.028, 0.067, 0.15, 0.29), large=(0.017, 0.043, 0.096, 0.2, 0.38))
    """Area of all stickers together, as a share of the picture, before they overlap or stick out."""

    def distort(self, x: Tensor, area: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, H, W) behind stickers of this area (n,)."""
        places, numbers = rng.fold("places").uniform(STICKERS, 3), rng.fold("numbers").uniform(STICKERS, x.shape[1], 6)
        for sticker in range(STICKERS):
            right, down = turned(places[:, sticker], area / STICKERS, x)
            depth = 0.5 - torch.maximum(right.abs(), down.abs())  # from the edge, in sides of the sticker
            picture = drawn(numbers[:, sticker, None, None], right + 0.5, down + 0.5).movedim(-1, 1)
            picture = torch.where((depth < RIM)[:, None], 1.0, picture)
            x = torch.where((depth >= 0)[:, None], picture, x)
        return x
