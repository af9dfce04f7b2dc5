"""Kind and order of axes of stored inputs: one rule for arrays of memory and of files.

(N, D) is a vector, (N, H, W, C) or (N, C, H, W) an image, one more axis a video. (N, A, B) is a signal if one of its axes is so
much shorter than the other that it holds channels, and a grey image otherwise; a note then names the other reading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, short
from brinell.core.record import Array

Layout = Literal["first", "last"]

CHANNELS = (1, 3, 4)
"""Sizes by which the axis of an image's channels is recognised."""
AXES: dict[Kind, int] = {"vector": 1, "signal": 2, "image": 3, "video": 4}
"""Number of axes of one input of each kind, channels included."""
ELONGATION = 4
"""An axis is that of a signal's channels if the other is at least this many times as long."""
FLOAT = np.dtype(np.float32)
SHORTEST_SIGNAL = 32
"""Fewest values per channel that make a row a signal by its smoothness alone."""
SMOOTH = 0.5
"""Largest ratio of the mean step between neighbours to the deviation, in a signal that is sampled finely enough."""


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
        """The arrangement of inputs that are stored as the domain has them."""
        return cls(kind=domain.kind, shape=domain.shape, axes=tuple(range(1 + len(domain.shape))))

    def __call__(self, block: Array) -> Array:
        """(n, *stored) values as (n, *shape)."""
        return block.transpose(self.axes).reshape(len(block), *self.shape)


def python_call(options: dict[str, Any], source: str = "x, y") -> str:
    """A call of `brinell.data` with these options."""
    return f"brinell.data({source}, {', '.join(f'{key}={value!r}' for key, value in options.items())})"


def _python_layouts(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Two ways to say the layout in Python."""
    return f"say it by {python_call(first)} or {', '.join(f'{key}={value!r}' for key, value in second.items())}"


def spec_layouts(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Two ways to say the layout in a spec."""
    first_text, second_text = ("&".join(f"{key}={value}" for key, value in options.items()) for options in (first, second))
    return f"give the option {first_text} or {second_text}"


def kind_of(shape: tuple[int, ...], dtype: "np.dtype[Any]", *, named_signal: bool = False) -> Kind | None:
    """Kind of stored inputs (n, *stored) by their axes, for which nothing is said; None for a number of axes without one.

    Args:
        shape: shape of the array.
        dtype: type of its values; bytes are rather pictures than signals.
        named_signal: True if the name of the array, or its sampling rate, says that it holds signals.
    """
    sides = shape[1:]
    if named_signal and len(sides) in (1, 2):
        return "signal"
    if len(sides) == 2:
        narrow, long = sorted(sides)
        elongated = narrow == 1 or (ELONGATION * narrow <= long and dtype.kind != "b" and dtype != np.uint8)
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
    spell: Callable[[dict[str, Any], dict[str, Any]], str] = spec_layouts,
) -> Arrangement:
    """Decide how stored inputs become inputs with channels first; refuses shapes that can be read in several ways.

    Args:
        shape: shape of the array, samples first.
        kind: kind of the inputs; by default `kind_of` decides.
        layout: position of the channels; by default the axis of size 1, 3 or 4, else the shortest; of a signal the first,
            unless it is the longer one by far.
        dtype: type of the values.
        named_signal: True if a name says that the inputs are signals.
        subject: name of the array in messages.
        spell: remedy from two sets of options of which one has to be given.
    """
    sides, order = len(shape) - 1, tuple(range(len(shape)))
    if kind is None and not 1 <= sides <= 4:
        raise RequestError(f"{subject} has shape {shape}; inputs need 1 to 4 axes after the one of the samples")
    kind = kind or kind_of(shape, dtype, named_signal=named_signal) or "vector"
    if kind != "vector" and sides == AXES[kind] - 1:
        return Arrangement(kind=kind, shape=(1, *shape[1:]), axes=order)
    if sides != AXES[kind]:
        raise RequestError(f"{subject} has shape {shape}, which is no list of {kind}s; give the option kind=")
    if kind == "vector" or (layout or _layout(shape, kind, subject, spell)) == "first":
        return Arrangement(kind=kind, shape=shape[1:], axes=order)
    return Arrangement(kind=kind, shape=(shape[-1], *shape[1:-1]), axes=(0, sides, *order[1:-1]))


def arrange_in_memory(
    shape: tuple[int, ...], dtype: "np.dtype[Any]", domain: Domain | None, kind: Kind | None, layout: Layout | None
) -> Arrangement:
    """The arrangement of arrays of memory, for which the user may have given a domain, a kind or a layout."""
    subject = "the array of inputs"
    if len(shape) < 2 or 0 in shape:
        reason = "is empty: give at least one sample of at least one value" if 0 in shape else "needs the samples first"
        raise RequestError(f"{subject} has shape {shape}; it {reason}{'' if 0 in shape else ' and then each input'}")
    if domain is not None:
        if shape[1:] != domain.shape:
            raise RequestError(f"inputs of shape {shape[1:]} do not live in a domain of shape {domain.shape}")
        return Arrangement.identity(domain)
    if kind not in (None, *AXES):
        raise RequestError(f"kind is {short(kind)}; it is one of {', '.join(AXES)}")
    if layout not in (None, "first", "last"):
        raise RequestError(f"layout is {short(layout)}; it is first or last")
    if kind is None and kind_of(shape, dtype) is None:
        raise RequestError(f"{subject} has shape {shape}; give a Domain that says what an input is")
    return arrange(shape, kind=kind, layout=layout, dtype=dtype, subject=subject, spell=_python_layouts)


def _layout(shape: tuple[int, ...], kind: Kind, subject: str, spell: Callable[[dict[str, Any], dict[str, Any]], str]) -> Layout:
    """Position of the channels in arrays of this shape; refuses a shape that leaves it open."""
    first, *middle, last = shape[1:]
    if kind == "signal":
        return "last" if ELONGATION * last <= first and last < first else "first"
    if kind == "video" and middle[0] in CHANNELS and first not in CHANNELS and last not in CHANNELS:
        raise RequestError(f"{subject} has shape {shape} with frames before channels: write x.swapaxes(1, 2)")
    if (first in CHANNELS) != (last in CHANNELS):
        return "first" if first in CHANNELS else "last"
    if first < min(*middle, last):
        return "first"
    if last < min(first, *middle):
        return "last"
    raise RequestError(
        f"{subject} has shape {shape}, whose channels could be first or last: {spell({'layout': 'first'}, {'layout': 'last'})}"
    )


def looks_like_signals(x: Array, kind: Kind) -> bool:
    """True if inputs (n, *stored) that are read as vectors or grey images change smoothly along one axis, as signals do.

    Whole numbers from 0 to 255, or such numbers divided by 255, are flattened pictures rather than signals.
    """
    if kind == "signal" or x.ndim not in (2, 3) or max(x.shape[1:]) < SHORTEST_SIGNAL:
        return kind == "signal"
    spread, low, high = float(x.std()), float(x.min()), float(x.max())
    scaled = x * (255 if high <= 1 else 1)
    if spread == 0 or (low >= 0 and high <= 255 and bool((np.abs(scaled - np.round(scaled)) < 1e-3).all())):
        return False
    steps = [np.abs(np.diff(x, axis=axis)).mean() if x.shape[axis] > 1 else np.inf for axis in range(1, x.ndim)]
    axis_of_time = int(np.argmax(x.shape[1:]))
    return steps[axis_of_time] < SMOOTH * spread and all(
        step >= SMOOTH * spread for axis, step in enumerate(steps) if axis != axis_of_time
    )


def reading_note(shape: tuple[int, ...], dtype: "np.dtype[Any]", arrangement: Arrangement, smooth: bool) -> tuple[str, ...]:
    """A note on a reading that the axes alone decided, with the option for the other one; empty if there is only one."""
    sides = shape[1:]
    if len(sides) == 1 and arrangement.kind == "vector" and smooth:
        return (f"rows of {sides[0]} values that change smoothly are read as vectors: give kind=signal if they are signals",)
    if len(sides) != 2 or 1 in sides or dtype == np.uint8:
        return ()
    if arrangement.kind == "image":
        return (f"inputs of shape {sides} are read as grey images: give kind=signal for signals of {sides[0]} channels",)
    channels, length = arrangement.shape
    text = f"inputs of shape {sides} are read as signals of {channels} channels with {length} values each"
    return (f"{text}: give kind=image for grey images",)
