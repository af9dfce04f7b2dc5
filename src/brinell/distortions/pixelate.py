"""Pixelate: too few pixels, shown large. A signal is sampled too slowly and held.

Limit: it is not mild on small pictures. Blocks of two are the smallest, and at 32 pixels a side
they are as strong as severity 2 already; the number of blocks along a side is whole, so strength
comes in steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, by_level, planes


@dataclass(frozen=True, kw_only=True)
class Pixelate(Scaled):
    """Blocks of one value: the mean of what they cover."""

    domains = frozenset({"image", "video", "signal"})
    versions = 1
    scale = Scale(small=(2, 2, 2.3, 3, 4.5), large=(2.7, 4.5, 7, 10, 16))
    """Side of a block, in values."""

    def distort(self, x: Tensor, side: Tensor, rng: Streams) -> Tensor:
        return by_level(planes(x), side, _blocks).reshape(x.shape).clamp(0, 1)


def _blocks(x: Tensor, side: float) -> Tensor:
    """(n, planes, *frame) shrunk by means over blocks, and enlarged again."""
    counts = [max(1, round(length / side)) for length in x.shape[2:]]
    small = torch.nn.functional.interpolate(x, counts, mode="area")
    return torch.nn.functional.interpolate(small, x.shape[2:], mode="nearest-exact")
