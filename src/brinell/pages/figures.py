"""Figures as small inline SVG: colours and fonts come from the page's style sheet, so that light, dark and print all fit.

Drawn here and not by a plotting library: a curve or a histogram is a few lines of SVG, the bytes are the same on every machine,
every mark can carry its exact figures as a tooltip, and nothing has to be imported or patched to follow the reader's theme.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from brinell.analysis.distributions import Histogram
from brinell.analysis.results import Rate
from brinell.pages.format import count, interval_text, percent, rate_text, short


class Point(NamedTuple):
    """A figure that is no rate, with its interval."""

    eps: float
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a curve figure."""

    name: str
    rates: Sequence[Rate | Point]
    """Rates by ascending eps; those without a value leave a gap."""
    style: int
    """Index of the series colour; -1 for the muted reference."""
    band: bool = True
    """True if the interval is drawn."""
    tick_texts: Sequence[str] = ()
    """Text for each eps in the tooltips of the marks, if the axis shows something else."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Size of a figure and the margins around its plot, in user units (pixels at natural size)."""

    width: int
    height: int
    left_edge: int
    bottom: int
    top: int = 10
    right: int = 12

    def x(self, share: float) -> float:
        """Horizontal position of a share (0 to 1) of the plot's width."""
        return self.left_edge + share * (self.width - self.left_edge - self.right)

    def y(self, share: float) -> float:
        """Vertical position of a share (0 to 1) of the plot's height, counted from below."""
        return self.height - self.bottom - share * (self.height - self.bottom - self.top)


COLOURS = 5
"""Series colours of the style sheet; a sixth model starts over with another dash."""
KEY = 28
"""Width of a line's sample in a legend."""
LARGE = Frame(width=430, height=270, left_edge=46, bottom=46)
SMALL = Frame(width=170, height=120, left_edge=32, bottom=22, top=8, right=14)
BARS = Frame(width=330, height=170, left_edge=40, bottom=42, right=20)


def curve(
    series: Sequence[Series],
    labels: Sequence[tuple[float, str]],
    *,
    title: str,
    distance: str = "",
    axis: str = "",
    small: bool = False,
) -> Markup:
    """Accuracy over eps, one line per series with its interval as a band.

    Args:
        series: the lines; each later one lies on top of those before, dashed and with smaller marks, so that lines that coincide
            can all be seen.
        labels: (eps, text) of the ticks that may be written.
        title: what the figure shows, for readers who do not see it.
        distance: name of the norm for the axis; none on a small figure.
        axis: what the axis shows, where it is not a budget in a norm.
        small: one of a grid of small figures.
    """
    frame = SMALL if small else LARGE
    top = max([eps for eps, _ in labels] + [rate.eps for s in series for rate in s.rates] + [1e-12])
    parts = [percent_axis(frame, small), _eps_axis(frame, labels, top, axis or (distance and f"budget eps ({distance})"), small)]
    for line in sorted(series, key=lambda line: line.style):
        above = sum(later.style > line.style for later in series)
        parts.append(_line(frame, line, top, (2.2 if small else 3.2) + 0.7 * min(above, COLOURS) if line.style >= 0 else 0.0))
    return svg(frame, title, parts, "small" if small else "large")


def histogram(bars: Histogram, *, title: str, label: str, style: int, ticks: Sequence[tuple[float, str]] | None = None) -> Markup:
    """Counts as bars, in one of the page's series colours.

    Args:
        bars: the counts.
        title: what is shown, for readers who do not see it.
        label: text of the horizontal axis.
        style: the number of the colour.
        ticks: (value, text) that may be written; None labels bars of whole numbers and not the edges between them.
    """
    frame, bins = BARS, len(bars.counts)
    most = max(int(bars.counts.max()), 1)
    shares = (0.0, 1.0) if most % 2 else (0.0, 0.5, 1.0)
    parts = [levels(frame, [(share, count(round(share * most))) for share in shares])]
    width = max(frame.x(1 / bins) - frame.x(0) - 1, 0.5)
    for i, height in enumerate(bars.counts):
        x, y = frame.x(i / bins) + 0.5, frame.y(height / most)
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{frame.y(0) - y:.1f}"'
        tip = f"{_bin(bars, i, integral=ticks is None)}: {count(int(height))}"
        parts.append(f'<rect class="bar s{style % COLOURS}" {place}><title>{escape(tip)}</title></rect>')
    parts.append(f'<line class="axis" x1="{frame.left_edge}" x2="{frame.x(1):.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(0):.1f}"/>')
    if ticks is None:
        labels_at = [(frame.x((i + 0.5) / bins), _bin(bars, i, integral=True)) for i in range(bins)]
    else:
        labels_at = [(frame.x(value / float(bars.edges[-1])), text) for value, text in ticks]
    parts += [_tick(frame, x, 16, text) for x, text in _spaced(labels_at, small=False)]
    parts.append(f'<text class="mid label" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">{escape(label)}</text>')
    return svg(frame, title, parts, "bars")


def _bin(bars: Histogram, i: int, *, integral: bool) -> str:
    """Label of a bin: `3`, `4–7`, or `0.1 to 0.2`."""
    low, high = float(bars.edges[i]), float(bars.edges[i + 1])
    if not integral:
        return f"{short(low)} to {short(high)}"
    first, last = math.floor(low) + 1, math.floor(high)
    return count(first) if last <= first else f"{count(first)}–{count(last)}"


def polyline(frame: Frame, style: str, values: Sequence[float], low: float, high: float) -> str:
    """Values over their index as a line; `low` is the lower edge of the frame, `high` the upper."""
    span, sampled = (high - low) or 1.0, values[:: max(len(values) // 240, 1)]
    points = [
        f"{frame.x(i / max(len(sampled) - 1, 1)):.1f},{frame.y(min(max((v - low) / span, 0.0), 1.0)):.1f}"
        for i, v in enumerate(sampled)
    ]
    return f'<polyline class="line {style}" points="{" ".join(points)}"/>'


def svg(frame: Frame, title: str, parts: Sequence[str], kind: str) -> Markup:
    """The parts as one inline SVG of this size; `kind` is a class of the style sheet."""
    head = f'<svg class="figure {kind}" viewBox="0 0 {frame.width} {frame.height}" role="img" aria-label="{escape(title)}">'
    return Markup(head + "".join(parts) + "</svg>")


def percent_axis(frame: Frame, small: bool = False) -> str:
    """Lines and labels of a vertical axis of shares, in percent."""
    if small:
        return levels(frame, [(share, f"{100 * share:.0f}") for share in (0.0, 0.5, 1.0)])
    return levels(frame, [(share, f"{100 * share:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0)])


def levels(frame: Frame, marks: Sequence[tuple[float, str]], gap: int = 6) -> str:
    """Horizontal lines at shares of the plot's height, the text of each `gap` to the left of it."""
    parts = []
    for share, text in marks:
        y = frame.y(share)
        parts.append(f'<line class="grid" x1="{frame.left_edge}" x2="{frame.x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{frame.left_edge - gap}" y="{y + 4:.1f}">{escape(text)}</text>')
    return "".join(parts)


def _eps_axis(frame: Frame, labels: Sequence[tuple[float, str]], top: float, label: str, small: bool) -> str:
    """The horizontal axis with its ticks and label."""
    y = frame.y(0)
    parts = [f'<line class="axis" x1="{frame.left_edge}" x2="{frame.x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>']
    for x, text in _spaced([(frame.x(eps / top), text) for eps, text in labels], small):
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 4:.1f}"/>')
        parts.append(_tick(frame, x, 17, text))
    if label:
        parts.append(f'<text class="mid label" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">{escape(label)}</text>')
    return "".join(parts)


def _tick(frame: Frame, x: float, below: int, text: str) -> str:
    """The text of a tick so far below the axis; centred, but for a last one that would stick out to the right."""
    anchor, position = ("end", min(x + 10, frame.width)) if x > frame.x(1) - 18 and len(text) > 3 else ("mid", x)
    return f'<text class="{anchor}" x="{position:.1f}" y="{frame.y(0) + below:.1f}">{escape(text)}</text>'


def _spaced(ticks: Sequence[tuple[float, str]], small: bool) -> list[tuple[float, str]]:
    """The ticks that fit beside each other, both ends if possible: every so many, or of uneven budgets whatever has room."""
    if small:
        return fitting([ticks[-1], ticks[0]], 6.0) if len(ticks) > 1 else list(ticks)
    for step in range(1, len(ticks) + 1):
        even = ticks[::-1][::step]
        if len(fitting(even, 8.0)) == len(even):
            break
    greedy = fitting([*ticks[-1:], *ticks[:-1]], 8.0)  # the ends first: they say what was tested
    return sorted(greedy if len(greedy) > len(even) + 2 else fitting([*even, ticks[0]], 8.0))


def fitting(ticks: Sequence[tuple[float, str]], width: float) -> list[tuple[float, str]]:
    """The ticks, in order, whose text does not overlap that of earlier ones; `width` is the approximate width of a digit."""
    fitted: list[tuple[float, str]] = []
    for x, text in ticks:
        if all(abs(x - previous) >= width * (len(text) + len(longer)) / 2 + 8 for previous, longer in fitted):
            fitted.append((x, text))
    return fitted


def _line(frame: Frame, series: Series, top: float, radius: float) -> str:
    """One line with its band, and marks of this radius where it is above 0."""
    points_with_rate = [(rate, frame.x(rate.eps / top)) for rate in series.rates if rate.value is not None]
    if not points_with_rate:
        return ""
    parts = []
    if series.band:
        upper = [f"{x:.1f},{frame.y(rate.high or 0.0):.1f}" for rate, x in points_with_rate]
        lower = [f"{x:.1f},{frame.y(rate.low or 0.0):.1f}" for rate, x in reversed(points_with_rate)]
        parts.append(f'<polygon class="band {style_of(series.style)}" points="{" ".join(upper + lower)}"/>')
    points = " ".join(f"{x:.1f},{frame.y(rate.value or 0.0):.1f}" for rate, x in points_with_rate)
    parts.append(f'<polyline class="line {style_of(series.style)}" points="{points}"/>')
    names = dict(zip([rate.eps for rate in series.rates], series.tick_texts, strict=False))
    for rate, x in points_with_rate if radius else []:
        position_text = names.get(rate.eps, f"eps {short(rate.eps)}")
        interval = rate_text(rate) if isinstance(rate, Rate) else interval_text(rate.low, rate.high)
        tip = f"{series.name}, {position_text}: {percent(rate.value)} ({interval})"
        parts.append(mark(series.style, x, frame.y(rate.value or 0.0), radius, tip))
    return "".join(parts)


def style_of(style: int) -> str:
    """Classes of the style sheet for a series: its colour and its dash; the muted reference for -1."""
    return "ref" if style < 0 else f"s{style % COLOURS} d{(style + style // COLOURS) % COLOURS}"


def mark(style: int, x: float, y: float, radius: float, tip: str) -> str:
    """A mark of a series, told apart by its shape as well as by its colour; `tip` is what it says when it is pointed at."""
    tooltip = f"<title>{escape(tip)}</title>" if tip else ""
    if style % COLOURS == 0:
        return f'<circle class="dot {style_of(style)}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{tooltip}</circle>'
    corners = {1: (45, 135, 225, 315), 2: (270, 30, 150), 3: (0, 90, 180, 270), 4: (90, 210, 330)}[style % COLOURS]
    size = radius * 1.25
    points = " ".join(
        f"{x + size * math.cos(math.radians(angle)):.1f},{y + size * math.sin(math.radians(angle)):.1f}" for angle in corners
    )
    return f'<polygon class="dot {style_of(style)}" points="{points}">{tooltip}</polygon>'


def key(style: int) -> Markup:
    """The sample of a series for a legend: its line and its mark; of the reference, for -1, the line alone."""
    line = f'<line class="line {style_of(style)}" x1="0" x2="{KEY}" y1="6" y2="6"/>'
    dot = mark(style, KEY / 2, 6, 3.2, "") if style >= 0 else ""
    return Markup(f'<svg class="keyline" viewBox="0 0 {KEY} 12" width="{KEY}" height="12" aria-hidden="true">{line}{dot}</svg>')
