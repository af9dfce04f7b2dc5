"""Impulse noise as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class ImpulseNoise(Published):
    """A share of the values is 0 or 1, either as often."""

    small = (0.01, 0.02, 0.03, 0.05, 0.07)
    large = (0.03, 0.06, 0.09, 0.17, 0.27)

    def distort(self, x: Tensor, share: float, rng: Streams) -> Tensor:
        u = rng.uniform(*x.shape[1:])
        return torch.where(u < share, (u < share / 2).to(x.dtype), x)
