"""Masks of attacks that place distortions on patches.

run = Run.open("runs/mine")
placements_of(run, "resnet20", "rlab", [7])[7].share()
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import Array
from brinell.store.run import Run

CLEAN = -1


@dataclass(frozen=True, kw_only=True)
class PlacedDistortion:
    """A distortion on a patch."""

    patch: int
    distortion: str
    severity: int


@dataclass(frozen=True, kw_only=True)
class PlacedDistortions:
    """All distortions on the closest adversarial example of a sample."""

    lengths: tuple[int, ...]
    """Of the axes that the patches divide."""
    patches: Sequence[tuple[slice, ...]]
    """All patches along these axes, the last axis running fastest."""
    standing: tuple[PlacedDistortion, ...]
    """By patch, ascending."""

    @classmethod
    def on(
        cls, grid: Mapping[str, Any], standing: tuple[PlacedDistortion, ...]
    ) -> "PlacedDistortions":
        """The distortions on a grid of patches, as a legend describes it."""
        sides = tuple(grid["patch"])
        lengths = tuple(grid["shape"][-len(sides) :])
        spans = []
        for length, side, step in zip(lengths, sides, grid["stride"], strict=True):
            # The last patch may stick out, and is cut.
            starts = range(0, length - side + step, step)
            spans.append([slice(start, min(start + side, length)) for start in starts])
        return cls(lengths=lengths, patches=list(itertools.product(*spans)), standing=standing)

    def mask(self) -> Array:
        """(*lengths) int64: for each place, the index of its distortion in `standing`, -1 for none.

        Overlapping patches show the distortion with the lowest index, as the attack applied them.
        """
        mask = np.full(self.lengths, -1, dtype=np.int64)
        for position in reversed(range(len(self.standing))):
            mask[self.patches[self.standing[position].patch]] = position
        return mask

    def share(self) -> float:
        """Share of the places that bear a distortion."""
        return float((self.mask() >= 0).mean())


def placements_of(
    run: Run, model: str, attack: str, ids: Sequence[int]
) -> dict[int, PlacedDistortions]:
    """The distortions on those samples among `ids` that an attack on patches fooled, by sample.

    Of other attacks there are none.
    """
    legend = run.legend(model, attack)
    if legend.get("kind") != "patches":
        return {}
    names = legend["variants"]
    placements = {}

    for sample, extras in run.extras(model, attack, ids).items():
        # Patches that stay clean are most of them, and are not listed.
        standing = tuple(
            PlacedDistortion(patch=patch, distortion=names[variant][0], severity=names[variant][1])
            for patch, variant in enumerate(extras["patches"].tolist())
            if variant != CLEAN
        )
        if standing:
            placements[sample] = PlacedDistortions.on(legend["grid"], standing)
    return placements
