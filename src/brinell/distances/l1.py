"""L1: the absolute changes add up to at most eps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.streams import Streams
from brinell.distances import _projections as projections

__all__ = ["L1"]


@dataclass(frozen=True, kw_only=True)
class L1:
    """Sum of the absolute changes."""

    @property
    def name(self) -> str:
        """`l1`."""
        return "l1"

    def size(self, delta: Tensor) -> Tensor:
        """(n,): sum of absolute values."""
        return norms.l1(delta)

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Soft-threshold to absolute sum eps."""
        return projections.project_l1(delta, eps)

    def ascent(self, grad: Tensor) -> Tensor:
        """All of the step in the value with the steepest gradient."""
        flat = grad.flatten(1)
        steepest = flat.abs().argmax(1, keepdim=True)
        step = torch.zeros_like(flat).scatter_(1, steepest, flat.gather(1, steepest).sign())
        return step.reshape(grad.shape)

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform in the unit cross-polytope."""
        delta = self.direction(rng, shape)
        radius = rng.fold("radius").uniform(1)[:, 0] ** (1 / delta[0].numel())
        return delta.mul_(norms.per_sample(radius, delta))

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform on the surface of the unit cross-polytope: Laplace values over their absolute sum."""
        uniform = rng.uniform(*shape).sub_(0.5)
        delta = uniform.sign() * torch.log1p(-2 * uniform.abs()).neg_()
        return delta.div_(norms.per_sample(norms.l1(delta), delta))
