"""Gain: the amplifier stands too high or too low.

Every value moves away from, or towards, the median of its channel, which is its baseline.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, per_sample


@dataclass(frozen=True, kw_only=True)
class Gain(Scaled):
    """Deflections are too large in the first version and too small in the second."""

    domains = frozenset({"signal"})
    versions = 2
    scale = Scale.constant(1.7, 2.1, 2.8, 4.1, 6.7)
    """Factor of the first version."""
    weaker = Scale.constant(0.52, 0.35, 0.15, 0.07, 0.0)
    """Factor of the second."""

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1], larger deflections in even draws and smaller ones in odd ones."""
        factor = torch.where(draw % 2 == 0, self.scale(severity, x), self.weaker(severity, x))
        return self.distort(x, factor, rng)

    def distort(self, x: Tensor, factor: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, length) with deflections times this factor (n,)."""
        baseline = x.median(-1, keepdim=True).values
        return (baseline + per_sample(factor, x) * (x - baseline)).clamp(0, 1)
