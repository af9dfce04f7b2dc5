"""Brightness as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class Brightness(Published):
    """The value of each pixel (its largest channel) raised by so much, hue and saturation kept."""

    versions = 1
    small = (0.05, 0.1, 0.15, 0.2, 0.3)
    large = (0.1, 0.2, 0.3, 0.4, 0.5)

    def distort(self, x: Tensor, increase: float, rng: Streams) -> Tensor:
        value = x.amax(1, keepdim=True)
        raised = (value + increase).clamp(0, 1)
        return torch.where(value > 0, x * raised / value.clamp_min(1e-12), raised)
