"""Gaussian noise: an independent normal number is added to every value, within the bounds.

Sensor and thermal noise. Hendrycks & Dietterich 2019, Benchmarking neural network robustness to
common corruptions and perturbations, section 3; their severities are not used, since they differ in
strength from distortion to distortion.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Streams
from brinell.distortions._shared import Scale, Scaled, per_sample


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Scaled):
    """Independent normal noise on every value."""

    domains = frozenset(KINDS)
    scale = Scale(small=(0.031, 0.048, 0.074, 0.12, 0.18), large=(0.045, 0.074, 0.12, 0.21, 0.37))
    """Standard deviation, as a share of the range."""

    def distort(self, x: Tensor, deviation: Tensor, rng: Streams) -> Tensor:
        # The severities of a draw share their noise.
        keys, index = torch.unique(rng.keys, return_inverse=True)
        noise = Streams(keys).normal(*x.shape[1:])[index]
        return (x + per_sample(deviation, x) * noise).clamp(0, 1)
