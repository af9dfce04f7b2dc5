"""L1: the absolute changes add up to at most eps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.streams import Streams
from brinell.distances import _projections as projections


@dataclass(frozen=True, kw_only=True)
class L1:
    """Sum of the absolute changes."""

    name = "l1"
    size = staticmethod(norms.l1)
    project = staticmethod(projections.project_l1)
    ascent = staticmethod(projections.steepest_value)

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform in the unit cross-polytope."""
        delta = self.direction(rng, shape)
        radius = rng.fold("radius").uniform(1)[:, 0] ** (1 / delta[0].numel())
        return delta.mul_(norms.per_sample(radius, delta))

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform on the surface of the unit cross-polytope: Laplace values over their sum."""
        uniform = rng.uniform(*shape).sub_(0.5)
        delta = uniform.sign() * torch.log1p(-2 * uniform.abs()).neg_()
        return delta.div_(norms.per_sample(norms.l1(delta), delta))
