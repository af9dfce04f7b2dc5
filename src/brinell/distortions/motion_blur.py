"""Motion blur: the camera moved in a straight line while the shutter was open.

Each pixel becomes the mean along a segment through it, whose direction is drawn for each input.
Frames of a video are blurred one by one, all in the same direction. Beyond the edge the outermost
pixel goes on.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, planes

DENSITY = 2
"""Points of the segment for each pixel of its longer side, at least."""


@dataclass(frozen=True, kw_only=True)
class MotionBlur(Scaled):
    """Every pixel becomes the mean along a line through it."""

    domains = frozenset({"image", "video"})
    scale = Scale(small=(2.6, 3.8, 5.3, 8, 13), large=(6.5, 10, 16, 27, 49))
    """Length of the segment, in pixels."""

    def distort(self, x: Tensor, length: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, ..., H, W) averaged along a segment of this length (n,) in pixels."""
        angle = math.pi * rng.uniform(1)[:, 0]
        reach = torch.stack([torch.sin(angle), torch.cos(angle)], 1) * length[:, None] / 2
        blurred = [
            _blur(plane, direction) for plane, direction in zip(planes(x), reach, strict=True)
        ]
        return torch.stack(blurred).reshape(x.shape).clamp(0, 1)


def _blur(x: Tensor, reach: Tensor) -> Tensor:
    """(planes, height, width) convolved with a segment from -reach to reach, (2,) in pixels."""
    radius = math.ceil(float(reach.abs().max())) + 1
    count = DENSITY * 2 * radius
    positions = (torch.arange(count, device=x.device) + 0.5) / count * 2 - 1
    # In places of the kernel, whose middle is at `radius`.
    points = positions[:, None] * reach + radius

    # Each point of the segment is shared by the four pixels around it.
    corner = points.floor()
    share = points - corner
    kernel = torch.zeros(2 * radius + 1, 2 * radius + 1, device=x.device)
    for down in (0, 1):
        for right in (0, 1):
            # Bilinear: 1 - share above or on the left, share below or on the right.
            weight = (share[:, 0] - 1 + down).abs() * (share[:, 1] - 1 + right).abs()
            place = (corner[:, 0].long() + down, corner[:, 1].long() + right)
            kernel.index_put_(place, weight, accumulate=True)

    kernel = (kernel / kernel.sum()).reshape(1, 1, *kernel.shape)
    padded = torch.nn.functional.pad(x[:, None], (radius,) * 4, mode="replicate")
    return torch.nn.functional.conv2d(padded, kernel)[:, 0]
