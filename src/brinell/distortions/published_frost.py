"""Frost as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, dragged, in_colour, smoothed


@dataclass(frozen=True, kw_only=True)
class Frost(Published):
    """So much of the picture, and so much of a layer of ice crystals.

    Deviation: the published sets take the layer from six photographs of frosted windows, which are
    not theirs to give on. Here it is drawn: needles of random directions, thin and bright, on a
    bluish ground, with the mean brightness (0.45) of such photographs. Strengths are the published
    ones; pictures cannot be compared pixel by pixel.
    """

    small = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
    large = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))
    rising = False
    """From severity 3 (2 at 224 pixels) on, more ice goes with less of the picture."""

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        share, cover = parameters
        ice = crystals(rng, x.shape[-2], x.shape[-1])
        return share * x + cover * in_colour(ice, (0.92, 1.0, 1.08), x.shape[1])


def crystals(rng: Streams, height: int, width: int) -> Tensor:
    """(n, 1, H, W) in [0, 1]: needles in six random directions, where a slow field has ice."""
    radius = max(2, min(height, width) // 10)
    # A few points are drawn out to needles, in place of the photographs of ice that the authors
    # use.
    seeds = (rng.fold("seeds").uniform(6, height, width) < 0.06).float()
    needles = torch.zeros(len(rng), 1, height, width, device=rng.keys.device)
    for way in range(6):
        angle = rng.fold("way").fold(way).uniform(1)[:, 0] * 2 * math.pi
        needles += dragged(seeds[:, way, None], radius, radius / 2, angle)
    needles = needles / needles.amax((1, 2, 3), keepdim=True).clamp_min(1e-12)

    roughness = max(1.0, min(height, width) / 16)
    # The ground makes ice patchy: where it is low, the picture stays clear.
    ground = smoothed(rng.fold("ground").uniform(1, height, width), roughness)
    ground = ground / ground.mean((1, 2, 3), keepdim=True)
    layer = (0.25 + needles) * ground
    return (0.45 * layer / layer.mean((1, 2, 3), keepdim=True)).clamp(0, 1)
