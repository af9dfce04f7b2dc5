"""Signal dropout: contact is lost for a while, and the line lies flat.

One stretch of random place in which every channel reads its own median, its baseline. The stretch
follows the severity while its middle stays.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, middles, per_sample


@dataclass(frozen=True, kw_only=True)
class Dropout(Scaled):
    """A stretch of the signal is lost and lies flat."""

    domains = frozenset({"signal"})
    scale = Scale.constant(0.2, 0.4, 0.79, 0.9, 1.0)
    """Length of the stretch, as a share of the signal."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        length = x.shape[-1]
        positions = middles(length, x.device)
        # At least one value, however short the signal.
        half = per_sample(share.clamp_min(1 / length), x) / 2
        dropped = (positions - rng.uniform(1, 1)).abs() <= half
        return torch.where(dropped, x.median(-1, keepdim=True).values, x)
