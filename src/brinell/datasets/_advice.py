"""Advice on inputs outside their bounds: one rule from shape, type, range and wholeness of the values to the options that fit.

Signals keep their unit and get bounds around it. Other values from 0 on are divided by the largest value that they can take:
255 only where they exceed 127. Values on both sides of 0 get bounds, with the remark that they look normalised. Vectors whose
columns differ get the range of each column. Arrays of memory and files get the same advice in their own spelling.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from brinell.core.domain import Kind
from brinell.core.record import Array
from brinell.datasets._axes import ELONGATION, looks_like_signals, python_call

DARK = 127
"""Largest value of bytes that are not taken for the levels of an image of 8 bits."""
TOPS = sorted({*(2**bits - 1 for bits in range(1, 17)), *(2**bits for bits in range(1, 17)), 5, 10, 100, 1000})
"""Largest values that whole numbers are made to take: those of so many bits, as many levels as sums of bits have, and tens."""
OVERSHOOT = 0.1
"""Share of [0, 1] or [0, 255] by which resized pictures leave it."""
HEADROOM = 2.0
"""Ratio of the bounds of signals to their largest value, at least."""
FEWEST_ALIKE = 16
"""Fewest columns of vectors that are taken for pixels of one scale."""
SAMPLE = 256
"""Number of inputs that are looked at for their shape of change, fewer of large ones."""
VALUES = 1 << 22
"""Number of values that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Summary of all values of an array."""

    minimum: float
    """Smallest value."""
    maximum: float
    """Largest value."""
    bytes8: bool
    """True if each value is a multiple of 1/255, as in an image that was stored in 8 bits."""
    integral: bool
    """True if each value is a whole number."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Options that make inputs outside their bounds usable."""

    reason: str = ""
    """Clause that says what the values look like."""
    kind: Kind | None = None
    """The kind to give, if it is to be given."""
    layout: str | None = None
    """The layout to give, if it is to be given."""
    divide: float | None = None
    """Divisor of the values."""
    bounds: tuple[float, float] | None = None
    """Bounds of the values as they are."""
    columns: bool = False
    """True if each column has its own range."""
    clip: float | None = None
    """Upper end of a range from 0 that the values leave a little."""

    def in_python(self, source: str = "x, y") -> str:
        """The advice as a call of `brinell.data`."""
        options: dict[str, Any] = {key: value for key in ("kind", "layout") if (value := getattr(self, key)) is not None}
        bounds = None if self.bounds is None else tuple(map(_number, self.bounds))
        start = f"{self.reason}: " if self.reason else ""
        if self.columns:
            return f"{start}write {python_call(options | {'bounds': 'columns'}, source)}"
        if self.divide is not None:
            call = python_call(options | {"divide": _number(self.divide)}, source)
            return f"{start}write {call}, or bounds={bounds!r} for a model that takes them as they are"
        call = python_call(options | {"bounds": bounds}, source)
        if self.clip == 1 and source == "x, y":
            return f"{start}write brinell.data(x.clip(0, 1), y), or {call} to keep them"
        return f"{start}write {call}"

    def in_spec(self) -> dict[str, str]:
        """The advice as options of a spec."""
        options = {key: str(value) for key in ("kind", "layout") if (value := getattr(self, key)) is not None}
        if self.divide is not None:
            return options | {"divide": f"{self.divide:g}"}
        if self.bounds is None:
            return options
        return options | dict(zip(("low", "high"), map(_text, self.bounds), strict=True))

    @property
    def in_spec_as_they_are(self) -> str:
        """The options of a spec for a model that takes the values undivided; empty if the values are not divided."""
        if self.divide is None or self.bounds is None:
            return ""
        low, high = map(_text, self.bounds)
        return f"for a model that takes them as they are, give low={low}&high={high} in place of divide={self.divide:g}"


@dataclass(frozen=True, kw_only=True)
class Outline:
    """Facts about inputs from which advice is derived."""

    kind: Kind
    """Kind as which the inputs are read."""
    span: Span
    """Range of the values."""
    dtype: "np.dtype[Any]"
    """Type of the values."""
    head: Array = field(repr=False)
    """(m, *stored) the first inputs."""


def head_of(x: Any) -> Array:
    """(m, *stored) float64: the first inputs, some megabytes at most."""
    count = max(2, min(SAMPLE, VALUES // max(1, math.prod(x.shape[1:]))))
    return np.asarray(x[:count], dtype=np.float64)


def advise(outline: Outline) -> Advice:
    """The options for inputs whose values leave their bounds, or whose bytes are not the levels of an image of 8 bits."""
    span, head = outline.span, outline.head
    if outline.kind == "signal" or (outline.kind in ("vector", "image") and looks_like_signals(head, outline.kind)):
        layout = None
        if head.ndim == 3 and outline.kind != "signal" and head.shape[1] > head.shape[2]:
            layout = None if ELONGATION * head.shape[2] <= head.shape[1] else "last"
        if outline.dtype != np.uint8:
            bounds = _signal_bounds(span, outline.dtype)
            return Advice(reason="they look like signals in their own unit", kind="signal", layout=layout, bounds=bounds)
        return _divided(span, "signal", layout)
    if outline.kind == "vector" and not _alike(outline):
        low, high = (outward(value, sign) for value, sign in ((span.minimum, -1), (span.maximum, 1)))
        bounds = min(low, 0.0), high if high > min(low, 0.0) else 1.0
        return Advice(reason="the columns seem to have units of their own", columns=True, bounds=bounds)
    if top := _overshot(span):
        low, high = outward(min(span.minimum, 0.0), -1), outward(max(span.maximum, top), 1)
        return Advice(reason=f"they leave 0 to {top:g} a little, as resized pictures do", clip=top, bounds=(low, high))
    if span.minimum < 0:
        return _signed(span, head.ndim == 3)
    return _divided(span, None, None)


def _divided(span: Span, kind: Kind | None, layout: str | None) -> Advice:
    """Advice to divide values from 0 on by the largest value that they can take."""
    top = _top(span)
    text = f"their largest value is {span.maximum:g}"
    return Advice(reason=text, kind=kind, layout=layout, divide=None if top == 1 else top, bounds=(0.0, top))


def _top(span: Span) -> float:
    """The largest value that inputs from 0 on can probably take."""
    if span.integral:
        return float(next((top for top in TOPS if span.maximum <= top), 0) or _nice(span.maximum))
    if DARK < span.maximum <= 255:
        return 255.0
    return outward(span.maximum, 1)


def _signed(span: Span, is_grey: bool) -> Advice:
    """Advice on values on both sides of 0 that do not look like signals; `is_grey` without an axis of channels."""
    if span.integral:
        top = _top(replace(span, minimum=0.0, maximum=max(-span.minimum, span.maximum)))
        low = -128.0 if (span.minimum, top) == (-128.0, 128.0) else -32768.0 if span.minimum == -32768 else -top
        high = 127.0 if low == -128 and span.maximum <= 127 else 32767.0 if low == -32768 and span.maximum <= 32767 else top
        return Advice(reason="they are whole numbers on both sides of 0", bounds=(low, high))
    edge = max(-span.minimum, span.maximum)
    top = 1.0 if edge <= 1 else _nice(edge)
    doubt = " (signals want kind=signal besides)" if is_grey else ""
    reason = (
        f"they look normalised{doubt}: take the normalisation out of the data and give it as mean= and std= of the model, or "
        "for a model that takes them as they are"
    )
    return Advice(reason=reason, bounds=(-top, top))


def _signal_bounds(span: Span, dtype: "np.dtype[Any]") -> tuple[float, float]:
    """Bounds around the values of signals, with room, as far as their type reaches."""
    top = _nice(HEADROOM * max(-span.minimum, span.maximum)) or 1.0
    low, high = (-top if span.minimum < 0 else 0.0), top
    if dtype.kind in "iu":
        low, high = max(low, float(np.iinfo(dtype).min)), min(high, float(np.iinfo(dtype).max))
    return low, high


def _overshot(span: Span) -> float:
    """1 or 255 if the values leave the range from 0 to it by little, as resizing does; 0 otherwise."""
    for top in (1.0, 255.0):
        is_near = -OVERSHOOT * top <= span.minimum and top / 2 < span.maximum <= (1 + OVERSHOOT) * top
        if is_near and not span.integral and (span.minimum < 0 or span.maximum > top):
            return top
    return 0.0


def _alike(outline: Outline) -> bool:
    """True for vectors of whole numbers from 0 on whose columns mostly reach the same height, as pixels do."""
    if not outline.span.integral or outline.span.minimum < 0 or outline.head.shape[1] < FEWEST_ALIKE:
        return False
    tops = outline.head.max(0)
    varies = tops > outline.head.min(0)
    return bool(varies.any()) and float((tops[varies] >= outline.span.maximum / 2).mean()) >= 0.5


def _nice(value: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least the value; 0 for 0."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(float(f"{factor * unit:.6g}") for factor in (1, 2, 5, 10) if factor * unit >= value * (1 - 1e-9))


def outward(value: float, sign: int) -> float:
    """The value rounded away from the others to two digits."""
    if value == 0 or sign * value < 0 and abs(value) < 1e-12:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{sign * math.ceil(sign * value / unit - 1e-9) * unit:.6g}")


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(value)


def _text(value: float) -> str:
    return f"{_number(value)}" if abs(value) < 1e15 else f"{value:g}"
