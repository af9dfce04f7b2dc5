"""Noise: of a sensor in little light (Gaussian), of single photons (shot), of broken pixels (impulse), and speckle."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.corruptions._shared import Published

__all__ = ["GaussianNoise", "ImpulseNoise", "ShotNoise", "SpeckleNoise"]


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Published):
    """Normal noise of the given deviation on every value."""

    small = (0.04, 0.06, 0.08, 0.09, 0.10)
    large = (0.08, 0.12, 0.18, 0.26, 0.38)

    def distort(self, x: Tensor, deviation: float, rng: Streams) -> Tensor:
        """`x` with noise of this deviation."""
        return x + deviation * rng.normal(*x.shape[1:])


@dataclass(frozen=True, kw_only=True)
class ShotNoise(Published):
    """Every value is the number of photons counted, so many on average where it is 1 (Poisson)."""

    small = (500, 250, 100, 75, 50)
    large = (60, 25, 12, 5, 3)

    def distort(self, x: Tensor, photons: float, rng: Streams) -> Tensor:
        """`x` as counts of at most so many photons on average."""
        counts = []
        for key, one in zip(rng.keys.tolist(), x.cpu(), strict=True):
            generator = torch.Generator().manual_seed(key & (2**63 - 1))
            counts.append(torch.poisson(one * photons, generator=generator))
        return torch.stack(counts).to(x.device) / photons


@dataclass(frozen=True, kw_only=True)
class ImpulseNoise(Published):
    """A share of the values is 0 or 1, either as often."""

    small = (0.01, 0.02, 0.03, 0.05, 0.07)
    large = (0.03, 0.06, 0.09, 0.17, 0.27)

    def distort(self, x: Tensor, share: float, rng: Streams) -> Tensor:
        """`x` with this share of its values at an end."""
        u = rng.uniform(*x.shape[1:])
        return torch.where(u < share, (u < share / 2).to(x.dtype), x)


@dataclass(frozen=True, kw_only=True)
class SpeckleNoise(Published):
    """Normal noise whose deviation grows with the value."""

    small = (0.06, 0.1, 0.12, 0.16, 0.2)
    large = (0.15, 0.2, 0.35, 0.45, 0.6)

    def distort(self, x: Tensor, deviation: float, rng: Streams) -> Tensor:
        """`x` with noise of this deviation where it is 1."""
        return x + x * deviation * rng.normal(*x.shape[1:])
