"""Pixelate: too few pixels, shown large. A signal is sampled too slowly and held.

What it cannot be: mild on small pictures. Blocks of two are the smallest, and at 32 pixels a side
they are as strong as severity 2 already; the number of blocks along a side is whole, so strength
comes in steps.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brinell.core.contracts import Access, Kind, Streams
from brinell.distortions._shared import Scale, by_level, planes

__all__ = ["Pixelate"]


@dataclass(frozen=True, kw_only=True)
class Pixelate:
    """Blocks of one value: the mean of what they cover."""

    domains: ClassVar[frozenset[Kind]] = frozenset({"image", "video", "signal"})
    access: ClassVar[Access] = Access.LABELS
    scale: ClassVar[Scale] = Scale(small=(2, 2, 2.3, 3, 4.5), large=(2.7, 4.5, 7, 10, 16))
    """Side of a block, in values."""

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """One: nothing is random."""
        return 1

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1] in blocks."""
        return self.distort(x, self.scale(severity, x), rng)

    def distort(self, x: Tensor, side: Tensor, rng: Streams) -> Tensor:
        """`x` in blocks of this side (n,), as nearly as the sides of the picture divide."""
        return by_level(planes(x), side, _blocks).reshape(x.shape).clamp(0, 1)


def _blocks(x: Tensor, side: float) -> Tensor:
    few = [max(1, round(length / side)) for length in x.shape[2:]]
    small = torch.nn.functional.interpolate(x, few, mode="area")
    return torch.nn.functional.interpolate(small, x.shape[2:], mode="nearest-exact")
