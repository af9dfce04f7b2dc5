"""Spatter as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, filtered, in_colour, smoothed

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)


@dataclass(frozen=True, kw_only=True)
class Spatter(Published):
    """Drops of water (severities 1 to 3) or of mud on the lens.

    Parameters: mean and deviation of noise, by how much it is smoothed, the level above which it is
    a drop, the strength of water or the smoothing of mud, and whether it is mud. The edges of drops
    are shaded by the distance from them, equalised and embossed; deviation: edges are those of the
    drops as they are and not Canny's of them, and distances go by steps of 1 and 1.4 pixels.
    """

    small = (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    )
    large = (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    )
    rising = False
    """Severities 1 to 3 are water, 4 and 5 are mud."""

    def distort(
        self, x: Tensor, parameters: tuple[float, float, float, float, float, int], rng: Streams
    ) -> Tensor:
        """`x` (n, C, H, W) behind drops."""
        centre, deviation, smooth, level, strength, mud = parameters  # of mud `strength` smooths
        liquid = smoothed(centre + deviation * rng.normal(1, *x.shape[-2:]), smooth)
        if mud:
            # Mud covers what is behind it; water lets it through and is lit from one side.
            cover = smoothed((liquid > level).to(x.dtype), strength)
            cover = torch.where(cover < 0.8, 0.0, cover)
            return x * (1 - cover) + in_colour(cover, MUD, x.shape[1])
        liquid = torch.where(liquid < level, 0.0, liquid)
        shaded = liquid * relief(liquid > 0)
        shaded = shaded / shaded.amax((1, 2, 3), keepdim=True).clamp_min(1e-12) * strength
        return x + in_colour(shaded, WATER, x.shape[1])


def relief(inside: Tensor) -> Tensor:
    """(n, 1, H, W), 0 to 255: shading of drops (n, 1, H, W) bool by the distance from their edges.

    Distances of more than 20 pixels count as 20.
    """
    filled = inside.to(torch.float32)
    # Drops that end at the frame have no edge there: beyond it they go on.
    outside = 1 - F.pad(filled, (1, 1, 1, 1), value=1.0)
    edge = inside & (F.max_pool2d(outside, 3, stride=1) > 0)

    # Distances spread from the edges, a step to a neighbour at a time.
    distance = torch.where(edge, 0.0, 20.0)
    for _ in range(20):
        wide = F.pad(distance, (1, 1, 1, 1), value=20.0)
        cross = torch.minimum(
            torch.minimum(wide[:, :, :-2, 1:-1], wide[:, :, 2:, 1:-1]),
            torch.minimum(wide[:, :, 1:-1, :-2], wide[:, :, 1:-1, 2:]),
        )
        slant = torch.minimum(
            torch.minimum(wide[:, :, :-2, :-2], wide[:, :, 2:, 2:]),
            torch.minimum(wide[:, :, :-2, 2:], wide[:, :, 2:, :-2]),
        )
        distance = torch.minimum(distance, torch.minimum(cross + 1, slant + 1.4))

    box = torch.full((3, 3), 1 / 9)
    shade = equalised(filtered(distance, box).floor().clamp(0, 255).long())
    # Light from one corner: the difference across the diagonal.
    emboss = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    return filtered(filtered(shade, emboss).round().clamp(0, 255), box)


def equalised(levels: Tensor) -> Tensor:
    """(n, 1, H, W) whole numbers from 0 to 255, spread to a histogram as even as can be."""
    n = len(levels)
    flat = levels.reshape(n, -1)
    counts = torch.zeros(n, 256, device=levels.device)
    counts.scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.float32))
    sums = counts.cumsum(1)
    first = torch.where(counts > 0, sums, torch.inf).amin(1, keepdim=True)
    table = ((sums - first) / (flat.shape[1] - first).clamp_min(1) * 255).clamp(0, 255).round()
    return table.gather(1, flat).reshape(levels.shape)
