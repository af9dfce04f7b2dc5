"""Motion blur as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

import math
from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, dragged


@dataclass(frozen=True, kw_only=True)
class MotionBlur(Published):
    """Dragged along a line up to 45 degrees from the horizontal.

    Parameters: half its length and the Gaussian's deviation.
    """

    small = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))
    large = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))

    def distort(self, x: Tensor, parameters: tuple[int, float], rng: Streams) -> Tensor:
        angle = (rng.uniform(1)[:, 0] - 0.5) * math.pi / 2
        return dragged(x, *parameters, angle)
