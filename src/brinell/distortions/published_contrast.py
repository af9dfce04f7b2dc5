"""Contrast as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class Contrast(Published):
    """The distance of each value from the mean of its channel, times so much."""

    versions = 1
    small = (0.75, 0.5, 0.4, 0.3, 0.15)
    large = (0.4, 0.3, 0.2, 0.1, 0.05)

    def distort(self, x: Tensor, share: float, rng: Streams) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        return (x - mean) * share + mean
