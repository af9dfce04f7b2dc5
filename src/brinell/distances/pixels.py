"""Pixels: at most eps places may change, each in all its channels, by as much as the bounds allow.

A place is a pixel of an image, a moment of a signal, a pixel of a frame of a video, a value of a
vector. Like L0 it is not a norm: twice a perturbation is not larger.
"""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.norms import pixels
from brinell.distances import _projections as projections


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """Number of places that change at all."""

    name = "pixels"
    size = staticmethod(pixels)
    ascent = staticmethod(projections.steepest_place)
    sample = staticmethod(projections.single_place)
    direction = staticmethod(projections.single_place)

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Keep the changes of the floor(eps) places with the largest ones; undo the others."""
        length = projections.by_place(delta).square().sum(1)
        ranks = length.argsort(stable=True, dim=1, descending=True).argsort(dim=1)
        kept = ranks < eps.floor()[:, None]
        return (projections.by_place(delta) * kept[:, None]).reshape(delta.shape)
