"""Stored arrays of inputs as a data set: order of axes, scale, bounds, and a hash of
the content.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from brinell.core.data import DataInfo
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError
from brinell.core.record import Array as Array
from brinell.datasets._labels import Labels

if TYPE_CHECKING:
    from torch import Tensor

Layout = Literal["first", "last"]

CHANNELS = (1, 3, 4)
"""Sizes by which the axis of an image's channels is recognised."""
AXES: dict[Kind, int] = {"vector": 1, "signal": 2, "image": 3, "video": 4}
"""Number of axes of one input of each kind, channels included."""
ELONGATION = 4
"""An axis is that of a signal's channels if the other is at least this many times as long."""
SHORTEST_SIGNAL = 32
"""Fewest values per channel that make a row a signal by its smoothness alone."""
SMOOTH = 0.5
"""Largest ratio of the mean step between neighbours to the deviation, in a signal that is
sampled finely enough."""
FLOAT = np.dtype(np.float32)
DARK = 127
"""Largest value of bytes that are not taken for the levels of an image of 8 bits."""
TOLERANCE = 1e-6
"""Share of the width of the bounds by which a value may exceed them; such values are moved onto
the bound."""
BLOCK = 1 << 22
"""Bytes read at once when a whole array is scanned."""
SAMPLE = 256
"""Number of inputs that are looked at for their smoothness."""


# Order of axes


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """The conversion of stored inputs to inputs with channels first."""

    kind: Kind
    """Kind of an input."""
    shape: tuple[int, ...]
    """Shape of an input, channels first."""
    axes: tuple[int, ...]
    """Order of the axes of the stored array, the axis of the samples first."""

    @classmethod
    def identity(cls, domain: Domain) -> "Arrangement":
        """The arrangement of inputs that are stored in the order of the domain."""
        return cls(kind=domain.kind, shape=domain.shape, axes=tuple(range(1 + len(domain.shape))))

    def __call__(self, block: Array) -> Array:
        """(n, *stored) values as (n, *shape)."""
        return block.transpose(self.axes).reshape(len(block), *self.shape)


def kind_of(
    shape: tuple[int, ...], dtype: "np.dtype[Any]", *, named_signal: bool = False
) -> Kind | None:
    """Kind of stored inputs (n, *stored) by their axes; None for a number of axes without one.

    Args:
        shape: shape of the array, samples first.
        dtype: type of its values; bytes are rather pictures than signals.
        named_signal: True if the name of the array, or its sampling rate, says that it holds
            signals.
    """
    sides = shape[1:]
    if named_signal and len(sides) in (1, 2):
        return "signal"

    if len(sides) == 2:
        # Bytes of such a shape are rather a narrow picture than a signal.
        narrow, long = sorted(sides)
        elongated = narrow == 1 or (
            ELONGATION * narrow <= long and dtype.kind != "b" and dtype != np.uint8
        )
        return "signal" if elongated else "image"

    return {1: "vector", 3: "image", 4: "video"}.get(len(sides))  # type: ignore[return-value]


def arrange(
    shape: tuple[int, ...],
    *,
    kind: Kind | None = None,
    layout: Layout | None = None,
    dtype: "np.dtype[Any]" = FLOAT,
    named_signal: bool = False,
    subject: str = "the array of inputs",
) -> Arrangement:
    """Decide how stored inputs become inputs with channels first.

    Shapes that can be read in several ways are refused.

    Args:
        shape: shape of the array, samples first.
        kind: kind of the inputs; by default `kind_of` decides.
        layout: position of the channels; by default the axis of size 1, 3 or 4, else the shortest;
            of a signal the first, unless it is the longer one by far.
        dtype: type of its values, for `kind_of`.
        named_signal: likewise.
        subject: the array, for messages.
    """
    sides = len(shape) - 1
    order = tuple(range(len(shape)))
    if kind is None and not 1 <= sides <= 4:
        raise RequestError(
            f"{subject} has shape {shape}; inputs need 1 to 4 axes after the one of the samples"
        )

    kind = kind or kind_of(shape, dtype, named_signal=named_signal) or "vector"
    # One axis too few is that of the channels, of which there is one.
    if kind != "vector" and sides == AXES[kind] - 1:
        return Arrangement(kind=kind, shape=(1, *shape[1:]), axes=order)
    if sides != AXES[kind]:
        raise RequestError(
            f"{subject} has shape {shape}, which is no list of {kind}s; give the option kind="
        )

    if kind == "vector" or (layout or _layout(shape, kind, subject)) == "first":
        return Arrangement(kind=kind, shape=shape[1:], axes=order)
    return Arrangement(kind=kind, shape=(shape[-1], *shape[1:-1]), axes=(0, sides, *order[1:-1]))


def _layout(shape: tuple[int, ...], kind: Kind, subject: str) -> Layout:
    """Position of the channels in arrays of this shape; refuses a shape that leaves it open."""
    first, *middle, last = shape[1:]
    if kind == "signal":
        # A signal has a few channels and many moments; in between nothing is certain, and the first
        # axis is the usual one.
        return "last" if ELONGATION * last <= first and last < first else "first"
    if kind == "video" and middle[0] in CHANNELS and first not in CHANNELS and last not in CHANNELS:
        raise RequestError(
            f"{subject} has shape {shape} with frames before channels: write x.swapaxes(1, 2)"
        )
    if (first in CHANNELS) != (last in CHANNELS):
        return "first" if first in CHANNELS else "last"

    # Both or neither could be channels by their size: those are fewer than pixels.
    if first < min(*middle, last):
        return "first"
    if last < min(first, *middle):
        return "last"
    raise RequestError(
        f"{subject} has shape {shape}, whose channels could be first or last: "
        "give layout=first or layout=last"
    )


def looks_like_signals(x: "Array | LazyRows", kind: Kind) -> bool:
    """True if inputs (n, *stored) change smoothly along one axis, as signals do.

    It is asked of inputs that are read as vectors or grey images. Whole numbers from 0 to 255, or
    such numbers divided by 255, are flattened pictures rather than signals.
    """
    if kind == "signal" or x.ndim not in (2, 3) or max(x.shape[1:]) < SHORTEST_SIGNAL:
        return kind == "signal"

    x = np.asarray(x[:SAMPLE], dtype=np.float64)
    spread = float(x.std())
    low = float(x.min())
    high = float(x.max())
    # Pictures of bytes, whatever their scale, are whole numbers.
    scaled = x * (255 if high <= 1 else 1)
    if spread == 0 or (
        low >= 0 and high <= 255 and bool((np.abs(scaled - np.round(scaled)) < 1e-3).all())
    ):
        return False
    steps = [
        np.abs(np.diff(x, axis=axis)).mean() if x.shape[axis] > 1 else np.inf
        for axis in range(1, x.ndim)
    ]
    axis_of_time = int(np.argmax(x.shape[1:]))
    return steps[axis_of_time] < SMOOTH * spread and all(
        step >= SMOOTH * spread for axis, step in enumerate(steps) if axis != axis_of_time
    )


def reading_note(x: "Array | LazyRows", arrangement: Arrangement) -> tuple[str, ...]:
    """A note on a reading that the axes alone decided, with the option for the other one.

    Empty if there is only one.
    """
    sides = x.shape[1:]
    if len(sides) == 1 and arrangement.kind == "vector" and looks_like_signals(x, "vector"):
        return (
            f"rows of {sides[0]} values that change smoothly are read as vectors: "
            "give kind=signal if they are signals",
        )
    # Bytes are pictures, and one column or row is no picture: nothing is in doubt.
    if len(sides) != 2 or 1 in sides or x.dtype == np.uint8:
        return ()

    if arrangement.kind == "image":
        return (
            f"inputs of shape {sides} are read as grey images: give kind=signal "
            f"for signals of {sides[0]} channels",
        )
    channels, length = arrangement.shape
    text = (
        f"inputs of shape {sides} are read as signals of {channels} channels with "
        f"{length} values each"
    )
    return (f"{text}: give kind=image for grey images",)


# Scale and bounds


@dataclass(frozen=True, kw_only=True)
class ValueFacts:
    """The result of a scan of all values of an array."""

    minimum: float
    """Smallest value."""
    maximum: float
    """Largest value."""
    bytes8: bool
    """True if each value is a multiple of 1/255, as in an image that was stored in 8 bits."""
    integral: bool
    """True if each value is a whole number."""


class BoundsError(RequestError):
    """Stored values that leave their bounds, or bytes that are not the levels of an image."""

    def __init__(
        self, problem: str, remedy: str, x: "Array | LazyRows", kind: Kind, facts: ValueFacts
    ) -> None:
        super().__init__(problem, remedy=remedy)
        self.x, self.kind, self.facts = x, kind, facts


def scan(x: "Array | LazyRows", subject: str = "the array of inputs") -> ValueFacts:
    """Scan all values once, a block at a time."""
    if x.dtype.kind not in "biuf":
        raise RequestError(f"{subject} has type {x.dtype}; inputs must be real numbers")
    minimum, maximum, bytes8, integral = np.inf, -np.inf, True, True

    for rows in blocks(x):
        low, high = float(rows.min()), float(rows.max())
        if not np.isfinite(low) or not np.isfinite(high):
            raise RequestError(
                f"{subject} holds NaN or infinity",
                remedy="correct them, or keep the other samples: "
                "keep = numpy.isfinite(x).reshape(len(x), -1).all(1); "
                "numpy.savez('FILE.npz', x=x[keep], y=y[keep])",
            )
        minimum, maximum = min(minimum, low), max(maximum, high)
        # Once refuted, neither is looked at again.
        integral = integral and (x.dtype.kind != "f" or bool((rows == np.floor(rows)).all()))
        if bytes8:
            grid = rows * np.float32(255)
            bytes8 = bool((np.abs(grid - np.round(grid)) < 1e-3).all())

    return ValueFacts(minimum=minimum, maximum=maximum, bytes8=bytes8, integral=integral)


def blocks(x: "Array | LazyRows") -> Iterator[Array]:
    """The rows of `x` in order, some megabytes at a time."""
    rows = max(1, BLOCK // max(1, math.prod(x.shape[1:]) * x.dtype.itemsize))
    for start in range(0, len(x), rows):
        yield x[start : start + rows]


def domain_of(
    x: "Array | LazyRows",
    arrangement: Arrangement,
    *,
    low: float | None = None,
    high: float | None = None,
    levels: int | None = None,
    divide: float | None = None,
    subject: str = "the array of inputs",
) -> tuple[Domain, float]:
    """The domain of stored inputs, and the number by which to divide stored values.

    Bytes without bounds or divisor are divided by 255, and refused if none exceeds 127. Everything
    else is divided by `divide` and must then lie between `low` (default 0) and `high` (default 1).
    The storage levels are 256 for bytes and for images whose values all are multiples of 1/255, the
    whole numbers between the bounds for integers, none otherwise; `levels` overrides this (0 for
    none).
    """
    lower = 0.0 if low is None else float(low)
    upper = 1.0 if high is None else float(high)
    facts = scan(x, subject)
    grid = 256
    if x.dtype == np.uint8 and low is None and high is None and divide is None:
        divide = 255.0
        # Such bytes may be levels of a dark image, or counts of something else.
        if 0 < facts.maximum <= DARK:
            problem = (
                f"{subject} holds bytes up to {facts.maximum:g}, which would be divided by 255"
            )
            raise BoundsError(problem, "give their scale by divide=", x, arrangement.kind, facts)
    else:
        divide = divide or 1.0
        slack = TOLERANCE * (upper - lower)
        minimum = facts.minimum / divide
        maximum = facts.maximum / divide
        if minimum < lower - slack or maximum > upper + slack:
            problem = (
                f"{subject} holds values from {minimum:g} to {maximum:g}, outside the "
                f"bounds {lower:g} to {upper:g}"
            )
            raise BoundsError(
                problem,
                "give bounds that hold them, or divide the values",
                x,
                arrangement.kind,
                facts,
            )
        grid = _levels_of(x, arrangement.kind, facts, divide, (lower, upper))

    grid = grid if levels is None else levels
    domain = make_domain(
        subject,
        kind=arrangement.kind,
        shape=arrangement.shape,
        low=lower,
        high=upper,
        levels=grid or None,
    )
    return domain, divide


def _levels_of(
    x: "Array | LazyRows", kind: Kind, facts: Any, divide: float, bounds: tuple[float, float]
) -> int:
    """Number of values that the storage tells apart between the bounds; 0 for any."""
    lower, upper = bounds
    if x.dtype.kind != "f":
        return round((upper - lower) * divide) + 1 if upper > lower else 0
    # Real numbers of pictures that all are multiples of 1/255 were bytes once.
    are_bytes = kind in ("image", "video") and facts.bytes8 and bounds == (0, 1)
    return 256 if are_bytes else 0


def make_domain(subject: object, **settings: Any) -> Domain:
    """A domain with these settings; raises a RequestError about `subject` if they are invalid."""
    try:
        return Domain(**settings)
    except ValueError as error:
        raise RequestError(f"{subject}: {error}") from None


# The data set


class LazyRows(ABC):
    """Inputs (n, *shape) that are created on demand.

    They have the part of an array's interface that `StoredArrays` needs.
    """

    def __init__(self, n: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.ndim, self.dtype = (n, *shape), 1 + len(shape), dtype

    def __len__(self) -> int:
        """Number of inputs."""
        return self.shape[0]

    def __getitem__(self, rows: slice | Array) -> Array:
        """The inputs of a slice, or at some indices."""
        indices = range(*rows.indices(len(self))) if isinstance(rows, slice) else rows.tolist()
        values = np.empty((len(indices), *self.shape[1:]), self.dtype)
        for position, index in enumerate(indices):
            values[position] = self.row(index)
        return values

    @abstractmethod
    def row(self, index: int) -> Array:
        """(*shape): the input at `index`."""


class StoredArrays:
    """A data set over an array, or over rows that are read on demand.

    Args:
        x: (n, *stored) values.
        y: (n,) int64 labels.
        domain: domain of the inputs, after the division.
        groups: (n,) group of each input, such as its patient, if known.
        arrangement: converts stored inputs to channels first; None if they already are.
        divisor: divisor of stored values; None if they are the inputs themselves, and the digest
            then names no divisor.
        fixed_channels: (n, k) float32: the last k channels of signals, each constant over time, in
            the domain's units.
        digest: hashes the content, if that is cheaper than to scan all inputs.
        truth: arrays with the truth about parts of inputs, which the digest covers.
    """

    def __init__(
        self,
        *,
        name: str,
        x: Any,
        y: Labels,
        domain: Domain,
        classes: tuple[str, ...],
        groups: Array | None = None,
        arrangement: Arrangement | None = None,
        divisor: float | None = 1.0,
        info: DataInfo | None = None,
        fixed_channels: Array | None = None,
        digest: Callable[[], str] | None = None,
        truth: Sequence[Array] = (),
    ) -> None:
        self.name, self.domain, self.classes, self.groups = name, domain, classes, groups
        self.info = info or DataInfo()

        self._x, self._y, self._divisor, self._fixed_channels = x, y, divisor, fixed_channels
        self._arrangement = arrangement or Arrangement.identity(domain)
        self._content, self._digest, self._truth = digest or self._values, "", truth

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._y)

    def labels(self) -> Labels:
        """(n,) int64: all labels."""
        return self._y.copy()

    def load(self, indices: Sequence[int]) -> "Tensor":
        """(len(indices), *shape) float32 within the bounds.

        Raises:
            RequestError: a file that is damaged or has changed.
            SampleError: a video that cannot be read.
        """
        import torch

        positions = np.asarray(indices, dtype=np.int64)
        block = self._arrangement(self._x[positions])
        x = torch.from_numpy(block.astype(np.float32, order="C"))
        x = x.div_(self._divisor) if self._divisor not in (None, 1) else x
        # One number of each channel for a sample, which stands at every moment of its signal.
        if self._fixed_channels is not None:
            x = torch.cat(
                [
                    x,
                    torch.from_numpy(self._fixed_channels[positions])[:, :, None].expand(
                        -1, -1, x.shape[2]
                    ),
                ],
                1,
            )
        # A value may exceed its bounds by the tolerance.
        return self.domain.clamp(x)

    def digest(self) -> str:
        """Hash of the content: inputs, labels and the names of the classes, all in order.

        For arrays it covers the domain and the inputs channels first, so it is the same in any
        layout or file format. For folders it covers the files' bytes and the conversion to inputs;
        file names do not count.
        """
        if not self._digest:
            text = "\n".join((self._content(), *self.classes))
            self._digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return self._digest

    def _values(self) -> str:
        """Hash of the inputs, the labels and the truth, in the units of the domain."""
        settings = self.domain.text() + ("" if self._divisor is None else f" {self._divisor!r}")
        hash = hashlib.blake2b(settings.encode(), digest_size=16)
        # Inputs are hashed as they are stored and arranged, so that a copy in another layout is the
        # same data.
        for rows in blocks(self._x):
            hash.update(little_endian_bytes(self._arrangement(rows)))

        # In one byte order, so that machines of either kind agree.
        hash.update(little_endian_bytes(self._y))
        for part in (
            *(() if self._fixed_channels is None else (self._fixed_channels,)),
            *self._truth,
        ):
            hash.update(little_endian_bytes(part))
        return hash.hexdigest()


def little_endian_bytes(x: Array) -> bytes:
    """The values of `x` in C order, low byte first on every machine."""
    return x.astype(x.dtype.newbyteorder("<"), copy=False).tobytes()
