"""The space that inputs live in: kind, shape, bounds, and the grid on which they are stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

Kind = Literal["image", "signal", "video", "vector"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Column(NamedTuple):
    """One value of a vector that was a column of a table, or one channel of a signal: what it is, and whether it may change."""

    name: str
    zero: float = 0.0
    """What a 0 is in the units of the table, in which the model is asked."""
    one: float = 1.0
    """What a 1 is there."""
    fixed: bool = False
    """Whether no attack may change it."""
    values: tuple[str, ...] = ()
    """Of a category coded as a whole number, the text that each number, counted from 0, represents."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How signals were recorded: what a reader needs for axes in seconds and millivolts. No distance or attack uses it.

    Raises:
        ValueError: a rate that is not above 0.
    """

    rate: float
    """Values per second of each channel."""
    unit: str = ""
    """Unit of the values, such as mV."""
    start: float = 0.0
    """Second of the first value; below 0 where second 0 is an event within the signal, such as the R peak."""
    leads: tuple[str, ...] = ()
    """Names of the channels, where they have any."""

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"the sampling rate is {self.rate:g}; it must be above 0")


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Where inputs live. Every distance and every budget is measured in this space, never in a normalised one.

    Raises:
        ValueError: unknown kind, empty shape, bounds in the wrong order, fewer than two levels, columns that do not fit.
    """

    kind: Kind
    """What an input is: image (C, H, W), signal (C, T), video (C, T, H, W) or vector (D,)."""
    shape: tuple[int, ...]
    """Shape of one input, channels first, without the batch dimension."""
    low: float | tuple[float, ...] = 0.0
    """Smallest value allowed; a tuple gives one for each entry of the first axis."""
    high: float | tuple[float, ...] = 1.0
    """Largest value allowed, like `low`."""
    levels: int | None = None
    """How many evenly spaced values a stored input can take (256 for 8-bit images); None where storage does not round."""
    columns: tuple[Column, ...] = ()
    """What each value of a vector is, where it comes from a table, or each channel of a signal; empty where there is no need."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, not one of {', '.join(KINDS)}")
        if not self.shape or any(side < 1 for side in self.shape):
            raise ValueError(f"shape {self.shape} needs at least one axis and no empty one")
        for bound in (self.low, self.high):
            if isinstance(bound, tuple) and len(bound) != self.shape[0]:
                raise ValueError(f"{len(bound)} bounds for {self.shape[0]} channels")
        low, high = self.bounds()
        if not bool((low < high).all()):
            raise ValueError(f"bounds {self.low} to {self.high}: the lower one must be the smaller")
        if self.levels is not None and self.levels < 2:
            raise ValueError(f"levels is {self.levels}; storage needs at least 2, or None for no rounding")
        if self.columns and (self.kind not in ("vector", "signal") or self.shape[0] != len(self.columns)):
            raise ValueError(
                f"{len(self.columns)} columns for a {self.kind} of shape {self.shape}: columns are the values of a vector or the "
                "channels of a signal"
            )
        if self.columns and all(column.fixed for column in self.columns):
            raise ValueError("every column is fixed, so there is nothing that an attack may change")

    @property
    def movable(self) -> Tensor | None:
        """(k,) int64: which values of a vector, or channels of a signal, an attack may change; None where it may change all."""
        free = [at for at, column in enumerate(self.columns) if not column.fixed]
        return torch.tensor(free) if len(free) < len(self.columns) else None

    @property
    def grid(self) -> tuple[int, ...]:
        """The axes along which values lie in order: all but the channels, and the only one of a vector."""
        return self.shape if self.kind == "vector" else self.shape[1:]

    @property
    def free(self) -> "Domain":
        """The space that attacks see: that of the values that may change."""
        movable = self.movable
        if movable is None:
            return self
        at = movable.tolist()
        low, high = (tuple(bound[i] for i in at) if isinstance(bound, tuple) else bound for bound in (self.low, self.high))
        columns = tuple(self.columns[i] for i in at)
        # A single number is much the faster one to compare with.
        low, high = (bound[0] if isinstance(bound, tuple) and len(set(bound)) == 1 else bound for bound in (low, high))
        return replace(self, shape=(len(at), *self.shape[1:]), low=low, high=high, columns=columns)

    def part(self, x: Tensor) -> Tensor:
        """The values that may change, of whole inputs (n, *shape)."""
        movable = self.movable
        return x if movable is None else x[:, movable.to(x.device)]

    def in_units(self, x: Tensor) -> Tensor:
        """`x` (n, *shape) in the units of the table that it comes from, which a model of its columns takes; else as it is."""
        if not self.columns:
            return x
        zero, one = (torch.tensor([column[at] for column in self.columns], dtype=x.dtype, device=x.device) for at in (1, 2))
        zero, one = (value.reshape(-1, *[1] * (len(self.shape) - 1)) for value in (zero, one))
        return zero + (one - zero) * x

    def to_json(self) -> dict[str, Any]:
        """The domain as JSON has it; `from_json` makes it again."""
        fields: dict[str, Any] = {"kind": self.kind, "shape": list(self.shape), "low": self.low, "high": self.high}
        return fields | {"levels": self.levels} | ({"columns": [list(column) for column in self.columns]} if self.columns else {})

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Domain":
        """The domain that these fields describe, also as they come back from JSON."""
        low, high = (tuple(bound) if isinstance(bound, list) else bound for bound in (fields["low"], fields["high"]))
        given = fields.get("columns", ())
        columns = tuple(Column(name, zero, one, fixed, tuple(values)) for name, zero, one, fixed, values in given)
        return cls(
            kind=fields["kind"], shape=tuple(fields["shape"]), low=low, high=high, levels=fields["levels"], columns=columns
        )

    def text(self) -> str:
        """The domain as text for a digest: what it says, not how the class prints it."""
        low, high = (repr([float(value) for value in bound.flatten()]) for bound in self.bounds())
        columns = f" {[list(column) for column in self.columns]}" if self.columns else ""
        return f"{self.kind} {self.shape} {low} {high} {self.levels}{columns}"

    def bounds(self, like: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Lower and upper bound as float tensors that broadcast against a batch, on the device of `like`."""
        device = None if like is None else like.device
        dtype = torch.float32 if like is None else like.dtype

        def expand(bound: float | tuple[float, ...]) -> Tensor:
            value = torch.tensor(bound, device=device, dtype=dtype)
            return value if value.ndim == 0 else value.reshape(1, -1, *[1] * (len(self.shape) - 1))

        return expand(self.low), expand(self.high)

    @property
    def slack(self) -> float:
        """By how much a value may leave the bounds and still count as inside: a millionth of their width.

        Columns that are fixed do not count: in their own units they may be as wide as they like.
        """
        low, high = self.free.bounds()
        return 1e-6 * float((high - low).max())

    @property
    def rounding(self) -> float:
        """The most that float32 can be off at a value within the bounds, of those that may change."""
        low, high = self.free.bounds()
        return 2.0**-24 * float(torch.maximum(low.abs(), high.abs()).max())

    def clamp(self, x: Tensor) -> Tensor:
        """`x` moved into the bounds, in place."""
        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            low, high = self.bounds(x)
            return torch.clamp(x, low, high, out=x)
        return x.clamp_(self.low, self.high)

    def excess(self, x: Tensor) -> float:
        """By how much `x` leaves the bounds at worst; 0 or less inside, NaN where x holds one."""
        if isinstance(self.low, tuple) or isinstance(self.high, tuple):
            low, high = self.bounds(x)
            return float(torch.maximum(low - x, x - high).max())
        lowest, highest = (float(bound) for bound in self.bounds())  # as float32 has them, which is where clamp stops
        least, most = torch.stack((x.amin(), x.amax())).tolist()  # twice as fast on a CPU as aminmax
        return float(max(lowest - least, most - highest)) if least == least and most == most else float("nan")

    def round(self, x: Tensor) -> Tensor:
        """The inputs `x` as they come back from storage: on the nearest of `levels` values, or unchanged without levels.

        What is fixed is stored elsewhere, and comes back as it is.
        """
        if self.levels is None:
            return x
        if (movable := self.movable) is not None:
            return x.index_copy(1, movable.to(x.device), self.free.round(self.part(x)))
        low, high = self.bounds(x)
        steps = self.levels - 1
        return ((x - low) / (high - low) * steps).round_().clamp_(0, steps).div_(steps).mul_(high - low).add_(low)
