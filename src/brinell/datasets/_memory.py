"""Arrays of a Python program as a data set: what `brinell.audit(module, (x, y))` and `brinell.data` make of them."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import DataInfo
from brinell.core.domain import Column, Domain, Kind
from brinell.core.errors import RequestError
from brinell.datasets._arrays import (
    AXES,
    CHANNELS,
    TOLERANCE,
    Arrangement,
    Array,
    Layout,
    StoredArrays,
    arrange,
    blocks,
    check_labels,
    class_names,
    domain_of,
    span,
)
from brinell.datasets._given import Given, read

Bounds = Literal["columns"] | tuple[Any, Any]
NORMALISED = -0.05
"""Inputs that reach below this have been normalised, or were never pictures."""


class ArrayDataset(StoredArrays):
    """Inputs as the model takes them: (n, D) vectors, (n, C, T) signals, (n, C, H, W) images or (n, C, T, H, W) videos.

    Without bounds, bytes are divided by 255 and anything else must lie in [0, 1]. With bounds, values are taken as they are.
    Images and videos may have their channels last where the shape says so: the axis of size 1, 3 or 4, or the smallest one. A
    torch Dataset is read item by item whenever inputs are needed, and once at the start for its labels.

    Args:
        x: array, tensor or data frame; or with `y` left out what holds both (`datasets._given.read`).
        y: (n,) labels, whole numbers from 0 on, or texts, which count in the order of `classes`, else in sorted order.
        classes: names of the classes.
        domain: kind, shape and bounds where they cannot be read off the array.
        name: how reports call it.
        kind: image, signal, video or vector, where the number of axes leaves it open.
        layout: where the channels are, first or last, where the shape leaves it open.
        bounds: (low, high) of the values, numbers or for vectors one per column; "columns" for vectors whose columns each run
            from their least to their largest value. Columns with bounds of their own are moved to [0, 1], so that a budget is
            a share of what a column can be, and the model is asked in their own units, as with `table:FILE`.

    Raises:
        RequestError: values outside the bounds (by more than a millionth of their width), NaN, labels that do not fit, a shape
            that may be read in two ways.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        classes: Sequence[str] | None = None,
        domain: Domain | None = None,
        name: str = "arrays",
        *,
        kind: Kind | None = None,
        layout: Layout | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        given = read(x, y)
        rows = given.x
        if rows.ndim < 2:
            raise RequestError(f"the array of inputs has shape {rows.shape}; it needs the samples first and then each input")
        codes, names, notes = _labels(given, classes)
        labels = check_labels(codes, len(rows))
        if given.channels_last and domain is None and layout is None and kind is None:
            kind, layout = "image", "last"
        arrangement = _arrangement(rows.shape, domain, kind, layout)
        divisor: float | None = 1.0
        if domain is not None:
            _check_bounds(rows, domain)
        elif given.columns or (bounds is not None and arrangement.kind == "vector" and not _is_pair_of_numbers(bounds)):
            rows, domain = _columns(rows, given.columns, bounds)
            notes += ("budgets are shares of each column's range, and the model is asked in the columns' own units",)
        else:
            low, high = (None, None) if bounds is None else _numbers(bounds, arrangement.kind)
            domain, divisor = domain_of(rows, arrangement, low=low, high=high, what=_said(rows, bounds))
        super().__init__(
            name=name,
            x=rows,
            y=labels,
            arrangement=arrangement,
            domain=domain,
            classes=class_names(names, labels),
            divisor=divisor,
            info=DataInfo(notes=given.notes + notes),
        )

    def as_given(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs in the order of axes in which the arrays were given, as a function of one's own takes them."""
        axes = self._arrangement.axes
        if len(axes) == x.ndim - 1:  # grey pictures without an axis for their channels
            return x.squeeze(1)
        inverse = sorted(range(len(axes)), key=axes.__getitem__)
        return x.permute(inverse)


def _labels(given: Given, classes: Sequence[str] | None) -> tuple[Array, tuple[str, ...] | None, tuple[str, ...]]:
    """The labels as numbers, the names of the classes where there are any, and what was decided."""
    y, names = np.asarray(given.y), tuple(map(str, classes)) if classes is not None else given.names or None
    if y.dtype.kind == "b":
        return y.astype(np.int64), names, ()
    if y.dtype.kind not in "US":
        return y, names, ()
    found = np.unique(y)
    known = names or tuple(map(str, found))
    if missing := [str(one) for one in found if str(one) not in known]:
        raise RequestError(f"there is a label {missing[0]!r}, and the classes are {', '.join(known[:8])}: name every class")
    note = () if names else (f"labels are texts, whose classes count in sorted order: {', '.join(known[:8])}",)
    return np.array([known.index(str(one)) for one in y.ravel()]).reshape(y.shape), known, note


def _arrangement(stored: tuple[int, ...], domain: Domain | None, kind: Kind | None, layout: Layout | None) -> Arrangement:
    """How the arrays become inputs with their channels first."""
    axes = tuple(range(len(stored)))
    if domain is not None:
        if stored[1:] != domain.shape:
            raise RequestError(f"inputs of shape {stored[1:]} do not live in a domain of shape {domain.shape}")
        return Arrangement(kind=domain.kind, shape=domain.shape, axes=axes)
    if kind is None:
        kinds: dict[int, Kind] = {2: "vector", 3: "signal", 4: "image", 5: "video"}
        if len(stored) not in kinds:
            raise RequestError(f"the array of inputs has shape {stored}; give a Domain that says what an input is")
        kind = kinds[len(stored)]
        if kind == "signal" and layout is None and not (stored[1] == 1 or 4 * stored[1] <= stored[2]):
            raise RequestError(
                f"the array of inputs has shape {stored}, which may be grey pictures or signals of {stored[1]} channels: for "
                "pictures write x[:, None], for signals brinell.data(x, y, kind='signal')"
            )
    elif kind not in AXES:
        raise RequestError(f"kind is {kind!r}; it is one of {', '.join(AXES)}")
    if layout not in (None, "first", "last"):
        raise RequestError(f"layout is {layout!r}; it is first or last")
    if kind in ("image", "video") and layout is None and len(stored) == AXES[kind] + 1:
        layout = _layout(stored, kind)
    return arrange(stored, kind=kind, layout=layout)


def _layout(stored: tuple[int, ...], kind: Kind) -> Layout:
    """Where the channels of images and videos are; refuses a shape that leaves it open."""
    first, *between, last = stored[1:]
    if kind == "video" and between[0] in CHANNELS and first not in CHANNELS and last not in CHANNELS:
        raise RequestError(f"the array of inputs has shape {stored} with frames before channels: write x.swapaxes(1, 2)")
    if (first in CHANNELS) != (last in CHANNELS):
        return "first" if first in CHANNELS else "last"
    if first < min(*between, last):
        return "first"
    if last < min(first, *between):
        return "last"
    raise RequestError(
        f"the array of inputs has shape {stored}, whose channels could be first or last: say it by "
        "brinell.data(x, y, layout='first') or layout='last'"
    )


def _said(rows: Any, bounds: Bounds | None) -> str:
    """The array of inputs in a message, with what is probably the matter where its values leave [0, 1]."""
    what = "the array of inputs"
    if bounds is not None or rows.dtype == np.uint8:
        return what
    if (seen := span(rows, what)).least < NORMALISED and rows.ndim > 3:
        remedy = "they look normalised: take the normalisation out of the data and give it as mean= and std= of the model"
    elif rows.ndim == 2:
        remedy = "for columns in units of their own write brinell.data(x, y, bounds='columns')"
    elif 1 < seen.most <= 255:
        remedy = "divide them by 255, or write brinell.data(x, y, bounds=(0, 255)) for a model that takes them as they are"
    else:
        return what
    if seen.least >= -TOLERANCE and seen.most <= 1 + TOLERANCE:
        return what
    raise RequestError(f"{what} holds values from {seen.least:g} to {seen.most:g}, outside the bounds 0 to 1: {remedy}")


def _is_pair_of_numbers(bounds: Any) -> bool:
    return isinstance(bounds, tuple | list) and len(bounds) == 2 and all(np.ndim(end) == 0 and _is_number(end) for end in bounds)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _numbers(bounds: Any, kind: Kind) -> tuple[float, float]:
    if not _is_pair_of_numbers(bounds):
        raise RequestError(f"bounds of {kind}s are two numbers, (low, high), and not {str(bounds)[:60]}")
    return float(bounds[0]), float(bounds[1])


def _columns(x: Array, names: tuple[str, ...], bounds: Any) -> tuple[Array, Domain]:
    """Vectors whose columns have units of their own, moved to [0, 1] column by column; what never differs cannot be changed."""
    values = np.array(x[:], dtype=np.float64)
    if not np.isfinite(values).all():
        raise RequestError("the array of inputs holds NaN or infinity: correct or drop those samples")
    width = values.shape[1]
    if bounds is None or isinstance(bounds, str):
        if bounds not in (None, "columns"):
            raise RequestError(f"bounds is {bounds!r}: give (low, high), or 'columns' for each column's own range")
        ends = [values.min(0), values.max(0)]
    else:
        try:
            ends = [np.broadcast_to(np.asarray(end, dtype=np.float64), (width,)) for end in bounds]
            assert len(ends) == 2
        except (TypeError, ValueError, AssertionError):
            raise RequestError(f"bounds are (low, high), each a number or one for each of the {width} columns") from None
        if bad := np.flatnonzero((values < ends[0]).any(0) | (values > ends[1]).any(0)).tolist():
            raise RequestError(f"column {(names or range(width))[bad[0]]} holds values outside of its bounds: widen them")
    names = names or tuple(map(str, range(width)))
    columns, low, high = [], [], []
    for at, (least, most) in enumerate(zip(*ends, strict=True)):
        moves = bool(most > least)
        columns.append(Column(names[at], float(least), float(most)) if moves else Column(names[at], fixed=True))
        low.append(0.0 if moves else float(least))
        high.append(1.0 if moves else float(least) + 1)
        if moves:
            values[:, at] = (values[:, at] - least) / (most - least)
    try:
        domain = Domain(kind="vector", shape=(width,), low=tuple(low), high=tuple(high), columns=tuple(columns))
    except ValueError as error:
        raise RequestError(f"the array of inputs: {error}") from None
    return values.astype(np.float32), domain


def _check_bounds(x: Any, domain: Domain) -> None:
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
