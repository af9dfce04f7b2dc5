"""Gaussian blur: a lens out of focus, or a sensor slower than its signal.

Images and the frames of videos are blurred in height and width, signals over time. Beyond the edge
the outermost value goes on.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, by_level, planes

REACH = 4
"""Standard deviations after which the kernel is cut off."""


@dataclass(frozen=True, kw_only=True)
class GaussianBlur(Scaled):
    """Every value becomes a Gaussian mean of those around it."""

    domains = frozenset({"image", "video", "signal"})
    versions = 1
    scale = Scale(small=(0.69, 0.91, 1.2, 1.7, 2.6), large=(1.6, 2.3, 3.5, 5.6, 9.6))
    """Standard deviation of the kernel, in values."""

    def distort(self, x: Tensor, deviation: Tensor, rng: Streams) -> Tensor:
        return by_level(planes(x), deviation, _blur).reshape(x.shape).clamp(0, 1)


def _blur(x: Tensor, deviation: float) -> Tensor:
    """(n, planes, *frame) convolved with one kernel along each axis of the frame."""
    radius = max(1, math.ceil(REACH * deviation))
    positions = torch.arange(-radius, radius + 1, device=x.device)
    kernel = torch.exp(-0.5 * (positions / deviation) ** 2)
    kernel = (kernel / kernel.sum()).reshape(1, 1, -1)
    # A Gaussian is a product: one axis after the other.
    for axis in range(2, x.ndim):
        rows = x.movedim(axis, -1)
        flat = rows.reshape(-1, 1, rows.shape[-1])
        padded = torch.nn.functional.pad(flat, (radius, radius), mode="replicate")
        x = torch.nn.functional.conv1d(padded, kernel).reshape(rows.shape).movedim(-1, axis)
    return x
