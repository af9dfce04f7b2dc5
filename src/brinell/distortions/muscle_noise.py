"""Muscle noise: the electromyogram of muscles that tense beneath the electrodes.

Normal noise without the frequencies below 20 Hz, which swells and fades once around a random
moment. The noise differs between channels; the moment is the same.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Sampled, Scale, middles, per_sample

LOWEST = 20.0
"""Hz. Below it an electromyogram at the skin has little power."""
WIDTH = 0.35
"""Standard deviation of the swelling, as a share of the signal's length."""


@dataclass(frozen=True, kw_only=True)
class MuscleNoise(Sampled):
    """A burst of noise above 20 Hz is added."""

    scale = Scale.constant(0.032, 0.052, 0.085, 0.14, 0.24)
    """Standard deviation at the height of the burst, as a share of the range."""

    def distort(self, x: Tensor, deviation: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, length) and noise of this deviation (n,) at its loudest moment."""
        length = x.shape[-1]
        heard = torch.fft.rfftfreq(length, 1 / self.rate, device=x.device) >= LOWEST
        spectrum = torch.fft.rfft(rng.fold("noise").normal(*x.shape[1:]))
        # What is left out took its share of the power, which is given back to the others.
        power = heard.float().mean().clamp_min(1 / length)
        noise = torch.fft.irfft(spectrum * heard, length) / power.sqrt()
        moment = rng.fold("moment").uniform(1, 1)
        positions = middles(length, x.device)
        burst = torch.exp(-0.5 * ((positions - moment) / WIDTH) ** 2)
        loud: Tensor = per_sample(deviation, x) * burst * noise
        return (x + loud).clamp(0, 1)
