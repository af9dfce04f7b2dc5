"""Masks of attacks that place distortions on patches: the placed distortions, and the sensitivity map.

run = Run.open("runs/mine")
placements_of(run, "resnet20", "rlab", [7])[7].share()
sensitivity(run, "resnet20", "rlab", [7])[7].max(axis=-1)    # the most sensitive patches, over all distortions
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import Array
from brinell.store.run import Run

CLEAN = -1


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """The patches of a run over the last axes of its inputs: numbered flat, the last axis running fastest."""

    lengths: tuple[int, ...]
    """Of the axes that the patches divide."""
    patch: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Patches along each axis."""
        sides = zip(self.lengths, self.patch, self.stride, strict=True)
        return tuple(1 + math.ceil((length - side) / step) for length, side, step in sides)

    def slices(self) -> list[tuple[slice, ...]]:
        """Slices of each patch along the axes of the input."""
        spans = [
            [slice(i * step, min(i * step + side, length)) for i in range(count)]
            for count, length, side, step in zip(self.shape, self.lengths, self.patch, self.stride, strict=True)
        ]
        return list(itertools.product(*spans))


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A distortion on a patch."""

    patch: int
    distortion: str
    severity: int


@dataclass(frozen=True, kw_only=True)
class Placement:
    """All distortions on the closest adversarial example of a sample."""

    lattice: Lattice
    standing: tuple[Standing, ...]
    """By patch, ascending."""

    def mask(self) -> Array:
        """(*lengths) int64: for each place, the index of its distortion in `standing`, -1 for none.

        Overlapping patches show the distortion with the lowest index, as the attack applied them.
        """
        mask = np.full(self.lattice.lengths, -1, dtype=np.int64)
        slices = self.lattice.slices()
        for position in reversed(range(len(self.standing))):
            mask[slices[self.standing[position].patch]] = position
        return mask

    def share(self) -> float:
        """Share of the places that bear a distortion."""
        return float((self.mask() >= 0).mean())


def placements_of(run: Run, model: str, attack: str, ids: Sequence[int]) -> dict[int, Placement]:
    """Placements of the samples among `ids` that an attack on patches fooled; empty for other attacks."""
    legend = run.legend(model, attack)
    if legend.get("kind") != "patches":
        return {}
    lattice, names = _lattice(legend), legend["variants"]
    placements = {}
    for sample, extras in run.extras(model, attack, ids).items():
        standing = tuple(
            Standing(patch=patch, distortion=names[variant][0], severity=names[variant][1])
            for patch, variant in enumerate(extras["patches"].tolist())
            if variant != CLEAN
        )
        if standing:
            placements[sample] = Placement(lattice=lattice, standing=standing)
    return placements


def sensitivity(run: Run, model: str, attack: str, ids: Sequence[int]) -> dict[int, Array]:
    """The sensitivity map of every sample of `ids` that the attack ran on, fooled or not.

    Each is (*patches along each axis, distortions) float32: by how many logits a distortion on a patch alone is expected to
    move the margin, whichever way. `distortions` are those of the run's legend, in its order. The figures are what the attack's
    linear model says after its last query, what it knew beforehand included; docs/results/rlab.md says how good they are.
    """
    legend = run.legend(model, attack)
    if legend.get("kind") != "patches":
        return {}
    shape = (*_lattice(legend).shape, len(legend["distortions"]))
    maps = {sample: extras["map"].reshape(shape) for sample, extras in run.extras(model, attack, ids).items()}
    return {sample: values for sample, values in maps.items() if not np.isnan(values).any()}


def _lattice(legend: Mapping[str, Any]) -> Lattice:
    grid = legend["grid"]
    patch = tuple(grid["patch"])
    return Lattice(lengths=tuple(grid["shape"][-len(patch) :]), patch=patch, stride=tuple(grid["stride"]))
