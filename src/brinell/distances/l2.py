"""L2: the Euclidean length of the change is at most eps."""

from dataclasses import dataclass

from torch import Tensor

from brinell.core import norms
from brinell.distances import _projections as projections


@dataclass(frozen=True, kw_only=True)
class L2:
    """Euclidean length of the change."""

    name = "l2"
    size = staticmethod(norms.l2)
    ascent = staticmethod(norms.steepest_l2)
    sample = staticmethod(norms.ball_l2)
    direction = staticmethod(norms.sphere_l2)

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Scale back to length eps where longer; `delta` is overwritten."""
        return projections.project_l2(delta, eps, out=delta)
