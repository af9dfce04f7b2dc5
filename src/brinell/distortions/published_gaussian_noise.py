"""Gaussian noise as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019,
section 3).
"""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Published):
    """Normal noise of the given deviation on every value."""

    small = (0.04, 0.06, 0.08, 0.09, 0.10)
    large = (0.08, 0.12, 0.18, 0.26, 0.38)

    def distort(self, x: Tensor, deviation: float, rng: Streams) -> Tensor:
        return x + deviation * rng.normal(*x.shape[1:])
