"""L2: the Euclidean length of the change is at most eps."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core import norms, projections
from brinell.core.streams import Streams

__all__ = ["L2"]


@dataclass(frozen=True, kw_only=True)
class L2:
    """Euclidean length of the change."""

    @property
    def name(self) -> str:
        """`l2`."""
        return "l2"

    def size(self, delta: Tensor) -> Tensor:
        """(n,): Euclidean length."""
        return norms.l2(delta)

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Scale back to length eps where longer; `delta` is overwritten."""
        return projections.project_l2(delta, eps, out=delta)

    def ascent(self, grad: Tensor) -> Tensor:
        """The gradient scaled to length 1."""
        # Scaled by its largest value first: squares of gradients below 1e-19 vanish in float32.
        scaled = grad / norms.per_sample(norms.linf(grad).clamp_min(1e-38), grad)
        return scaled.div_(norms.per_sample(norms.l2(scaled).clamp_min(1e-12), grad))

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform in the unit ball."""
        delta = self.direction(rng, shape)
        radius = rng.fold("radius").uniform(1)[:, 0] ** (1 / delta[0].numel())
        return delta.mul_(norms.per_sample(radius, delta))

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform on the unit sphere."""
        delta = rng.normal(*shape)
        return delta.div_(norms.per_sample(norms.l2(delta), delta))
