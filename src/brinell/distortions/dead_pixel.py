"""Dead pixels: places of a sensor that always read the same.

Lost samples of a signal, missing features of a vector.

A dead pixel is dead in all channels, and in every frame of a video.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Streams
from brinell.core.settings import Portion
from brinell.distortions._shared import Scale, Scaled, frame, per_sample


@dataclass(frozen=True, kw_only=True)
class DeadPixel(Scaled):
    """Random places lose what they hold."""

    value: Portion = 0.0
    """Value of a dead pixel, from 0 (the lower bound) to 1 (the upper bound)."""

    domains = frozenset(KINDS)
    scale = Scale(small=(0.008, 0.017, 0.035, 0.075, 0.16), large=(0.014, 0.035, 0.093, 0.24, 0.47))
    """Share of the places that are dead."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, ..., *frame) with this share (n,) of the places of a frame dead."""
        sides = frame(x)
        places = rng.uniform(*[1] * (x.ndim - 1 - len(sides)), *sides)
        return torch.where(places < per_sample(share, x), self.value, x)
