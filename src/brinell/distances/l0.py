"""L0: at most eps values may change, each channel counted, by as much as the bounds allow.

It is not a norm: twice a perturbation is not larger. In place of draws from a unit ball, draws have
values from -1 to 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.streams import Streams
from brinell.distances import _projections as projections


@dataclass(frozen=True, kw_only=True)
class L0:
    """Number of values that change at all."""

    name = "l0"
    size = staticmethod(norms.l0)
    ascent = staticmethod(projections.steepest_value)

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Keep the floor(eps) largest changes and undo the others."""
        flat = delta.flatten(1)
        order = flat.abs().argsort(stable=True, dim=1, descending=True)
        dropped = torch.arange(flat.shape[1], device=delta.device) >= eps.floor()[:, None]
        undone = torch.zeros_like(dropped).scatter_(1, order, dropped)
        return flat.masked_fill(undone, 0.0).reshape(delta.shape)

    def sample(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """One value, any of them, changed by anything from -1 to 1."""
        flat = torch.zeros(len(rng), torch.Size(shape).numel(), device=rng.keys.device)
        place = rng.fold("place").integers(flat.shape[1], 1)
        return flat.scatter_(1, place, rng.uniform(1).mul_(2).sub_(1)).reshape(-1, *shape)

    def direction(self, rng: Streams, shape: tuple[int, ...]) -> Tensor:
        """One value, any of them, changed by anything from -1 to 1, but not by 0."""
        return self.sample(rng, shape)
