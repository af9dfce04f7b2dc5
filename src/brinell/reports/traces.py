"""Signals as they are read: seconds along, the signal's own unit upwards, and the stretches that an attack touched marked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from brinell.core.record import Array
from brinell.reports.figures import GAP, SMALL_FONT, Frame, baseline, fitting, levels, svg, tick
from brinell.reports.numbers import percent, short

LANES = 3
"""Channels shown at most: those that changed most."""
WIDTH, LANE, TALL, TOP, BELOW = 330, 66, 132, 20, 42
"""Width of a figure, heights of a lane of several channels and of a single one, room above for the unit, below for the axis."""
POINTS = 240
"""Points of a line at most. Of longer signals the lowest and the highest value of each stretch are drawn: no peak is lost."""
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
    """Stretches [from, to) at which any channel of two signals (C, T) differs by more than rounding."""
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
    return f"{percent(sum(last - first for first, last in touched) / length, 0)} of {duration}{places}"


def overlay(clean: Array, adversarial: Array, sampling: Mapping[str, Any] | None, *, title: str) -> Markup:
    """An adversarial signal (C, T) over the clean one.

    `sampling` holds rate, unit, start and leads where the data has them.
    """
    return _figure(clean, adversarial, [("ref", clean), ("s0", adversarial)], sampling, title)


def perturbation(clean: Array, adversarial: Array, sampling: Mapping[str, Any] | None, *, title: str) -> Markup:
    """The difference of two signals on its own scale; arguments as for `overlay`."""
    change = np.asarray(adversarial, np.float64) - np.asarray(clean, np.float64)
    return _figure(clean, adversarial, [("s1", change)], sampling, title)


def _figure(
    clean: Array, adversarial: Array, lines: Sequence[tuple[str, Array]], sampling: Mapping[str, Any] | None, title: str
) -> Markup:
    """Signals as lines in lanes, one for each of the channels that change most."""
    clean, adversarial = np.asarray(clean, np.float64), np.asarray(adversarial, np.float64)
    axes = Axes.of(sampling)
    channels = np.sort(np.argsort(-np.abs(adversarial - clean).sum(1), kind="stable")[:LANES])
    height = TALL if len(channels) == 1 else LANE
    if len(lines) == 1:
        height = height * 3 // 5
    values = np.stack([line[channels] for _, line in lines])
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    margin = 0.06 * (high - low) or 0.5
    low, high = low - margin, high + margin
    total_height = TOP + len(channels) * height + BELOW - 11
    size = Frame(width=WIDTH, height=total_height, left_edge=40, bottom=0, right=8, font=SMALL_FONT)
    marks = [((value - low) / (high - low), _written(value)) for value in _ticks(low, high, max(2, round((height - 11) / 30)))]
    size = size.with_levels([axes.unit, *(text for _, text in marks)])
    parts: list[str] = []
    touched = segments(clean, adversarial)
    for lane, channel in enumerate(channels.tolist()):
        top = TOP + lane * height
        frame = replace(size, top=top, bottom=total_height - top - height + 11)
        parts += _marks(frame, touched, clean.shape[1], axes)
        parts.append(levels(frame, marks))
        if lane == 0 and axes.unit:
            place = f'x="{frame.left_edge - GAP}" y="{frame.y(1) - 8:.1f}"'
            parts.append(f'<text class="end label" {place}>{escape(axes.unit)}</text>')
        parts += [
            f'<polyline class="line {style}" points="{_points(frame, line[channel], low, high)}"/>' for style, line in lines
        ]
        if clean.shape[0] > 1:
            parts.append(f'<text class="end label" x="{frame.x(1):.1f}" y="{top + 9}">{escape(axes.lead(channel))}</text>')
    parts += _seconds(frame, clean.shape[1], axes)
    return svg(size, title, parts, "signal")


def _marks(frame: Frame, touched: Sequence[tuple[int, int]], length: int, axes: Axes) -> list[str]:
    parts = []
    for first, last in touched:
        # A value stands in the middle of the room that is marked for it; the outermost have half of it.
        start, right = ((min(max(edge - 0.5, 0), length - 1)) / max(length - 1, 1) for edge in (first, last))
        x, width = frame.x(start), max(frame.x(right) - frame.x(start), 1.0)
        unit = " s" if axes.rate else ""
        tip = f"touched from {axes.time_of(first):.3g} to {axes.time_of(last - 1):.3g}{unit}"
        place = f'x="{x:.1f}" y="{frame.y(1):.1f}" width="{width:.1f}" height="{frame.y(0) - frame.y(1):.1f}"'
        parts.append(f'<rect class="touched" {place}><title>{escape(tip)}</title></rect>')
    return parts


def _seconds(frame: Frame, length: int, axes: Axes) -> list[str]:
    first, last = axes.time_of(0), axes.time_of(length - 1)
    ticks = [(frame.x((value - first) / ((last - first) or 1.0)), _written(value)) for value in _ticks(first, last, 8)]
    name = "seconds" if axes.rate else "position"
    label = f'<text class="end label" x="{frame.x(1):.1f}" y="{frame.y(0) + BELOW - 5:.1f}">{name}</text>'
    return [baseline(frame), *(tick(frame, *place, line=True) for place in fitting(frame, ticks)), label]


def _ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round values within: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * digit for digit in (1, 2, 5, 10, 20) if span / (power * digit) <= most)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


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
    return " ".join(f"{frame.x(int(i) / last):.1f},{frame.y((float(values[i]) - low) / (high - low)):.1f}" for i in positions)
