"""Mains hum: the power line couples into the leads.

A sine wave at the frequency of the mains, of random phase, the same in all channels. It needs the
sampling rate of the signals, which a distortion is not told: other than 125 Hz is given as
`mains-hum(rate=360)`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Sampled, Scale, per_sample


@dataclass(frozen=True, kw_only=True)
class MainsHum(Sampled):
    """A sine wave at the frequency of the mains is added."""

    frequency: float = 50.0
    """Of the mains, in Hz: 50, or 60."""

    scale = Scale.constant(0.038, 0.059, 0.089, 0.14, 0.21)
    """Amplitude of the wave, as a share of the range."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.frequency < self.rate / 2:
            raise ValueError(
                f"frequency is {self.frequency:g} and rate {self.rate:g}; it must "
                "lie between 0 and half the rate, above which "
                "signals hold nothing"
            )

    def distort(self, x: Tensor, amplitude: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, length) and a wave of this amplitude (n,), a share of the range."""
        cycles = self.frequency / self.rate * torch.arange(x.shape[-1], device=x.device)
        wave = torch.sin(2 * torch.pi * (cycles + rng.uniform(1, 1)))
        return (x + per_sample(amplitude, x) * wave).clamp(0, 1)
