"""L2: the Euclidean length of the change is at most eps."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core import norms
from brinell.core.streams import Streams
from brinell.distances import _projections as projections

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
        return norms.steepest_l2(grad)

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform in the unit ball."""
        return norms.ball_l2(rng, shape)

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """Uniform on the unit sphere."""
        return norms.sphere_l2(rng, shape)
