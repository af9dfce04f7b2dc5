"""Snow as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, brightness_of, dragged, zoomed


@dataclass(frozen=True, kw_only=True)
class Snow(Published):
    """The picture paler, and falling flakes over it, once more upside down.

    Parameters: mean and deviation of the noise of which flakes are made, its enlargement, the level
    above which it is a flake, half the length and the deviation of their fall, and how much of the
    picture stays as it was.
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

    def distort(
        self,
        x: Tensor,
        parameters: tuple[float, float, float, float, int, float, float],
        rng: Streams,
    ) -> Tensor:
        """`x` (n, C, H, W), paler, and flakes that fall over it."""
        centre, deviation, zoom, level, radius, fall, share = parameters
        flakes = zoomed(centre + deviation * rng.fold("flakes").normal(1, *x.shape[-2:]), zoom)
        flakes = torch.where(flakes < level, 0.0, flakes).clamp(0, 1)
        # Up to 45 degrees away from straight up, the way that a flake has come.
        angle = (-135 + 90 * rng.fold("angle").uniform(1)[:, 0]) * math.pi / 180
        flakes = dragged(flakes, radius, fall, angle)
        # Brighter by half and by half of the range, in grey, as in the authors' code.
        pale = torch.maximum(x, brightness_of(x) * 1.5 + 0.5)
        return share * x + (1 - share) * pale + flakes + flakes.flip((2, 3))
