"""Fog as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class Fog(Published):
    """A fractal veil is added, and the sum scaled back to the brightness that the picture had.

    Parameters: the strength of the veil, and by how much the roughness of the fractal falls from
    one size to the next.
    """

    small = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))
    large = ((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """`x` (n, C, H, W) and a veil; its brightest value stays what it was."""
        strength, decay = parameters
        height, width = x.shape[-2:]
        most = x.amax((1, 2, 3), keepdim=True)
        side = 1 << (max(height, width) - 1).bit_length()
        veil = plasma(rng, side, decay)[:, None, :height, :width]
        return (x + strength * veil) * most / (most + strength)


def plasma(rng: Streams, side: int, decay: float) -> Tensor:
    """(n, side, side) in [0, 1]: fractals by the diamond-square algorithm on a torus.

    The side is a power of two.
    """
    heights = torch.zeros(len(rng), side, side, device=rng.keys.device)
    rough = 100.0  # of any size: the heights are scaled to [0, 1] at the end
    step = side
    number = 0

    def mean(total: Tensor) -> Tensor:
        """The mean of four neighbours, from their sum, and noise, squared as in the authors' code."""
        nonlocal number
        number += 1
        noise = rng.fold(number).uniform(*total.shape[1:]).mul_(2).sub_(1)
        return total / 4 + rough * rough * noise

    # Each round fills the centres of the squares, then the middles of their sides.
    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        heights[:, half::step, half::step] = mean(pairs + pairs.roll(-1, 2))
        corners = heights[:, ::step, ::step]
        centres = heights[:, half::step, half::step]
        heights[:, ::step, half::step] = mean(
            centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        )
        heights[:, half::step, ::step] = mean(
            centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        )
        step = half
        rough = rough / decay

    least = heights.amin((1, 2), keepdim=True)
    most = heights.amax((1, 2), keepdim=True)
    return (heights - least) / (most - least).clamp_min(1e-12)
