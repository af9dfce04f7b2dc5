"""Salt and pepper: errors of transmission and of converters, each value for itself at one of its ends."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Kind, Streams
from brinell.distortions._shared import Scale, per_sample

__all__ = ["SaltAndPepper"]


@dataclass(frozen=True, kw_only=True)
class SaltAndPepper:
    """Random values jump to the lower or the upper bound."""

    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    access: ClassVar[Access] = Access.LABELS
    scale: ClassVar[Scale] = Scale(small=(0.0066, 0.014, 0.028, 0.055, 0.11), large=(0.01, 0.023, 0.052, 0.12, 0.27))
    """Share of the values that jump."""

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """Endless: each has other values."""
        return None

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1] with salt and pepper."""
        return self.distort(x, self.scale(severity, x), rng)

    def distort(self, x: Tensor, share: Tensor, rng: Streams) -> Tensor:
        """`x` with this share (n,) of its values at an end. A larger share adds to the values of a smaller one."""
        chance, share = rng.uniform(*x.shape[1:]), per_sample(share, x)
        return torch.where(chance < share / 2, 0.0, torch.where(chance > 1 - share / 2, 1.0, x))
