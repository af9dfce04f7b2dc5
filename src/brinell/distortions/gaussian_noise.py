"""Gaussian noise: every value is shifted by a normal number of its own; what leaves the bounds is cut off.

Sensor and thermal noise. Hendrycks & Dietterich 2019, Benchmarking neural network robustness to
common corruptions and perturbations, section 3; their severities are not used, since they differ in
strength from distortion to distortion.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from brinell.core.contracts import KINDS, Access, Kind, Streams
from brinell.distortions._shared import Scale, per_sample

__all__ = ["GaussianNoise"]


@dataclass(frozen=True, kw_only=True)
class GaussianNoise:
    """Independent normal noise on every value."""

    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    access: ClassVar[Access] = Access.LABELS
    scale: ClassVar[Scale] = Scale(small=(0.031, 0.048, 0.074, 0.12, 0.18), large=(0.045, 0.074, 0.12, 0.21, 0.37))
    """Standard deviation, as a share of the range."""

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """Endless."""
        return None

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1] with noise."""
        return self.distort(x, self.scale(severity, x), rng)

    def distort(self, x: Tensor, deviation: Tensor, rng: Streams) -> Tensor:
        """`x` with noise of this standard deviation (n,)."""
        return (x + per_sample(deviation, x) * rng.normal(*x.shape[1:])).clamp(0, 1)
