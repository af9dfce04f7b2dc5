"""Contrast: haze, a weak signal, a gain set too low."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, opaque, per_sample


@dataclass(frozen=True, kw_only=True)
class Contrast(Scaled):
    """Every value moves towards the mean of its channel."""

    domains = frozenset({"image", "video", "signal"})
    versions = 1
    scale = Scale(small=(0.28, 0.38, 0.49, 0.61, 0.73), large=(0.3, 0.4, 0.52, 0.64, 0.76))
    """Share of the contrast that is lost."""

    def distort(self, x: Tensor, loss: Tensor, rng: Streams) -> Tensor:
        mean = x.mean(tuple(range(2, x.ndim)), keepdim=True)
        return opaque(mean, per_sample(loss, x), x).clamp(0, 1)
