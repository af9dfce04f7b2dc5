"""Luminance checkerboard: fields darker and brighter in turn (LAION-C, Li et al. 2025, arXiv 2506.16950).

A model must adapt to the light of each field, as eyes do.

Deviations: strengths are calibrated on photographs and are not the paper's. Where the board begins is
random, and so is the strength of each field, from half to all of it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale
from brinell.distortions._synthetic import Synthetic

__all__ = ["LuminanceCheckerboard"]

FIELDS = 5
"""Fields along the shorter side."""


@dataclass(frozen=True, kw_only=True)
class LuminanceCheckerboard(Synthetic):
    """Fields of a checkerboard, moved towards black and white in turn."""

    scale = Scale(small=(0.075, 0.11, 0.17, 0.24, 0.35), large=(0.076, 0.12, 0.18, 0.28, 0.42))
    """Share of the way to black or white that a field moves at most."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, H, W) under a board of this strength (n,)."""
        side = max(1.0, min(x.shape[-2:]) / FIELDS)
        start = rng.fold("start").uniform(2) * 2  # a board repeats after two fields
        row, column = (
            (torch.arange(length, device=x.device) / side + start[:, axis, None]).floor().long()
            for axis, length in enumerate(x.shape[-2:])
        )
        rows, columns = (int(-(-length // side)) + 3 for length in x.shape[-2:])
        strengths = rng.fold("strengths").uniform(rows * columns)
        index = (row[:, :, None] * columns + column[:, None, :]).flatten(1)
        strength = (share[:, None] * (0.5 + 0.5 * strengths.gather(1, index))).reshape(len(x), 1, *x.shape[-2:])
        bright = ((row[:, :, None] + column[:, None, :]) % 2 == 0)[:, None].to(x.dtype)
        return x + strength * (bright - x)
