"""Linf: no value may change by more than eps."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core import norms
from brinell.core.streams import Streams
from brinell.distances import _projections as projections


@dataclass(frozen=True, kw_only=True)
class Linf:
    """Largest absolute change of a single value."""

    name = "linf"
    size = staticmethod(norms.linf)

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Clip to [-eps, eps]; `delta` is overwritten."""
        return projections.project_linf(delta, eps, out=delta)

    def ascent(self, grad: Tensor) -> Tensor:
        """The sign of the gradient."""
        return grad.sign()

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform in the cube [-1, 1]."""
        return rng.uniform(*shape).mul_(2).sub_(1)

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform in the cube, scaled until its largest value is 1."""
        delta = self.sample(rng, shape)
        return delta.div_(norms.per_sample(norms.linf(delta), delta))
