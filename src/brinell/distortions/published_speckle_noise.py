"""Speckle noise as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class SpeckleNoise(Published):
    """Normal noise whose deviation grows with the value."""

    small = (0.06, 0.1, 0.12, 0.16, 0.2)
    large = (0.15, 0.2, 0.35, 0.45, 0.6)

    def distort(self, x: Tensor, deviation: float, rng: Streams) -> Tensor:
        return x + x * deviation * rng.normal(*x.shape[1:])
