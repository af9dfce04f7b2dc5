"""Zoom blur as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published, zoomed


@dataclass(frozen=True, kw_only=True)
class ZoomBlur(Published):
    """The mean of the picture and of its enlargements.

    Parameters: the end of the factors, which begin at 1, and their step.
    """

    versions = 1
    small = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))
    large = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """The mean of `x` (n, C, H, W) and of it at all factors from 1 to a last one, by a step."""
        factors = np.arange(1, *parameters).tolist()
        # The first factor is 1, so that `x` counts twice, as in the authors' code.
        total = x.clone()
        for factor in factors:
            total += zoomed(x, factor)
        return total / (len(factors) + 1)
