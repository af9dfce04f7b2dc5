"""Defocus blur as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, filtered


@dataclass(frozen=True, kw_only=True)
class DefocusBlur(Published):
    """Every point of light becomes a disk with a soft edge.

    Parameters: the radius in pixels, and the deviation of the Gaussian that softens the edge.
    """

    versions = 1
    small = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
    large = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        return filtered(x, disk(*parameters))


def disk(radius: float, deviation: float) -> Tensor:
    """(k, k): a disk whose values sum to 1 before its edge is softened.

    That is within 3 pixels, or 5 for a radius above 8.
    """
    reach, soft = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    positions = torch.arange(-reach, reach + 1)
    sharp = ((positions[:, None] ** 2 + positions[None, :] ** 2) <= radius**2).float()
    edge = torch.exp(-0.5 * (torch.arange(-soft, soft + 1) / deviation) ** 2)
    edge = edge / edge.sum()
    return filtered((sharp / sharp.sum())[None, None], edge[:, None] * edge[None, :])[0, 0]
