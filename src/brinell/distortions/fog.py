"""Fog: a bright veil of uneven thickness.

The veil is noise of several sizes laid over each other, each half as large and half as strong as
the one before, drawn for each input; it lies over all frames of a video. Air light and attenuation
mix as in Koschmieder's law: what the veil covers loses its own light and takes on that of the fog.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, frame, opaque, per_sample

LIGHT = 0.9
"""How bright the fog is."""
OCTAVES = 5
"""Sizes of the noise: 2, 4, 8, ... cells along each side."""


@dataclass(frozen=True, kw_only=True)
class Fog(Scaled):
    """A bright, uneven veil over the picture."""

    domains = frozenset({"image", "video"})
    scale = Scale(small=(0.31, 0.44, 0.58, 0.75, 0.91), large=(0.36, 0.49, 0.65, 0.81, 0.98))
    """Share of the light that is lost where the fog is thickest."""

    def distort(self, x: Tensor, thickness: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, ..., H, W) behind a veil that hides at most this share (n,) of the light."""
        veil = _clouds(rng, frame(x)) * thickness[:, None, None]
        veil = veil.reshape(len(x), *[1] * (x.ndim - 3), *frame(x))
        return opaque(torch.tensor(LIGHT, device=x.device), veil, x).clamp(0, 1)


def _clouds(rng: Streams, sides: tuple[int, ...]) -> Tensor:
    """(n, *sides) from 0.5 to 1: noise of several sizes, each half as strong as the one before."""
    clouds = torch.zeros(len(rng), *sides, device=rng.keys.device)
    for octave in range(OCTAVES):
        # Each octave has cells of half the size and half the strength: noise as clouds have it.
        cells = 2 ** (octave + 1)
        noise = rng.fold(octave).uniform(1, cells, cells)
        smooth = torch.nn.functional.interpolate(noise, sides, mode="bilinear", align_corners=True)
        clouds += smooth[:, 0] / 2**octave
    least = clouds.amin((1, 2))
    most = clouds.amax((1, 2))
    # A flat cloud would divide by zero.
    span = (most - least).clamp_min(1e-6)
    return 0.5 + 0.5 * (clouds - per_sample(least, clouds)) / per_sample(span, clouds)
