"""A grid of patches over the last axes of an input: segments of a signal, rectangles of an image,
blocks of a video.

Pure functions of shapes, for any number of axes. The axes before those that the patches divide go
with every patch as a whole: `patch=(4, 4)` on an image (C, H, W) takes all channels of a square,
`patch=(1, 4, 4)` each channel by itself. A *place* is a position in the divided axes, counted flat,
the last axis running fastest; it holds one value for each entry of the axes before.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError

AXES: dict[Kind, int] = {"vector": 1, "signal": 1, "image": 2, "video": 3}
"""How many of an input's last axes a patch of one side length divides."""

ALONG = {1: 64, 2: 16, 3: 8}
"""About how many patches an axis is cut into where nobody says, by the number of axes that are
divided."""


def sides(written: int | str, axes: int) -> tuple[int, ...]:
    """Sides as people write them: 4 along every axis, 4x16x16 one for each of the last axes.

    The last one written is that of the last axis.

    Raises:
        ValueError: neither a whole number nor several joined by x.
    """
    parts = str(written).split("x")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ValueError(
            f"{written!r} are no sides: write one for all axes (4), or one for each (4x16x16)"
        )

    sides_of_patch = tuple(int(part) for part in parts)
    return sides_of_patch * axes if len(sides_of_patch) == 1 else sides_of_patch


@dataclass(frozen=True)
class PatchGrid:
    """Patches of one form at even distances, which together cover every place.

    Patches start at every `stride`-th place of an axis until one reaches its end; what sticks out
    there is cut off, so the last patches may be smaller. Patches are numbered flat over the lattice
    that they form, the last axis running fastest.
    """

    shape: tuple[int, ...]
    """Shape of one input."""
    patch: tuple[int, ...]
    """Sides of a patch along the last axes of the input."""
    stride: tuple[int, ...] | None = None
    """From one patch to the next along each axis; None for the sides of a patch, which then do
    not overlap."""

    def __post_init__(self) -> None:
        """Refuse sides and strides that do not fit the input."""
        if not 1 <= len(self.patch) <= len(self.shape) or len(self.steps) != len(self.patch):
            raise RequestError(
                f"patch {self.patch} with stride {self.steps} does not fit an "
                f"input of shape {self.shape}"
            )

        # A stride beyond the side would leave places that no patch covers.
        for side, step, length in zip(self.patch, self.steps, self.places_along, strict=True):
            if not 1 <= side <= length:
                raise RequestError(
                    f"patch {self.patch} does not fit an input of shape "
                    f"{self.shape}: a side must be between 1 and {length}"
                )
            if not 1 <= step <= side:
                raise RequestError(
                    f"stride {self.steps} with patch {self.patch}: a stride must "
                    "be between 1 and the patch's side"
                )

    @classmethod
    def over(cls, domain: Domain, side: int, stride: int | None = None) -> "PatchGrid":
        """Patches of one side length along every axis that the kind of data divides."""
        axes = AXES[domain.kind]
        return cls(domain.shape, (side,) * axes, None if stride is None else (stride,) * axes)

    @classmethod
    def usual(cls, domain: Domain) -> "PatchGrid":
        """The patches where nobody names a side: about 64, 16 x 16 or 8 x 8 x 8 in all."""
        lengths = domain.shape[-AXES[domain.kind] :]
        return cls(
            domain.shape, tuple(max(1, round(length / ALONG[len(lengths)])) for length in lengths)
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """The stride along each divided axis."""
        return self.patch if self.stride is None else self.stride

    @property
    def places_along(self) -> tuple[int, ...]:
        """Lengths of the divided axes."""
        return self.shape[len(self.shape) - len(self.patch) :]

    @property
    def places(self) -> int:
        """Number of places."""
        return math.prod(self.places_along)

    @property
    def channels(self) -> int:
        """Values at each place."""
        return math.prod(self.shape[: len(self.shape) - len(self.patch)])

    @property
    def lattice(self) -> tuple[int, ...]:
        """Number of patches along each divided axis."""
        lengths = zip(self.places_along, self.patch, self.steps, strict=True)
        return tuple(1 + math.ceil((length - side) / step) for length, side, step in lengths)

    def __len__(self) -> int:
        """Number of patches."""
        return math.prod(self.lattice)

    @cached_property
    def members(self) -> Tensor:
        """(patches, volume) int64: the places of each patch.

        What is cut off at an edge repeats the place next to it.
        """
        flat = torch.zeros(1, 1, dtype=torch.int64)
        # Axis after axis: each patch so far meets each patch along the next axis.
        for length, positions in zip(self.places_along, self._positions, strict=True):
            inside = positions.clamp_max(length - 1)
            pairs = flat[:, None, :, None] * length + inside[None, :, None, :]
            flat = pairs.flatten(2).flatten(0, 1)

        return flat

    @cached_property
    def not_repeated(self) -> Tensor:
        """(patches, volume) bool: which of the `members` are not repeated."""
        # Axis by axis the product of all patches and of all their members so far.
        is_inside = torch.ones(1, 1, dtype=torch.bool)
        for length, positions in zip(self.places_along, self._positions, strict=True):
            is_inside = (
                (is_inside[:, None, :, None] & (positions < length)[None, :, None, :])
                .flatten(2)
                .flatten(0, 1)
            )
        return is_inside

    @property
    def _positions(self) -> list[Tensor]:
        """For each axis (patches along it, side): positions on it, also those beyond its end."""
        counts = zip(self.lattice, self.patch, self.steps, strict=True)
        return [
            torch.arange(count)[:, None] * step + torch.arange(side) for count, side, step in counts
        ]

    @cached_property
    def covers(self) -> Tensor:
        """(places, depth) int64: the patches over each place, filled up with `len(self)`."""
        patch, slot = self.not_repeated.nonzero(as_tuple=True)
        place, order = torch.sort(self.members[patch, slot], stable=True)

        # The rank of a patch among those over its place is its distance from the first of them.
        rank = torch.arange(len(place)) - torch.searchsorted(place, place)
        covers = torch.full((self.places, int(rank.max()) + 1), len(self))
        covers[place, rank] = patch[order]
        return covers

    @cached_property
    def neighbours(self) -> Tensor:
        """(patches, 2 * axes) int64: the patch before and after along each axis, -1 for none."""
        number = torch.arange(len(self)).reshape(self.lattice)
        shifts = []
        for axis, count in enumerate(self.lattice):
            for step in (-1, 1):
                shifted = number.roll(-step, axis)
                # What has come round from the other edge is no neighbour.
                shifted.select(axis, 0 if step < 0 else count - 1).fill_(-1)
                shifts.append(shifted.flatten())
        return torch.stack(shifts, 1)

    @cached_property
    def centres(self) -> Tensor:
        """(patches, axes) float32: the middle of each patch, 0 to 1 along each divided axis."""
        # The last place ends one further on, and a patch at the end of the input is cut there.
        axes = []
        for length, positions in zip(self.places_along, self._positions, strict=True):
            axes.append(
                (positions[:, 0] + positions[:, -1].clamp_max(length - 1) + 1) / (2 * length)
            )
        return torch.tensor(
            list(itertools.product(*(axis.tolist() for axis in axes))), dtype=torch.float32
        )

    def covered_values(self, selection: Tensor) -> Tensor:
        """(n, *shape) bool: the values that the chosen patches (n, patches) bool cover."""
        # One patch more, never chosen, whose number fills the rows of `covers` up.
        sentinel = torch.zeros(len(selection), 1, dtype=torch.bool, device=selection.device)
        over = torch.cat([selection, sentinel], 1)[:, self.covers.to(selection.device)].any(2)
        return over[:, None].expand(-1, self.channels, -1).reshape(len(selection), *self.shape)
