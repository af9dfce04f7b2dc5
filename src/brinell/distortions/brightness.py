"""Brightness: the light is turned up, or down. In a signal the baseline shifts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, per_sample


@dataclass(frozen=True, kw_only=True)
class Brightness(Scaled):
    """The same is added to every value in the first version, and taken from it in the second."""

    domains = frozenset({"image", "video", "signal"})
    versions = 2
    scale = Scale(small=(0.21, 0.3, 0.39, 0.49, 0.58), large=(0.27, 0.37, 0.46, 0.57, 0.67))
    """Increase of brightness, as a share of the range."""
    darker = Scale(small=(0.14, 0.19, 0.26, 0.34, 0.42), large=(0.18, 0.24, 0.3, 0.39, 0.49))
    """Decrease of brightness, as a share of the range."""

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1], brighter in even draws and darker in odd ones."""
        shift = torch.where(draw % 2 == 0, self.scale(severity, x), -self.darker(severity, x))
        return self.distort(x, shift, rng)

    def distort(self, x: Tensor, shift: Tensor, rng: Streams) -> Tensor:
        return (x + per_sample(shift, x)).clamp(0, 1)
