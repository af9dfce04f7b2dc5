"""The space that inputs live in: kind, shape, bounds, and the grid on which they are stored.

The functions import torch themselves, so that data are opened, and refused, without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from brinell.core.region import Region

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["image", "signal", "video", "vector"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Column(NamedTuple):
    """One value of a vector from a table, or one channel of a signal."""

    name: str
    zero: float = 0.0
    """The value of 0 in the units of the table, which the model expects."""
    unit: float = 1.0
    """The value of 1 in the units of the table."""
    fixed: bool = False
    """True if attacks must not change it."""
    values: tuple[str, ...] = ()
    """The categories of a column of whole numbers: entry i is the text of number i."""
    marks: str = ""
    """Name of the column whose missing values this one marks by 1; no attack changes these, and
    models see NaN there."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Recording metadata of signals, for axes in seconds and physical units.

    No distance or attack uses it.

    Raises:
        ValueError: the rate is not above 0.
    """

    rate: float
    """Values per second of each channel."""
    unit: str = ""
    """Unit of the values, such as mV."""
    start: float = 0.0
    """Time of the first value in seconds; below 0 if second 0 is an event within the signal,
    such as the R peak."""
    leads: tuple[str, ...] = ()
    """Names of the channels; empty if they have none."""

    def __post_init__(self) -> None:
        """Refuse a rate of 0 or below."""
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"the sampling rate is {self.rate:g}; it must be above 0")


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The space of inputs.

    Every distance and every budget is measured in this space, never in a normalised one.

    Raises:
        ValueError: unknown kind, empty shape, bounds in the wrong order, fewer than two levels,
            columns that do not fit.
    """

    kind: Kind
    """The kind of inputs: image (C, H, W), signal (C, T), video (C, T, H, W) or vector (D,)."""
    shape: tuple[int, ...]
    """Shape of one input, channels first, without the batch dimension."""
    low: float | tuple[float, ...] = 0.0
    """Smallest value allowed; a tuple gives one for each entry of the first axis."""
    high: float | tuple[float, ...] = 1.0
    """Largest value allowed, like `low`."""
    levels: int | None = None
    """Number of evenly spaced values of a stored input (256 for 8-bit images); None if storage
    does not round."""
    columns: tuple[Column, ...] = ()
    """The columns of the table that a vector comes from, or the channels of a signal; empty if
    they are not described."""
    region: Region | None = field(default=None, compare=False)
    """The part of inputs that attacks may change; None for all. It is of the threat and no
    property of the space, so that models of both are of one domain."""

    def __post_init__(self) -> None:
        """Refuse values that contradict each other."""
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, not one of {', '.join(KINDS)}")
        if not self.shape or any(side < 1 for side in self.shape):
            raise ValueError(f"shape {self.shape} needs at least one axis and no empty one")

        for bound in (self.low, self.high):
            if isinstance(bound, tuple) and len(bound) != self.shape[0]:
                raise ValueError(f"{len(bound)} bounds for {self.shape[0]} channels")
        # A bound beyond float32 becomes infinite here, which is no fault.
        with np.errstate(over="ignore"):
            low = np.asarray(self.low, dtype=np.float32)
            high = np.asarray(self.high, dtype=np.float32)
        if not bool((low < high).all()):
            raise ValueError(f"bounds {self.low} to {self.high}: the lower one must be the smaller")
        if self.levels is not None and self.levels < 2:
            raise ValueError(
                f"levels is {self.levels}; storage needs at least 2, or None for no rounding"
            )
        if self.columns:
            self._check_columns()

    def _check_columns(self) -> None:
        """Refuse columns of other inputs, and columns that leave an attack nothing to change."""
        if self.kind not in ("vector", "signal") or self.shape[0] != len(self.columns):
            raise ValueError(
                f"{len(self.columns)} columns for a {self.kind} of shape "
                f"{self.shape}: columns are the values of a vector or the "
                "channels of a signal"
            )
        if all(column.fixed for column in self.columns):
            raise ValueError("every column is fixed, so there is nothing that an attack may change")

    @property
    def movable(self) -> "Tensor | None":
        """Indices (k,) int64 of the values that an attack may change; None for all.

        They count the values of a vector, or the channels of a signal.
        """
        import torch

        return torch.tensor(self._movable) if len(self._movable) < len(self.columns) else None

    @property
    def _movable(self) -> list[int]:
        """The same as a list, with all columns if none is fixed."""
        return [index for index, column in enumerate(self.columns) if not column.fixed]

    @property
    def grid(self) -> tuple[int, ...]:
        """Lengths of the axes without channels; for a vector, its only axis."""
        return self.shape if self.kind == "vector" else self.shape[1:]

    @property
    def is_free(self) -> bool:
        """True if attacks may change every value."""
        return self.region is None and len(self._movable) == len(self.columns)

    @property
    def free(self) -> "Domain":
        """The domain that attacks see: it has only the values that may change, or the box that
        holds them.
        """
        if self.is_free:
            return self
        positions = self._movable
        moved_axes = self.shape[1:] if self.region is None else self.region.shape
        # No column is fixed, or there are none: the region alone restricts the shape.
        if len(positions) == len(self.columns):
            return replace(self, shape=(self.shape[0], *moved_axes), region=None)

        return replace(
            self,
            region=None,
            shape=(len(positions), *moved_axes),
            low=_bound_at(self.low, positions),
            high=_bound_at(self.high, positions),
            columns=tuple(self.columns[index] for index in positions),
        )

    def part(self, x: "Tensor") -> "Tensor":
        """The values of full inputs (..., *shape) that may change."""
        if (movable := self.movable) is not None:
            x = x.index_select(x.ndim - len(self.shape), movable.to(x.device))
        return x if self.region is None else x[self.region.places]

    def merge(self, whole: "Tensor", x: "Tensor") -> "Tensor":
        """Full inputs (n, *shape) with the values of x (n, *free.shape) where they may change."""
        movable = self.movable
        if movable is None:
            return x if self.region is None else self.region.merge(whole, x)

        positions = movable.to(whole.device)
        if self.region is not None:
            x = self.region.merge(whole.index_select(1, positions), x)
        return whole.index_copy(1, positions, x)

    def missing(self, x: "Tensor") -> "Tensor | None":
        """(n, d) bool: the values of vectors (n, d) that are missing; None without such marks."""
        place = {column.name: index for index, column in enumerate(self.columns)}
        # From the column that may be missing to the column that marks it.
        marks = {
            place[column.marks]: index for index, column in enumerate(self.columns) if column.marks
        }
        if not marks:
            return None

        missing = x.new_zeros(x.shape).bool()
        # A mark is a column of zeros and ones, which a model in low precision may blur.
        missing[:, list(marks)] = x[:, list(marks.values())] > 0.5
        return missing

    def in_units(self, x: "Tensor") -> "Tensor":
        """Inputs (n, *shape) in the units of their table, which the model expects.

        They are unchanged without columns.
        """
        import torch

        if not self.columns:
            return x
        ends = [(column.zero, column.unit) for column in self.columns]
        values = torch.tensor(ends, dtype=x.dtype, device=x.device)
        zero, unit = values.reshape(-1, *[1] * (len(self.shape) - 1), 2).unbind(-1)
        return zero + (unit - zero) * x

    def to_json(self) -> dict[str, Any]:
        """The domain as JSON, for `from_json`."""
        fields: dict[str, Any] = {
            "kind": self.kind,
            "shape": list(self.shape),
            "low": self.low,
            "high": self.high,
        }
        fields["levels"] = self.levels

        # Fields that most domains lack are left out, so that their JSON and its digest stay as they
        # were.
        if self.columns:
            fields["columns"] = [list(column) for column in self.columns]
        if self.region is not None:
            fields["region"] = {"box": [list(ends) for ends in self.region.box]}
            fields["region"]["mask"] = self.region.mask
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Domain":
        """The domain from the fields of `to_json`."""
        columns = tuple(
            Column._make((*parts[:4], tuple(parts[4]), parts[5]))  # JSON has no tuples
            for parts in fields.get("columns", ())
        )
        # JSON has lists where a domain has tuples.
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }

        if region := fields.get("region"):
            tuples["region"] = Region.from_json(region)
        return cls(**tuples | {"columns": columns})

    def text(self) -> str:
        """The domain as a text for digests, independent of the class's repr."""
        ends = [str([float(value) for value in bound.flatten()]) for bound in self.bounds()]
        columns = f" {[list(column) for column in self.columns]}" if self.columns else ""
        return f"{self.kind} {self.shape} {' '.join(ends)} {self.levels}{columns}"

    def bounds(self, reference: "Tensor | None" = None) -> "tuple[Tensor, Tensor]":
        """Lower and upper bound as float tensors that broadcast against a batch.

        Device and dtype are those of `reference`.
        """
        import torch

        device = None if reference is None else reference.device
        dtype = torch.float32 if reference is None else reference.dtype

        def expand(bound: float | tuple[float, ...]) -> "Tensor":
            if isinstance(bound, float | int):
                return torch.full((), bound, device=device, dtype=dtype)
            return torch.tensor(bound, device=device, dtype=dtype).reshape(
                1, -1, *[1] * (len(self.shape) - 1)
            )

        return expand(self.low), expand(self.high)

    @property
    def slack(self) -> float:
        """Tolerance for values outside the bounds.

        A millionth of the largest range of a value that may change.
        """
        low, high = self.free.bounds()
        return 1e-6 * float((high - low).max())

    @property
    def rounding(self) -> float:
        """Largest float32 rounding error of a value that may change, within the bounds."""
        import torch

        # Half a unit in the last of the 24 bits of a float32.
        low, high = self.free.bounds()
        return 2.0**-24 * float(torch.maximum(low.abs(), high.abs()).max())

    def clamp(self, x: "Tensor") -> "Tensor":
        """`x` moved into the bounds, in place."""
        import torch

        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            low, high = self.bounds(x)
            return torch.clamp(x, low, high, out=x)
        return x.clamp_(self.low, self.high)

    def excess(self, x: "Tensor") -> "Tensor":
        """Largest distance (scalar) of a value of `x` beyond the bounds.

        0 or less if all are inside, NaN if `x` contains NaN.
        """
        return self.ends_beyond(x)[0].maximum(self.ends_beyond(x)[1])

    def ends_beyond(self, x: "Tensor") -> "tuple[Tensor, Tensor]":
        """Largest distances (scalars) of `x` below the lower bound and above the upper one."""
        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            low, high = self.bounds(x)
            return (low - x).amax(), (x - high).amax()
        # Two passes are twice as fast on a CPU as aminmax.
        return self.low - x.amin(), x.amax() - self.high

    def round(self, x: "Tensor") -> "Tensor":
        """`x` rounded to the nearest of `levels` values, as storage does; as it is without levels.

        Fixed columns are not rounded.
        """
        if self.levels is None:
            return x
        if not self.is_free:
            # Values that may not change stay as they were stored, whatever their levels.
            return self.merge(x, self.free.round(self.part(x)))

        low, high = self.bounds(x)
        steps = self.levels - 1
        # In place from the second step on: this runs on every stored input of a run.
        return (
            ((x - low) / (high - low) * steps)
            .round_()
            .clamp_(0, steps)
            .div_(steps)
            .mul_(high - low)
            .add_(low)
        )


Bound = float | tuple[float, ...]
"""One number for all entries of the first axis, or one for each."""


def _bound_at(bound: Bound, positions: list[int]) -> Bound:
    """The bound of some entries; one number where all have the same, which is compared faster."""
    if not isinstance(bound, tuple):
        return bound
    ends = tuple(bound[index] for index in positions)
    return ends[0] if len(set(ends)) == 1 else ends
