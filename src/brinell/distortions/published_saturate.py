"""Saturate as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class Saturate(Published):
    """The saturation of each pixel times one number plus another, hue and value kept.

    What is grey counts as red.
    """

    versions = 1
    small = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))
    large = ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))
    rising = False
    """Severities 1 and 2 take colour away, 3 to 5 add it."""

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """`x` (n, 3, H, W), with the saturation times one parameter plus the other."""
        # Only colours of three channels have a saturation.
        if x.shape[1] != 3:
            return x.clone()
        value = x.amax(1, keepdim=True)
        least = x.amin(1, keepdim=True)
        # Value and saturation of HSV; a changed saturation moves all channels towards the value.
        saturation = (value - least) / value.clamp_min(1e-12)
        target = (saturation * parameters[0] + parameters[1]).clamp(0, 1)
        coloured = value - (value - x) * target / saturation.clamp_min(1e-12)
        # A grey pixel has hue 0 in HSV, which is red: saturation takes green and blue from it.
        red = torch.tensor((0.0, 1.0, 1.0), device=x.device).reshape(1, 3, 1, 1)
        return torch.where(saturation > 0, coloured, value * (1 - target * red))
