"""Weather: fog, frost, snow, and spatters of water or mud."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Streams
from brinell.corruptions._shared import Published, brightness_of, dragged, filtered, in_colour, smoothed, zoomed

__all__ = ["Fog", "Frost", "Snow", "Spatter"]

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)


@dataclass(frozen=True, kw_only=True)
class Fog(Published):
    """A fractal veil of a strength is added, and the sum scaled back to the brightness that the picture had.

    Parameters: the strength, and by how much the roughness of the fractal falls from one size to the next.
    """

    small = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))
    large = ((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """`x` in fog."""
        strength, decay = parameters
        height, width = x.shape[-2:]
        most = x.amax((1, 2, 3), keepdim=True)
        veil = plasma(rng, 1 << (max(height, width) - 1).bit_length(), decay)[:, None, :height, :width]
        return (x + strength * veil) * most / (most + strength)


def plasma(rng: Streams, side: int, decay: float) -> Tensor:
    """(n, side, side) in [0, 1]: fractals by the diamond-square algorithm on a torus; the side is a power of two."""
    found = torch.zeros(len(rng), side, side, device=rng.keys.device)
    rough, step, number = 100.0, side, 0

    def mean(total: Tensor) -> Tensor:
        nonlocal number
        number += 1
        noise = rng.fold(number).uniform(*total.shape[1:]).mul_(2).sub_(1)
        return total / 4 + rough * rough * noise

    while step >= 2:
        half = step // 2
        corners = found[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        found[:, half::step, half::step] = mean(pairs + pairs.roll(-1, 2))
        corners, centres = found[:, ::step, ::step], found[:, half::step, half::step]
        found[:, ::step, half::step] = mean(centres + centres.roll(1, 1) + corners + corners.roll(-1, 2))
        found[:, half::step, ::step] = mean(centres + centres.roll(1, 2) + corners + corners.roll(-1, 1))
        step, rough = half, rough / decay
    least, most = found.amin((1, 2), keepdim=True), found.amax((1, 2), keepdim=True)
    return (found - least) / (most - least).clamp_min(1e-12)


@dataclass(frozen=True, kw_only=True)
class Frost(Published):
    """So much of the picture, and so much of a layer of ice crystals.

    Deviation: the published sets take the layer from six photographs of frosted windows, which are not theirs to give on. Here it
    is drawn: needles of random directions, thin and bright, on a bluish ground, with the mean brightness (0.45) of such
    photographs. Strengths are the published ones; pictures cannot be compared pixel by pixel.
    """

    small = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
    large = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """`x` behind frost."""
        share, cover = parameters
        return share * x + cover * in_colour(crystals(rng, x.shape[-2], x.shape[-1]), (0.92, 1.0, 1.08), x.shape[1])


def crystals(rng: Streams, height: int, width: int) -> Tensor:
    """(n, 1, H, W) in [0, 1]: needles in six random directions, where a slow field lets ice grow."""
    radius = max(2, min(height, width) // 10)
    seeds = (rng.fold("seeds").uniform(6, height, width) < 0.06).float()
    needles = torch.zeros(len(rng), 1, height, width, device=rng.keys.device)
    for way in range(6):
        angle = rng.fold("way").fold(way).uniform(1)[:, 0] * 2 * math.pi
        needles += dragged(seeds[:, way, None], radius, radius / 2, angle)
    needles = needles / needles.amax((1, 2, 3), keepdim=True).clamp_min(1e-12)
    ground = smoothed(rng.fold("ground").uniform(1, height, width), max(1.0, min(height, width) / 16))
    ground = ground / ground.mean((1, 2, 3), keepdim=True)
    layer = (0.25 + needles) * ground
    return (0.45 * layer / layer.mean((1, 2, 3), keepdim=True)).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class Snow(Published):
    """The picture paler, and falling flakes over it, once more upside down.

    Parameters: mean and deviation of the noise of which flakes are made, its enlargement, the level above which it is a flake,
    half the length and the deviation of their fall, and how much of the picture stays as it was.
    """

    small = (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )
    large = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )

    def distort(self, x: Tensor, parameters: tuple[float, float, float, float, int, float, float], rng: Streams) -> Tensor:
        """`x` in snow."""
        centre, deviation, zoom, level, radius, fall, kept = parameters
        flakes = zoomed(centre + deviation * rng.fold("flakes").normal(1, *x.shape[-2:]), zoom)
        flakes = torch.where(flakes < level, 0.0, flakes).clamp(0, 1)
        angle = (-135 + 90 * rng.fold("angle").uniform(1)[:, 0]) * math.pi / 180
        flakes = dragged(flakes, radius, fall, angle)
        pale = torch.maximum(x, brightness_of(x) * 1.5 + 0.5)
        return kept * x + (1 - kept) * pale + flakes + flakes.flip((2, 3))


@dataclass(frozen=True, kw_only=True)
class Spatter(Published):
    """Drops of water (severities 1 to 3) or of mud on the lens.

    Parameters: mean and deviation of noise, by how much it is smoothed, the level above which it is a drop, the strength of
    water or the smoothing of mud, and whether it is mud. The edges of drops are shaded by the distance from them, equalised and
    embossed; deviation: edges are those of the drops as they are and not Canny's of them, and distances go by steps
    of 1 and 1.4 pixels.
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

    def distort(self, x: Tensor, parameters: tuple[float, float, float, float, float, int], rng: Streams) -> Tensor:
        """`x` with drops."""
        centre, deviation, smooth, level, strength, mud = parameters
        liquid = smoothed(centre + deviation * rng.normal(1, *x.shape[-2:]), smooth)
        if mud:
            cover = smoothed((liquid > level).to(x.dtype), strength)
            cover = torch.where(cover < 0.8, 0.0, cover)
            return x * (1 - cover) + in_colour(cover, MUD, x.shape[1])
        liquid = torch.where(liquid < level, 0.0, liquid)
        shaded = liquid * relief(liquid > 0)
        shaded = shaded / shaded.amax((1, 2, 3), keepdim=True).clamp_min(1e-12) * strength
        return x + in_colour(shaded, WATER, x.shape[1])


def relief(inside: Tensor) -> Tensor:
    """(n, 1, H, W): shading of drops (n, 1, H, W) bool by how far each place is from the edge of one, at most 20 pixels."""
    filled = inside.to(torch.float32)
    edge = inside & (F.max_pool2d(1 - F.pad(filled, (1, 1, 1, 1), value=1.0), 3, stride=1) > 0)
    far = torch.where(edge, 0.0, 20.0)
    for _ in range(20):
        wide = F.pad(far, (1, 1, 1, 1), value=20.0)
        cross = torch.minimum(
            torch.minimum(wide[:, :, :-2, 1:-1], wide[:, :, 2:, 1:-1]), torch.minimum(wide[:, :, 1:-1, :-2], wide[:, :, 1:-1, 2:])
        )
        slant = torch.minimum(
            torch.minimum(wide[:, :, :-2, :-2], wide[:, :, 2:, 2:]), torch.minimum(wide[:, :, :-2, 2:], wide[:, :, 2:, :-2])
        )
        far = torch.minimum(far, torch.minimum(cross + 1, slant + 1.4))
    box = torch.full((3, 3), 1 / 9)
    shade = equalised(filtered(far, box).floor().clamp(0, 255).long())
    emboss = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    return filtered(filtered(shade, emboss).round().clamp(0, 255), box)


def equalised(levels: Tensor) -> Tensor:
    """(n, 1, H, W) whole numbers from 0 to 255, spread so that each picture's histogram is as even as can be."""
    n = len(levels)
    flat = levels.reshape(n, -1)
    counts = torch.zeros(n, 256, device=levels.device).scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.float32))
    sums = counts.cumsum(1)
    first = torch.where(counts > 0, sums, torch.inf).amin(1, keepdim=True)
    table = ((sums - first) / (flat.shape[1] - first).clamp_min(1) * 255).clamp(0, 255).round()
    return table.gather(1, flat).reshape(levels.shape)
