"""Salt and pepper: errors of transmission and of converters put values at one of their ends."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Streams
from brinell.distortions._shared import Scale, Scaled, per_sample


@dataclass(frozen=True, kw_only=True)
class SaltAndPepper(Scaled):
    """Random values jump to the lower or the upper bound."""

    domains = frozenset(KINDS)
    scale = Scale(small=(0.0066, 0.014, 0.028, 0.055, 0.11), large=(0.01, 0.023, 0.052, 0.12, 0.27))
    """Share of the values that jump."""

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        chance = rng.uniform(*x.shape[1:])
        share = per_sample(share, x)
        return torch.where(chance < share / 2, 0.0, torch.where(chance > 1 - share / 2, 1.0, x))
