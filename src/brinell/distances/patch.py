"""Patch: all changes lie in one square of side eps, anywhere, by as much as the bounds allow.

On a signal the square is a segment, on a video a cube, cut where an axis is shorter; all channels
of a place may change. `patch:5` is the distance with the budget 5. Like L0 it is not a norm: twice
a perturbation is not larger, and two small ones may be far apart.
"""

from dataclasses import dataclass

from torch import Tensor

from brinell.core import squares
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.distances import _projections as projections


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Side of the smallest square that holds all changes."""

    name = "patch"
    size = staticmethod(squares.side)
    ascent = staticmethod(projections.steepest_place)
    sample = staticmethod(projections.single_place)
    direction = staticmethod(projections.single_place)

    def check(self, domain: Domain) -> None:
        """Refuse data without neighbouring places."""
        if domain.kind == "vector":
            raise RequestError(
                "a patch covers neighbouring places, and the columns of a table have no "
                f"neighbours: write {option('norm', 'l0')}, which counts the changed columns"
            )

    def project(self, delta: Tensor, eps: Tensor) -> Tensor:
        """Keep the changes in the square of side floor(eps) with the largest; undo the others."""
        energy = squares.over_channels(delta.square())
        legal = self.size(delta) <= eps
        mask = legal[:, None].repeat(1, energy[0].numel())
        for side, rows in squares.by_side(eps.masked_fill(legal, 0)):
            numbers = squares.sums(energy[rows], side).flatten(1).argmax(1)
            places = squares.places(numbers, side, energy.shape[1:])
            mask[rows] = mask[rows].scatter(1, places, True)
        return (projections.by_place(delta) * mask[:, None]).reshape(delta.shape)
