"""What the linear model knows of an input: its values, or one number for each channel of a patch.

A distortion that adds one constant to all values of a patch moves the answer by the sum of the
gradient over the patch. A model of these sums expects the same answers as one of all values, and
costs as many times less as a patch has places: on photographs the answers about an input take 1 MB
in place of 70.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.patches import PatchGrid
from brinell.rlab.distort import DistortedInputs, Variant
from brinell.rlab.prior import patch_places, sums


@dataclass(frozen=True)
class Projection:
    """The orthogonal projection of inputs on constants on patches, or the identity."""

    grid: PatchGrid
    """The patches over the inputs."""
    constant: bool
    """True for constants on patches, False for the values themselves."""

    @classmethod
    def of(cls, grid: PatchGrid, variants: Sequence[Variant], *, learned: bool) -> "Projection":
        """That of the contents that are to be placed.

        Values stay apart where patches overlap, and where some content differs within a patch.
        """
        is_constant = all(getattr(variant.distortion, "constant", False) for variant in variants)
        overlaps = grid.steps != grid.patch
        return cls(grid, is_constant and not overlaps and not learned)

    @cached_property
    def lattice(self) -> PatchGrid:
        """The patches over what is projected: their numbers are those of `grid`."""
        if not self.constant:
            return self.grid
        along = self.grid.lattice
        return PatchGrid((self.grid.channels, *along), (1,) * len(along))

    @property
    def most(self) -> float:
        """By how much a projected value is larger than the constant that it stands for."""
        return self.grid.members.shape[1] ** 0.5 if self.constant else 1.0

    def project(self, x: Tensor) -> Tensor:
        """(m, *shape) to (m, *lattice shape): the coordinates on constants of length 1."""
        if not self.constant:
            return x
        totals = sums(x.reshape(-1, self.grid.places), self.grid)
        return (totals / self._roots(x.device)).view(len(x), *self.lattice.shape)

    def spread(self, vectors: Tensor) -> Tensor:
        """(m, channels, lattice places) to (m, channels, places): the same vectors over inputs."""
        if not self.constant:
            return vectors
        # Without overlap one patch covers each place.
        cover = self.grid.covers[:, 0].to(vectors.device)
        return (vectors / self._roots(vectors.device))[:, :, cover]

    def inputs(self, distorted: DistortedInputs) -> DistortedInputs:
        """Inputs that are to hold what `copy` projects; `distorted` themselves for the identity."""
        if not self.constant:
            return distorted
        # Neither bounds nor regions are asked for: what is shown comes from the inputs themselves.
        domain = Domain(kind=distorted.domain.kind, shape=self.lattice.shape)
        return DistortedInputs(len(distorted), domain, distorted.variants, distorted.x.device)

    def copy(self, rows: Tensor, distorted: DistortedInputs, projected: DistortedInputs) -> None:
        """Project all variants of the samples in slots (m,)."""
        if self.constant:
            values = distorted.all_values(rows)
            columns = values.shape[1]
            flat = self.project(values.view(-1, *self.grid.shape))
            projected.put_values(rows, flat.view(len(rows), columns, -1))

    def _roots(self, device: torch.device) -> Tensor:
        """(patches,): the root of the number of places of each patch."""
        return patch_places(self.grid, device)[1].sum(1).sqrt()
