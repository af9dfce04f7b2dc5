"""Electrode pop: an electrode loses its grip for a moment; the line jumps and creeps back.

One jump at a random moment, up or down, the same in all channels; it decays exponentially, as the
amplifier's high-pass lets it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Sampled, Scale, per_sample

DECAY = 0.2
"""Seconds after which 1/e of the jump is left."""
LATEST = 0.9
"""Share of the signal within which the jump falls."""


@dataclass(frozen=True, kw_only=True)
class ElectrodePop(Sampled):
    """The line jumps at a random moment and decays back."""

    scale = Scale.constant(0.083, 0.14, 0.22, 0.37, 0.69)
    """Height of the jump, as a share of the range."""

    def distort(self, x: Tensor, height: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, length) and a jump of this height (n,), a share of the range."""
        length = x.shape[-1]
        moment = (LATEST * length * rng.fold("moment").uniform(1, 1)).floor()
        since = (torch.arange(length, device=x.device) - moment) / (DECAY * self.rate)
        jump = torch.where(since >= 0, torch.exp(-since.clamp_min(0)), 0.0)
        sign = torch.where(rng.fold("sign").uniform(1, 1) < 0.5, -1.0, 1.0)
        return (x + per_sample(height, x) * sign * jump).clamp(0, 1)
