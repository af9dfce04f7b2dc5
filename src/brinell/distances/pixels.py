"""Pixels: at most eps places may change, each in all its channels, by as much as the bounds allow.

A place is a pixel of an image, a moment of a signal, a pixel of a frame of a video, a value of a
vector. Like L0 it is not a norm: twice a perturbation is not larger.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.norms import pixels
from brinell.core.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """Number of places that change at all."""

    name = "pixels"
    size = staticmethod(pixels)

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Keep the changes of the floor(eps) places with the largest ones; undo the others."""
        length = _by_place(delta).square().sum(1)
        ranks = length.argsort(stable=True, dim=1, descending=True).argsort(dim=1)
        kept = ranks < eps.floor()[:, None]
        return (_by_place(delta) * kept[:, None]).reshape(delta.shape)

    def ascent(self, grad: Tensor) -> Tensor:
        """A change of 1 in each channel of the place with the steepest gradient."""
        slopes = _by_place(grad)
        steepest = slopes.abs().sum(1).argmax(1)[:, None, None].expand(-1, slopes.shape[1], 1)
        sign = slopes.gather(2, steepest).sign()
        return torch.zeros_like(slopes).scatter_(2, steepest, sign).reshape(grad.shape)

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """One place, any of them, whose channels change by anything from -1 to 1."""
        change = _by_place(torch.zeros(len(rng), *shape, device=rng.keys.device))
        channels, places = change.shape[1:]
        place = rng.fold("place").integers(places, 1)[:, None].expand(-1, channels, 1)
        change.scatter_(2, place, rng.uniform(channels, 1).mul_(2).sub_(1))
        return change.reshape(-1, *shape)

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """One place, any of them, whose channels change by anything from -1 to 1, but not by 0."""
        return self.sample(rng, shape)


def _by_place(x: Tensor) -> Tensor:
    """(n, C, places): the channels of each place; a vector has one channel."""
    return x[:, None] if x.ndim == 2 else x.flatten(2)
