"""Geometric shapes: overlapping triangles, squares, stars and discs over the picture (LAION-C, Li et al. 2025, arXiv 2506.16950).

They hide parts of the object and add foreign edges.

Deviations: strengths are calibrated on photographs and are not the paper's. Shapes are opaque, of one
random colour each, and all of one size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale
from brinell.distortions._synthetic import CORNERS, Synthetic, inside, shades, turned

__all__ = ["GeometricShapes"]

SHAPES = 24
"""Shapes over each picture."""


@dataclass(frozen=True, kw_only=True)
class GeometricShapes(Synthetic):
    """Opaque shapes of random form, place, direction and colour."""

    scale = Scale(small=(0.012, 0.027, 0.066, 0.15, 0.31), large=(0.016, 0.041, 0.098, 0.22, 0.43))
    """Area of all shapes together, as a share of the picture, before they overlap or stick out."""

    def distort(self, x: Tensor, area: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, H, W) behind shapes of this area (n,)."""
        places, colours = rng.fold("places").uniform(SHAPES, 3), shades(rng, SHAPES, x.shape[1])
        corners = torch.tensor(CORNERS, device=x.device)[rng.fold("corners").integers(len(CORNERS), SHAPES)]
        for shape in range(SHAPES):
            right, down = turned(places[:, shape], area / SHAPES, x)
            hidden = inside(corners[:, shape, None, None], right, down)
            x = torch.where(hidden[:, None], colours[:, shape, :, None, None], x)
        return x
