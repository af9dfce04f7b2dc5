"""Signals as they are read: seconds along, the signal's own unit upwards, and the stretches that an
attack touched marked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from brinell.core.record import Array
from brinell.reports.figures import GAP, SMALL_FONT, Frame, baseline, fitting, levels, svg, tick
from brinell.reports.numbers import percent, short

LANES = 3
"""Channels shown at most: those that changed most."""
BETWEEN, TICK = 11, 30
"""Room between two lanes, and the least height of a tick, in pixels."""
WIDTH, LANE, TALL, TOP, BELOW = 330, 66, 132, 20, 42
"""Width of a figure, heights of a lane of several channels and of a single one, room above for
the unit, below for the axis."""
POINTS = 240
"""Points of a line at most. Of longer signals the lowest and the highest value of each stretch
are drawn: no peak is lost."""
BAR = 4
"""Height of a bar at the edge of a lane."""
ROUNDING = 1e-6
"""Share of the largest value by which float32 may have moved one."""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """How positions and values are named."""

    rate: float | None
    """Values per second; None where positions are all that is known."""
    start: float
    """Second of the first value."""
    unit: str
    leads: tuple[str, ...]

    @classmethod
    def of(cls, sampling: Mapping[str, Any] | None) -> "Axes":
        """From what the manifest says of the data."""
        fields = sampling or {}
        return cls(
            rate=fields.get("rate"),
            start=float(fields.get("start", 0.0)),
            unit=str(fields.get("unit", "")),
            leads=tuple(map(str, fields.get("leads", ()))),
        )

    def time_of(self, position: float) -> float:
        """The second of a position, or the position."""
        return self.start + position / self.rate if self.rate else position

    def lead(self, channel: int) -> str:
        """The name of a channel."""
        return self.leads[channel] if channel < len(self.leads) else f"channel {channel + 1}"


def segments(clean: Array, adversarial: Array) -> list[tuple[int, int]]:
    """Stretches [from, to) at which any channel of two signals (C, T) differs by more than
    rounding.
    """
    clean, adversarial = np.asarray(clean, np.float64), np.asarray(adversarial, np.float64)
    slack = ROUNDING * max(np.abs(clean).max(initial=0.0), np.abs(adversarial).max(initial=0.0))
    return stretches((np.abs(adversarial - clean) > slack).any(0))


def stretches(region: Array) -> list[tuple[int, int]]:
    """Stretches [from, to) of a region (T,) bool."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], region, [False]]).astype(np.int8)))
    return [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def describe_change(clean: Array, adversarial: Array, sampling: Mapping[str, Any] | None) -> str:
    """In words, how much of the signal was touched: `21 % of 1.5 s (4 places)`."""
    touched, axes = segments(clean, adversarial), Axes.of(sampling)
    length = clean.shape[-1]
    duration = f"{short(length / axes.rate)} s" if axes.rate else f"{length} values"
    places = f" ({len(touched)} places)" if len(touched) > 1 else ""
    return (
        f"{percent(sum(last - first for first, last in touched) / length, 0)} of {duration}{places}"
    )


class Mark(NamedTuple):
    """A marked stretch [first, last) of a signal."""

    first: int
    last: int
    look: str
    """Attributes of its rectangle."""
    tip: str = ""
    """What it says when it is pointed at."""
    bar: Literal["", "above", "below"] = ""
    """Drawn as a bar at an edge of the lanes and not over their whole height."""


def overlay(
    clean: Array, adversarial: Array, sampling: Mapping[str, Any] | None, *, title: str
) -> Markup:
    """An adversarial signal (C, T) over the clean one.

    `sampling` holds rate, unit, start and leads where the data has them.
    """
    marks = _touched(clean, adversarial, sampling)
    return draw_signal([("ref", clean), ("s0", adversarial)], marks, sampling, title=title)


def perturbation(
    clean: Array, adversarial: Array, sampling: Mapping[str, Any] | None, *, title: str
) -> Markup:
    """The difference of two signals on its own scale; arguments as for `overlay`."""
    change = np.asarray(adversarial, np.float64) - np.asarray(clean, np.float64)
    return draw_signal(
        [("s1", change)], _touched(clean, adversarial, sampling), sampling, title=title
    )


def _touched(clean: Array, adversarial: Array, sampling: Mapping[str, Any] | None) -> list[Mark]:
    """A mark for each stretch that an attack changed; the last value of a stretch is excluded."""
    axes, marks = Axes.of(sampling), []
    for first, last in segments(clean, adversarial):
        tip = (
            f"touched from {axes.time_of(first):.3g} to "
            f"{axes.time_of(last - 1):.3g}{' s' if axes.rate else ''}"
        )
        marks.append(Mark(first, last, 'class="touched"', tip))
    return marks


def draw_signal(
    lines: Sequence[tuple[str, Array]],
    marks: Sequence[Mark],
    sampling: Mapping[str, Any] | None,
    *,
    title: str,
) -> Markup:
    """One or two signals, each a style and values (C, T), in lanes: the channels in which they
    differ most, or are largest.
    """
    axes = Axes.of(sampling)
    channels, length = lines[0][1].shape
    first = np.asarray(lines[0][1], np.float64)
    last = np.asarray(lines[-1][1], np.float64)
    # Two lines count by their difference, a single one by itself.
    weight = np.abs(last - first * (len(lines) > 1)).sum(1)
    shown = np.sort(np.argsort(-weight, kind="stable")[:LANES])
    height = TALL if len(shown) == 1 else LANE

    # All lanes have one scale, so that their heights can be compared.
    values = np.stack([np.asarray(line, np.float64)[shown] for _, line in lines])
    least = min(float(values.min()), 0.0)
    most = max(float(values.max()), 0.0)
    margin = 0.06 * (most - least) or 0.5
    least -= margin
    most += margin

    total_height = TOP + len(shown) * height + BELOW - BETWEEN
    size = Frame(width=WIDTH, height=total_height, left_edge=40, bottom=0, right=8, font=SMALL_FONT)

    ticks = _ticks(least, most, max(2, round((height - BETWEEN) / TICK)))
    scale = [((value - least) / (most - least), _written(value)) for value in ticks]
    # The left edge leaves room for the widest number.
    widest = max(size.text_width(text) for text in (axes.unit, *(text for _, text in scale)))
    size = replace(size, left_edge=max(size.left_edge, math.ceil(widest + GAP)))

    parts: list[str] = []
    for lane, channel in enumerate(shown.tolist()):
        top = TOP + lane * height
        frame = replace(size, top=top, bottom=total_height - top - height + BETWEEN)
        parts += _marks(frame, marks, length)
        parts.append(levels(frame, scale))
        if lane == 0 and axes.unit:
            place = f'x="{frame.left_edge - GAP}" y="{frame.y(1) - 8:.1f}"'
            parts.append(f'<text class="end label" {place}>{escape(axes.unit)}</text>')
        for (style, _), of_line in zip(lines, values, strict=True):
            parts.append(
                f'<polyline class="line {style}" '
                f'points="{_points(frame, of_line[lane], least, most)}"/>'
            )
        if channels > 1:
            parts.append(
                f'<text class="end label" x="{frame.x(1):.1f}" '
                f'y="{top + 9}">{escape(axes.lead(channel))}</text>'
            )
    parts += _seconds(frame, length, axes)
    return svg(size, title, parts, "signal")


def _marks(frame: Frame, marks: Sequence[Mark], length: int) -> list[str]:
    """The marks as rectangles: bars above or below, or as high as the lane."""
    parts = []
    for mark in marks:
        # A value stands in the middle of the room that is marked for it; the outermost have half of
        # it.
        start = _share(mark.first, length)
        right = _share(mark.last, length)
        x = frame.x(start)
        width = max(frame.x(right) - x, 1.0)
        y = frame.y(1)
        height = frame.y(0) - y
        if mark.bar:
            y = frame.y(0) - BAR if mark.bar == "below" else y
            height = BAR

        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        parts.append(
            f"<rect {mark.look} "
            f"{place}>{Markup('<title>{}</title>').format(mark.tip) if mark.tip else ''}</rect>"
        )
    return parts


def _share(edge: float, length: int) -> float:
    """The place of the edge of a value along the axis of so many values, from 0 to 1."""
    return min(max(edge - 0.5, 0), length - 1) / max(length - 1, 1)


def _seconds(frame: Frame, length: int, axes: Axes) -> list[str]:
    """The horizontal axis with its ticks and its name."""
    first = axes.time_of(0)
    last = axes.time_of(length - 1)
    ticks = [
        (frame.x((value - first) / ((last - first) or 1.0)), _written(value))
        for value in _ticks(first, last, most=8)
    ]

    name = "seconds" if axes.rate else "position"
    label = (
        f'<text class="end label" x="{frame.x(1):.1f}" '
        f'y="{frame.y(0) + BELOW - 5:.1f}">{name}</text>'
    )
    return [
        baseline(frame),
        *(tick(frame, *place, line=True) for place in fitting(frame, ticks)),
        label,
    ]


def _ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round values within: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * digit for digit in (1, 2, 5, 10, 20) if span / (power * digit) <= most)
    return [
        number * step
        for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def _written(value: float) -> str:
    """A tick value as text with a true minus sign."""
    return f"{value:.6g}".replace("-", "−") if abs(value) > 1e-12 else "0"


def _points(frame: Frame, values: Array, low: float, high: float) -> str:
    """Points of a line, thinned to its extremes if it is long."""
    positions = np.arange(len(values))
    if len(values) > POINTS:
        cuts = np.array_split(positions, POINTS // 2)
        ends = [sorted((part[values[part].argmin()], part[values[part].argmax()])) for part in cuts]
        positions = np.unique(np.array(ends).ravel())
    last = max(len(values) - 1, 1)
    return " ".join(
        f"{frame.x(int(i) / last):.1f},{frame.y((float(values[i]) - low) / (high - low)):.1f}"
        for i in positions
    )
