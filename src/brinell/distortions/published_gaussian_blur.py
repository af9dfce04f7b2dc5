"""Gaussian blur as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, smoothed


@dataclass(frozen=True, kw_only=True)
class GaussianBlur(Published):
    """Every value becomes a Gaussian mean of those around it; the parameter is the deviation."""

    versions = 1
    small = (0.4, 0.6, 0.7, 0.8, 1)
    large = (1, 2, 3, 4, 6)

    def distort(self, x: Tensor, deviation: float, rng: Streams) -> Tensor:
        return smoothed(x, deviation)
