"""Baseline wander: the line drifts with breathing and with electrodes that move on the skin.

A sine wave below the frequencies of a heartbeat, of random frequency; each channel has a random
phase.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Sampled, Scale, per_sample

SLOW = (0.15, 0.7)
"""Frequencies of the wave, in Hz: from slow breathing to movements of the body."""


@dataclass(frozen=True, kw_only=True)
class BaselineWander(Sampled):
    """A slow wave is added to each channel."""

    scale = Scale.constant(0.059, 0.09, 0.13, 0.2, 0.3)
    """Amplitude of the wave, as a share of the range."""

    def distort(self, x: Tensor, amplitude: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, length) and a slow wave of this amplitude (n,), a share of the range."""
        low, high = SLOW
        cycles = (low + (high - low) * rng.fold("frequency").uniform(1, 1)) / self.rate
        phase = rng.fold("phase").uniform(x.shape[1], 1)
        positions = torch.arange(x.shape[-1], device=x.device)
        wave = torch.sin(2 * torch.pi * (cycles * positions + phase))
        return (x + per_sample(amplitude, x) * wave).clamp(0, 1)
