"""Arrays of inputs as they are stored, read as a data set: order of axes, scale, bounds, and a hash of the content."""

import hashlib
import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brinell.core.bounded import MOST_CLASSES
from brinell.core.contracts import DataInfo, Domain, Kind
from brinell.core.domain import Column
from brinell.core.errors import RequestError
from brinell.core.record import Array as Array

Labels = np.ndarray[tuple[int], np.dtype[np.int64]]
Layout = Literal["first", "last"]
Bounds = Literal["columns"] | tuple[Any, Any]

CHANNELS = (1, 3, 4)
"""Sizes by which an axis is recognised as the one of the channels."""
AXES: dict[Kind, int] = {"vector": 1, "signal": 2, "image": 3, "video": 4}
"""How many axes one input of each kind has, channels included."""
TOLERANCE = 1e-6
"""By how much of the width of the bounds a value may leave them; such values are moved onto the bound."""
NORMALISED = -0.05
"""Inputs that reach below this have been normalised, or were never pictures."""
BLOCK = 1 << 22
"""Bytes read at once where a whole array is gone through."""


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """How stored inputs become inputs with channels first."""

    kind: Kind
    """What one input is."""
    shape: tuple[int, ...]
    """Its shape, channels first."""
    axes: tuple[int, ...]
    """Order in which to take the axes of the stored array, the one of the samples first."""

    @classmethod
    def straight(cls, domain: Domain) -> "Arrangement":
        """That of inputs which are stored as the domain has them."""
        return cls(kind=domain.kind, shape=domain.shape, axes=tuple(range(1 + len(domain.shape))))

    def __call__(self, block: Array) -> Array:
        """(n, *stored) values as (n, *shape)."""
        return block.transpose(self.axes).reshape(len(block), *self.shape)


def arrange(
    stored: tuple[int, ...], *, kind: Kind | None = None, layout: Layout | None = None, what: str = "the array of inputs"
) -> Arrangement:
    """Decide where the channels are.

    (N, D) is a vector, (N, H, W) a grey image, (N, H, W, C) or (N, C, H, W) an image, one more axis a video; with kind
    `signal`, (N, T) or (N, C, T). The axis of size 1, 3 or 4 holds the channels unless `layout` says which; those of a signal
    come first unless it says otherwise.
    """
    sides, straight = len(stored) - 1, tuple(range(len(stored)))
    if kind is None and not 1 <= sides <= 4:
        raise RequestError(f"{what} has shape {stored}; inputs need 1 to 4 axes after the one of the samples")
    kind = kind or ("vector", "image", "image", "video")[sides - 1]
    if kind != "vector" and sides == AXES[kind] - 1:
        return Arrangement(kind=kind, shape=(1, *stored[1:]), axes=straight)
    if sides != AXES[kind]:
        raise RequestError(f"{what} has shape {stored}, which is no list of {kind}s; give the option kind=")
    if kind == "vector" or (layout or _layout(stored, kind, what)) == "first":
        return Arrangement(kind=kind, shape=stored[1:], axes=straight)
    return Arrangement(kind=kind, shape=(stored[-1], *stored[1:-1]), axes=(0, sides, *straight[1:-1]))


def _layout(stored: tuple[int, ...], kind: Kind, what: str) -> Layout:
    layout: Layout | None = "first" if kind == "signal" else _size_layout(stored)
    if layout is None:
        where = "first or last" if stored[1] in CHANNELS else "anywhere"
        raise RequestError(
            f"{what} has shape {stored}, whose channels could be {where}: give the option layout=first or layout=last"
        )
    return layout


def _size_layout(stored: tuple[int, ...]) -> Layout | None:
    """Where the axis of size 1, 3 or 4 is; None where that fits both ends, or neither."""
    first, last = stored[1] in CHANNELS, stored[-1] in CHANNELS
    return None if first == last else "first" if first else "last"


def arrange_axes(stored: tuple[int, ...], domain: Domain | None, kind: Kind | None, layout: Layout | None) -> Arrangement:
    """How arrays become inputs with their channels first."""
    what = f"the array of inputs has shape {stored}"
    if len(stored) < 2:
        raise RequestError(f"{what}; it needs the samples first and then each input")
    if domain is not None:
        if stored[1:] != domain.shape:
            raise RequestError(f"inputs of shape {stored[1:]} do not live in a domain of shape {domain.shape}")
        return Arrangement.straight(domain)
    if kind not in (None, *AXES):
        raise RequestError(f"kind is {kind!r}; it is one of {', '.join(AXES)}")
    if layout not in (None, "first", "last"):
        raise RequestError(f"layout is {layout!r}; it is first or last")
    if kind is None:
        kind = {axes: kind for kind, axes in AXES.items()}.get(len(stored) - 1)
        if kind is None:
            raise RequestError(f"{what}; give a Domain that says what an input is")
        if kind == "signal" and layout is None and not (stored[1] == 1 or 4 * stored[1] <= stored[2]):
            raise RequestError(
                f"{what}, which may be grey pictures or signals of {stored[1]} channels: for pictures write x[:, None], for "
                "signals brinell.data(x, y, kind='signal')"
            )
    if kind in ("image", "video") and layout is None and len(stored) == AXES[kind] + 1:
        layout = _layout_by_size(stored, kind, what)
    return arrange(stored, kind=kind, layout=layout)


def _layout_by_size(stored: tuple[int, ...], kind: Kind, what: str) -> Layout:
    """Where the channels of images and videos are; refuses a shape that leaves it open."""
    first, *between, last = stored[1:]
    if kind == "video" and between[0] in CHANNELS and first not in CHANNELS and last not in CHANNELS:
        raise RequestError(f"{what} with frames before channels: write x.swapaxes(1, 2)")
    if layout := _size_layout(stored):
        return layout
    if first < min(*between, last):
        return "first"
    if last < min(first, *between):
        return "last"
    raise RequestError(
        f"{what}, whose channels could be first or last: say it by brinell.data(x, y, layout='first') or layout='last'"
    )


@dataclass(frozen=True, kw_only=True)
class Span:
    """What a pass over all values found."""

    least: float
    """Smallest value."""
    most: float
    """Largest value."""
    bytes8: bool
    """Whether each value is a multiple of 1/255, as in an image that was stored in 8 bits."""


def span(x: "Array | Rows", what: str = "the array of inputs") -> Span:
    """Go through all values once, a block at a time."""
    if x.dtype.kind not in "biuf":
        raise RequestError(f"{what} has type {x.dtype}; inputs must be real numbers")
    least, most, bytes8 = np.inf, -np.inf, True
    for rows in blocks(x):
        low, high = float(rows.min()), float(rows.max())
        if not np.isfinite(low) or not np.isfinite(high):
            raise RequestError(f"{what} holds NaN or infinity: correct or drop those samples")
        least, most = min(least, low), max(most, high)
        if bytes8:
            grid = rows * np.float32(255)
            bytes8 = bool((np.abs(grid - np.round(grid)) < 1e-3).all())
    return Span(least=least, most=most, bytes8=bytes8)


def blocks(x: "Array | Rows") -> Iterator[Array]:
    """The rows of `x` in order, some megabytes at a time."""
    rows = max(1, BLOCK // max(1, math.prod(x.shape[1:]) * x.dtype.itemsize))
    for start in range(0, len(x), rows):
        yield x[start : start + rows]
        release(x)


def release(x: "Array | Rows") -> None:
    """Take the pages of a mapped array out of this process; the system reads them again from its cache or the file."""
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
    what: str = "the array of inputs",
    remedy: Callable[[Span], str] = lambda span: "",
) -> tuple[Domain, float]:
    """The domain of stored inputs, and the number to divide stored values by.

    Bytes without bounds are divided by 255. Everything else is divided by `divide` and must then lie between `low` (default 0)
    and `high` (default 1); `remedy` says what to do about values that do not. The storage levels are 256 for bytes and for images
    whose values all are multiples of 1/255, the whole numbers between the bounds for integers, none otherwise; `levels` overrides
    (0 for none).
    """
    lower, upper = 0.0 if low is None else float(low), 1.0 if high is None else float(high)
    grid: int | None = 256
    if x.dtype == np.uint8 and low is None and high is None and divide == 1:
        divide = 255.0
    else:
        values = span(x, what)
        slack = TOLERANCE * (upper - lower)
        least, most = values.least / divide, values.most / divide
        if least < lower - slack or most > upper + slack:
            raise RequestError(
                f"{what} holds values from {least:g} to {most:g}, outside the bounds {lower:g} to {upper:g}: "
                + (remedy(values) or "give bounds that hold them (low and high), or scale the data")
            )
        if x.dtype.kind != "f":
            grid = round((upper - lower) * divide) + 1 if upper > lower else None
        elif not (arrangement.kind in ("image", "video") and values.bytes8 and (lower, upper) == (0, 1)):
            grid = None
    grid = grid if levels is None else levels or None
    return make_domain(what, kind=arrangement.kind, shape=arrangement.shape, low=lower, high=upper, levels=grid), divide


def make_domain(what: object, **settings: Any) -> Domain:
    """A domain with these settings; RequestError, of what they describe, where they make no sense."""
    try:
        return Domain(**settings)
    except ValueError as error:
        raise RequestError(f"{what}: {error}") from None


def fit_domain(
    x: "Array | Rows", arrangement: Arrangement, domain: Domain | None, columns: tuple[str, ...], bounds: Bounds | None
) -> tuple["Array | Rows", Domain, float, tuple[str, ...]]:
    """Inputs of memory in their domain: the inputs, the domain, what they are divided by, and what was decided.

    Args:
        x: (n, *stored) values.
        arrangement: of the axes.
        domain: where it was given.
        columns: the names of columns with units of their own, if any.
        bounds: (low, high) or "columns", where they were given.
    """
    if domain is not None:
        check_bounds(x, domain)
        return x, domain, 1.0, ()
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2 and all(map(_is_number, bounds))
    if columns or (bounds is not None and arrangement.kind == "vector" and not pair):
        x, domain = scale_columns(x, columns, bounds)
        return x, domain, 1.0, ("budgets are shares of each column's range, and the model is asked in the columns' own units",)
    if bounds is None:
        return x, *domain_of(x, arrangement, remedy=lambda span: _remedy(span, x.ndim)), ()
    if not pair:
        raise RequestError(f"bounds of {arrangement.kind}s are two numbers, (low, high), and not {str(bounds)[:60]}")
    return x, *domain_of(x, arrangement, low=float(bounds[0]), high=float(bounds[1])), ()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _remedy(span: Span, axes: int) -> str:
    """What is probably the matter with values outside of [0, 1], and what to write instead."""
    if span.least < NORMALISED and axes > 3:
        return "they look normalised: take the normalisation out of the data and give it as mean= and std= of the model"
    if axes == 2:
        return "for columns in units of their own write brinell.data(x, y, bounds='columns')"
    if 1 < span.most <= 255:
        return "divide them by 255, or write brinell.data(x, y, bounds=(0, 255)) for a model that takes them as they are"
    return ""


def check_bounds(x: "Array | Rows", domain: Domain) -> None:
    """Refuse inputs outside of a domain that was given."""
    low, high = domain.bounds()
    slack = TOLERANCE * float((high - low).max())
    for rows in blocks(x):
        values = torch.from_numpy(rows.astype(np.float32))
        if not domain.excess(values) <= slack:
            least, most = (float(value) for value in values.aminmax())
            raise RequestError(
                f"inputs reach from {least:g} to {most:g}, outside the bounds {domain.low} to {domain.high} (or hold NaN): "
                "scale them, or give a domain that holds them"
            )


def scale_columns(x: "Array | Rows", names: tuple[str, ...], bounds: Any) -> tuple[Array, Domain]:
    """Vectors whose columns have units of their own, moved to [0, 1] column by column; what never differs cannot be changed."""
    values = np.array(x[:], dtype=np.float64)
    if not np.isfinite(values).all():
        raise RequestError("the array of inputs holds NaN or infinity: correct or drop those samples")
    names = names or tuple(map(str, range(values.shape[1])))
    own = bounds is None or (isinstance(bounds, str) and bounds == "columns")
    least, most = (values.min(0), values.max(0)) if own else _column_bounds(bounds, values.shape[1])
    if outside := np.flatnonzero((values < least).any(0) | (values > most).any(0)).tolist():
        raise RequestError(f"column {names[outside[0]]} holds values outside of its bounds: widen them")
    moves = most > least
    low, width = np.where(moves, 0.0, least), np.where(moves, most - least, 1.0)
    columns = tuple(
        Column(name, low, high) if low < high else Column(name, fixed=True)
        for name, low, high in zip(names, least.tolist(), most.tolist(), strict=True)
    )
    shape, ends = (len(names),), (tuple(low.tolist()), tuple((low + 1).tolist()))
    domain = make_domain("the array of inputs", kind="vector", shape=shape, low=ends[0], high=ends[1], columns=columns)
    return np.where(moves, (values - least) / width, values).astype(np.float32), domain


def _column_bounds(bounds: Any, width: int) -> tuple[Array, Array]:
    if isinstance(bounds, str):
        raise RequestError(f"bounds is {bounds!r}: give (low, high), or 'columns' for each column's own range")
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (width,)) for end in bounds)
    except (TypeError, ValueError):
        raise RequestError(f"bounds are (low, high), each a number or one for each of the {width} columns") from None
    return low, high


def check_labels(y: Array, n: int, what: str = "the array of labels") -> Labels:
    """The labels as (n,) int64."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise RequestError(f"{what} has shape {y.shape}; labels are one whole number per sample (of one-hot rows, the argmax)")
    if len(y) != n:
        raise RequestError(f"{what} holds {len(y)} labels for {n} inputs: they must belong together one to one")
    if n == 0:
        raise RequestError(f"{what} is empty: there is nothing to audit")
    if y.dtype.kind not in "iuf" or (y.dtype.kind == "f" and not bool((y == np.floor(y)).all())):
        raise RequestError(f"{what} has type {y.dtype}; labels are whole numbers from 0 on")
    if y.min() < 0:
        raise RequestError(f"{what} holds the label {int(y.min())}; labels are counted from 0")
    if y.max() >= MOST_CLASSES:
        raise RequestError(f"{what} holds the label {int(y.max())}; labels are below {MOST_CLASSES}: count them from 0 on")
    return y.astype(np.int64)


def class_names(names: Sequence[object] | None, labels: Array, what: str = "the list of class names") -> tuple[str, ...]:
    """The names of the classes as text, or "0", "1", ... up to the largest label."""
    classes = int(labels.max()) + 1
    if names is None:
        return tuple(map(str, range(classes)))
    if len(names) < classes:
        raise RequestError(f"{what} has {len(names)} names, but the labels go up to {classes - 1}: name every class")
    return tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names)


class Rows(ABC):
    """Inputs (n, *shape) that are made when they are asked for, with as much of an array's manners as `StoredArrays` needs."""

    def __init__(self, n: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.ndim, self.dtype = (n, *shape), 1 + len(shape), dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Array) -> Array:
        indices = range(*rows.indices(len(self))) if isinstance(rows, slice) else rows.tolist()
        found = np.empty((len(indices), *self.shape[1:]), self.dtype)
        for at, index in enumerate(indices):
            found[at] = self.row(index)
        return found

    @abstractmethod
    def row(self, index: int) -> Array:
        """(*shape): one of them."""


class StoredArrays:
    """A data set over an array that may be larger than memory: only the rows that are asked for are read.

    Args:
        name: how reports call it.
        x: (n, *stored) values, in memory or mapped.
        y: (n,) int64 labels.
        domain: where the inputs live, after the division.
        classes: names of the classes.
        arrangement: how a stored input becomes one with channels first; None where it is one already.
        divisor: what stored values are divided by; None where they are the inputs themselves, and the digest names no divisor.
        info: what else the data set tells.
        groups: (n,) whose each input is, where that is known.
        beside: (n, k) float32: the last k channels of signals, whose values are the same throughout, in the domain's units.
        digest: hashes what the data set holds, where that is cheaper than to go through all inputs.
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
        beside: Array | None = None,
        digest: Callable[[], str] | None = None,
    ) -> None:
        self.name, self.domain, self.classes, self.groups = name, domain, classes, groups
        self.info = info or DataInfo()
        self._x, self._y, self._divisor, self._beside = x, y, divisor, beside
        self._arrangement = arrangement or Arrangement.straight(domain)
        self._content, self._digest = digest or self._values, ""

    def __len__(self) -> int:
        return len(self._y)

    def labels(self) -> Labels:
        """(n,) int64: all labels."""
        return self._y.copy()

    def load(self, indices: Sequence[int]) -> Tensor:
        """(len(indices), *shape) float32 within the bounds.

        Raises:
            RequestError: a file that is damaged or has changed.
            SampleError: a video that cannot be read.
        """
        at = np.asarray(indices, dtype=np.int64)
        rows = self._arrangement(self._x[at])
        release(self._x)
        x = torch.from_numpy(rows.astype(np.float32, order="C"))
        x = x.div_(self._divisor) if self._divisor not in (None, 1) else x
        if self._beside is not None:
            x = torch.cat([x, torch.from_numpy(self._beside[at])[:, :, None].expand(-1, -1, x.shape[2])], 1)
        return self.domain.clamp(x)

    def digest(self) -> str:
        """Hash of the content.

        That of arrays is one of domain, inputs (channels first) and labels: the same in any layout or file format. That of
        folders is one of the files' bytes, the labels, and how they become inputs; file names do not count.
        """
        self._digest = self._digest or self._content()
        return self._digest

    def _values(self) -> str:
        how = self.domain.text() + ("" if self._divisor is None else f" {self._divisor!r}")
        hashed = hashlib.blake2b(how.encode(), digest_size=16)
        for rows in blocks(self._x):
            hashed.update(little(self._arrangement(rows)))
        hashed.update(little(self._y))
        if self._beside is not None:
            hashed.update(little(self._beside))
        return hashed.hexdigest()


def little(x: Array) -> bytes:
    """The values of `x` in C order, low byte first on every machine."""
    return x.astype(x.dtype.newbyteorder("<"), copy=False).tobytes()
