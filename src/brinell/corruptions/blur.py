"""Blurs: out of focus, through frosted glass, of a moving camera, of a camera that moves towards the scene, and Gaussian."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.corruptions._shared import Published, dragged, filtered, smoothed, zoomed

__all__ = ["DefocusBlur", "GaussianBlur", "GlassBlur", "MotionBlur", "ZoomBlur"]


@dataclass(frozen=True, kw_only=True)
class GaussianBlur(Published):
    """Every value becomes a Gaussian mean of those around it; the parameter is the deviation in pixels."""

    versions = 1
    small = (0.4, 0.6, 0.7, 0.8, 1)
    large = (1, 2, 3, 4, 6)

    def distort(self, x: Tensor, deviation: float, rng: Streams) -> Tensor:
        """`x` smoothed."""
        return smoothed(x, deviation)


@dataclass(frozen=True, kw_only=True)
class DefocusBlur(Published):
    """Every point of light becomes a disk of a radius in pixels, whose edge is softened by a Gaussian of a deviation."""

    versions = 1
    small = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
    large = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """`x` behind such a lens."""
        return filtered(x, disk(*parameters))


def disk(radius: float, deviation: float) -> Tensor:
    """(k, k): a disk whose values sum to 1 before its edge is softened within 3 pixels, 5 for a radius above 8."""
    reach, soft = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    along = torch.arange(-reach, reach + 1)
    sharp = ((along[:, None] ** 2 + along[None, :] ** 2) <= radius**2).float()
    edge = torch.exp(-0.5 * (torch.arange(-soft, soft + 1) / deviation) ** 2)
    edge = edge / edge.sum()
    return filtered((sharp / sharp.sum())[None, None], edge[:, None] * edge[None, :])[0, 0]


@dataclass(frozen=True, kw_only=True)
class GlassBlur(Published):
    """Smoothed, then every pixel replaced by a random one near it, several times over, and smoothed again.

    Parameters: the deviation, how far a pixel is taken from, and how often. Pixels are gone through from below, each taking what
    its neighbour holds by then, as in the published sets (whose code means to exchange the two and copies).
    """

    small = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
    large = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))

    def distort(self, x: Tensor, parameters: tuple[float, int, int], rng: Streams) -> Tensor:
        """`x` behind such glass."""
        deviation, reach, times = parameters
        n, channels, height, width = x.shape
        soft = smoothed(x, deviation).mul(255).floor().div(255)
        rows, columns = range(height - reach, reach, -1), range(width - reach, reach, -1)
        if not len(rows) or not len(columns):
            return smoothed(soft, deviation)
        moves = rng.integers(2 * reach, times, len(rows), len(columns), 2).sub_(reach)
        # (H * W, n): which pixel of the smoothed picture is shown at each place; places first, so that a step is one row.
        shown = np.repeat(np.arange(height * width)[:, None], n, axis=1)
        each = np.arange(n)
        taken = (moves[..., 0] * width + moves[..., 1]).permute(1, 2, 3, 0).cpu().numpy()
        for turn in range(times):
            for at_row, row in enumerate(rows):
                for at_column, column in enumerate(columns):
                    place = row * width + column
                    shown[place] = shown[place + taken[turn, at_row, at_column], each]
        index = torch.from_numpy(shown.T.copy()).to(x.device)[:, None].expand(-1, channels, -1)
        return smoothed(soft.reshape(n, channels, -1).gather(2, index).reshape(x.shape), deviation)


@dataclass(frozen=True, kw_only=True)
class MotionBlur(Published):
    """Dragged along a line up to 45 degrees from the horizontal; parameters: half its length and the Gaussian's deviation."""

    small = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))
    large = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))

    def distort(self, x: Tensor, parameters: tuple[int, float], rng: Streams) -> Tensor:
        """`x` dragged."""
        angle = (rng.uniform(1)[:, 0] - 0.5) * math.pi / 2
        return dragged(x, *parameters, angle)


@dataclass(frozen=True, kw_only=True)
class ZoomBlur(Published):
    """The mean of the picture and of its enlargements; parameters: the end of the factors, which begin at 1, and their step."""

    versions = 1
    small = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))
    large = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """`x` zoomed into while the shutter was open."""
        factors = np.arange(1, *parameters).tolist()
        total = x.clone()
        for factor in factors:
            total += zoomed(x, factor)
        return total / (len(factors) + 1)
