"""Stored arrays of inputs as a data set: order of axes, scale, bounds, and a hash of the content."""

import hashlib
import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from brinell.core.data import DataInfo
from brinell.core.domain import Column, Domain
from brinell.core.errors import RequestError, short
from brinell.core.record import Array as Array
from brinell.datasets._advice import DARK, Outline, Span, advise, head_of
from brinell.datasets._axes import Arrangement
from brinell.datasets._labels import Labels

if TYPE_CHECKING:
    from torch import Tensor

Bounds = Literal["columns"] | tuple[Any, Any]

TOLERANCE = 1e-6
"""Share of the width of the bounds by which a value may exceed them; such values are moved onto the bound."""
BLOCK = 1 << 22
"""Bytes read at once when a whole array is scanned."""


def span(x: "Array | Rows", subject: str = "the array of inputs") -> Span:
    """Scan all values once, a block at a time."""
    if x.dtype.kind not in "biuf":
        raise RequestError(f"{subject} has type {x.dtype}; inputs must be real numbers")
    minimum, maximum, bytes8, integral = np.inf, -np.inf, True, True
    for rows in blocks(x):
        low, high = float(rows.min()), float(rows.max())
        if not np.isfinite(low) or not np.isfinite(high):
            raise RequestError(f"{subject} holds NaN or infinity: correct or drop those samples")
        minimum, maximum = min(minimum, low), max(maximum, high)
        integral = integral and (x.dtype.kind != "f" or bool((rows == np.floor(rows)).all()))
        if bytes8:
            grid = rows * np.float32(255)
            bytes8 = bool((np.abs(grid - np.round(grid)) < 1e-3).all())
    return Span(minimum=minimum, maximum=maximum, bytes8=bytes8, integral=integral)


def blocks(x: "Array | Rows") -> Iterator[Array]:
    """The rows of `x` in order, some megabytes at a time."""
    rows = max(1, BLOCK // max(1, math.prod(x.shape[1:]) * x.dtype.itemsize))
    for start in range(0, len(x), rows):
        yield x[start : start + rows]
        release(x)


def release(x: "Array | Rows") -> None:
    """Release the memory pages of a mapped array; the system reads them again from its cache or the file."""
    pages = getattr(x, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def domain_of(
    x: "Array | Rows",
    arrangement: Arrangement,
    *,
    low: float | None = None,
    high: float | None = None,
    levels: int | None = None,
    divide: float = 1.0,
    subject: str = "the array of inputs",
    remedy: Callable[[Outline], str] = lambda outline: "",
) -> tuple[Domain, float]:
    """The domain of stored inputs, and the number by which to divide stored values.

    Bytes without bounds are divided by 255, and refused if none exceeds 127. Everything else is divided by `divide` and must
    then lie between `low` (default 0) and `high` (default 1); `remedy` returns advice for values that do not. The storage levels
    are 256 for bytes and for images whose values all are multiples of 1/255, the whole numbers between the bounds for integers,
    none otherwise; `levels` overrides this (0 for none).
    """
    lower, upper = 0.0 if low is None else float(low), 1.0 if high is None else float(high)
    grid: int | None = 256
    if x.dtype == np.uint8 and low is None and high is None and divide == 1:
        divide = 255.0
        if 0 < (largest := _byte_maximum(x)) <= DARK:
            outline = Outline(kind=arrangement.kind, span=span(x, subject), dtype=x.dtype, head=head_of(x))
            raise RequestError(
                f"{subject} holds bytes up to {largest}, which would be divided by 255: "
                f"{remedy(outline) or 'give their scale by divide or by low and high'}; for dark images of 8 bits, divide=255"
            )
    else:
        values = span(x, subject)
        slack = TOLERANCE * (upper - lower)
        minimum, maximum = values.minimum / divide, values.maximum / divide
        if minimum < lower - slack or maximum > upper + slack:
            raise RequestError(
                f"{subject} holds values from {minimum:g} to {maximum:g}, outside the bounds {lower:g} to {upper:g}: "
                + (
                    remedy(Outline(kind=arrangement.kind, span=values, dtype=x.dtype, head=head_of(x)))
                    or "give bounds that hold them (low and high), or scale the data"
                )
            )
        if x.dtype.kind != "f":
            grid = round((upper - lower) * divide) + 1 if upper > lower else None
        elif not (arrangement.kind in ("image", "video") and values.bytes8 and (lower, upper) == (0, 1)):
            grid = None
    grid = grid if levels is None else levels or None
    return make_domain(subject, kind=arrangement.kind, shape=arrangement.shape, low=lower, high=upper, levels=grid), divide


def _byte_maximum(x: "Array | Rows") -> int:
    """The largest of the bytes, or the first that images of 8 bits alone reach."""
    largest = 0
    for rows in blocks(x):
        largest = max(largest, int(rows.max()))
        if largest > DARK:
            break
    return largest


def make_domain(subject: object, **settings: Any) -> Domain:
    """A domain with these settings; raises a RequestError about `subject` if they are invalid."""
    try:
        return Domain(**settings)
    except ValueError as error:
        raise RequestError(f"{subject}: {error}") from None


def fit_domain(
    x: "Array | Rows",
    arrangement: Arrangement,
    domain: Domain | None,
    columns: tuple[str, ...],
    bounds: Bounds | None,
    divide: float | None,
) -> tuple["Array | Rows", Domain, float, tuple[str, ...]]:
    """Inputs of memory in their domain.

    Args:
        x: (n, *stored) values.
        arrangement: order of the axes.
        domain: the user's domain, or None.
        columns: names of columns with separate units, if any.
        bounds: the user's (low, high) or "columns", or None.
        divide: the user's divisor, or None.

    Returns:
        The inputs, their domain, the divisor of stored values, and notes on the decisions made.
    """
    if divide is not None and not (_is_number(divide) and divide > 0):
        raise RequestError(f"divide is {short(divide)}: give a number above 0, such as 255")
    if domain is not None:
        if divide is not None:
            raise RequestError("divide is for data without a domain: divide the inputs, or leave the domain out")
        check_bounds(x, domain)
        return x, domain, 1.0, ()
    bounds = _plain_bounds(bounds)
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2 and all(map(_is_number, bounds))
    if columns or (bounds is not None and arrangement.kind == "vector" and not pair):
        if divide is not None:
            raise RequestError("divide is for inputs of one scale, and these have bounds for each column: leave one of them out")
        x, domain = scale_columns(x, columns, bounds)
        return x, domain, 1.0, ("budgets are shares of each column's range, and the model is asked in the columns' own units",)
    divisor = 1.0 if divide is None else float(divide)
    if bounds is None:
        source = "data" if isinstance(x, Rows) else "x, y"
        if divide == 1 and x.dtype == np.uint8:  # taken at its word, where bytes are divided by 255 otherwise
            return x, *domain_of(x, arrangement, low=0.0, high=1.0), ()
        return x, *domain_of(x, arrangement, divide=divisor, remedy=lambda outline: advise(outline).in_python(source)), ()
    if not pair:
        raise RequestError(f"bounds of {arrangement.kind}s are two numbers, (low, high), and not {str(bounds)[:60]}")
    return x, *domain_of(x, arrangement, low=float(bounds[0]), high=float(bounds[1]), divide=divisor), ()


def _plain_bounds(bounds: Any) -> Any:
    """Bounds of arrays and tensors as numbers and lists."""
    ends = bounds if isinstance(bounds, tuple | list) else bounds.tolist() if hasattr(bounds, "tolist") else None
    return bounds if not isinstance(ends, tuple | list) else [end.tolist() if hasattr(end, "tolist") else end for end in ends]


def _is_number(value: Any) -> bool:
    """True for a real number, not a bool, that float holds."""
    try:
        return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
    except (OverflowError, TypeError):
        return False


def check_bounds(x: "Array | Rows", domain: Domain) -> None:
    """Refuse inputs outside the user's domain."""
    import torch

    low, high = domain.bounds()
    slack = TOLERANCE * float((high - low).max())
    for rows in blocks(x):
        values = torch.from_numpy(rows.astype(np.float32))
        if not domain.excess(values) <= slack:
            minimum, maximum = (float(value) for value in values.aminmax())
            raise RequestError(
                f"inputs reach from {minimum:g} to {maximum:g}, outside the bounds {domain.low} to {domain.high} (or hold NaN): "
                "scale them, or give a domain that holds them"
            )


def scale_columns(x: "Array | Rows", names: tuple[str, ...], bounds: Any) -> tuple[Array, Domain]:
    """Scale vectors with separate units to [0, 1], column by column; columns that are constant are fixed."""
    values = np.array(x[:], dtype=np.float64)
    if not np.isfinite(values).all():
        raise RequestError("the array of inputs holds NaN or infinity: correct or drop those samples")
    names = names or tuple(map(str, range(values.shape[1])))
    has_own_bounds = bounds is None or (isinstance(bounds, str) and bounds == "columns")
    minimum, maximum = (values.min(0), values.max(0)) if has_own_bounds else _column_bounds(bounds, values.shape[1])
    if columns_outside := np.flatnonzero((values < minimum).any(0) | (values > maximum).any(0)).tolist():
        raise RequestError(f"column {names[columns_outside[0]]} holds values outside of its bounds: widen them")
    varies = maximum > minimum
    low, width = np.where(varies, 0.0, minimum), np.where(varies, maximum - minimum, 1.0)
    columns = tuple(
        Column(name, low, high) if low < high else Column(name, fixed=True)
        for name, low, high in zip(names, minimum.tolist(), maximum.tolist(), strict=True)
    )
    shape, ends = (len(names),), (tuple(low.tolist()), tuple((low + 1).tolist()))
    domain = make_domain("the array of inputs", kind="vector", shape=shape, low=ends[0], high=ends[1], columns=columns)
    return np.where(varies, (values - minimum) / width, values).astype(np.float32), domain


def _column_bounds(bounds: Any, width: int) -> tuple[Array, Array]:
    if isinstance(bounds, str):
        raise RequestError(f"bounds is {bounds!r}: give (low, high), or 'columns' for each column's own range")
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (width,)) for end in bounds)
    except (TypeError, ValueError):
        raise RequestError(f"bounds are (low, high), each a number or one for each of the {width} columns") from None
    return low, high


class Rows(ABC):
    """Inputs (n, *shape) that are created on demand, with the part of an array's interface that `StoredArrays` needs."""

    def __init__(self, n: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.ndim, self.dtype = (n, *shape), 1 + len(shape), dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Array) -> Array:
        indices = range(*rows.indices(len(self))) if isinstance(rows, slice) else rows.tolist()
        values = np.empty((len(indices), *self.shape[1:]), self.dtype)
        for position, index in enumerate(indices):
            values[position] = self.row(index)
        return values

    @abstractmethod
    def row(self, index: int) -> Array:
        """(*shape): the input at `index`."""


class StoredArrays:
    """A data set over an array that may be larger than memory: only the requested rows are read.

    Args:
        name: name in reports.
        x: (n, *stored) values, in memory or mapped.
        y: (n,) int64 labels.
        domain: domain of the inputs, after the division.
        classes: names of the classes.
        arrangement: converts stored inputs to channels first; None if they already are.
        divisor: divisor of stored values; None if they are the inputs themselves, and the digest then names no divisor.
        info: further facts about the data set.
        groups: (n,) group of each input, such as its patient, if known.
        fixed_channels: (n, k) float32: the last k channels of signals, each constant over time, in the domain's units.
        digest: hashes the data set's content, if that is cheaper than to scan all inputs.
    """

    def __init__(
        self,
        *,
        name: str,
        x: Any,
        y: Labels,
        domain: Domain,
        classes: tuple[str, ...],
        arrangement: Arrangement | None = None,
        divisor: float | None = 1.0,
        info: DataInfo | None = None,
        groups: Array | None = None,
        fixed_channels: Array | None = None,
        digest: Callable[[], str] | None = None,
    ) -> None:
        self.name, self.domain, self.classes, self.groups = name, domain, classes, groups
        self.info = info or DataInfo()
        self._x, self._y, self._divisor, self._fixed_channels = x, y, divisor, fixed_channels
        self._arrangement = arrangement or Arrangement.identity(domain)
        self._content, self._digest = digest or self._values, ""

    def __len__(self) -> int:
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
        release(self._x)
        x = torch.from_numpy(block.astype(np.float32, order="C"))
        x = x.div_(self._divisor) if self._divisor not in (None, 1) else x
        if self._fixed_channels is not None:
            x = torch.cat([x, torch.from_numpy(self._fixed_channels[positions])[:, :, None].expand(-1, -1, x.shape[2])], 1)
        return self.domain.clamp(x)

    def digest(self) -> str:
        """Hash of the content.

        For arrays it covers domain, inputs (channels first) and labels, so it is the same in any layout or file format. For
        folders it covers the files' bytes, the labels and the conversion to inputs; file names do not count.
        """
        self._digest = self._digest or self._content()
        return self._digest

    def _values(self) -> str:
        """Hash of the inputs as the audit uses them."""
        settings = self.domain.text() + ("" if self._divisor is None else f" {self._divisor!r}")
        hash = hashlib.blake2b(settings.encode(), digest_size=16)
        for rows in blocks(self._x):
            hash.update(little_endian_bytes(self._arrangement(rows)))
        hash.update(little_endian_bytes(self._y))
        if self._fixed_channels is not None:
            hash.update(little_endian_bytes(self._fixed_channels))
        return hash.hexdigest()


def little_endian_bytes(x: Array) -> bytes:
    """The values of `x` in C order, low byte first on every machine."""
    return x.astype(x.dtype.newbyteorder("<"), copy=False).tobytes()
