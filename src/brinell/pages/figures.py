"""Figures as small inline SVG: colours and fonts come from the page's style sheet, so that light, dark and print all fit.

Drawn here and not by a plotting library: a curve or a histogram is a few lines of SVG, the bytes are the same on every machine,
every mark can carry its exact figures as a tooltip, and nothing has to be imported or patched to follow the reader's theme.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from markupsafe import Markup, escape

from brinell.analysis.distributions import Histogram
from brinell.analysis.results import Rate
from brinell.pages.format import count, interval_text, percent, rate_text, short


class Point(NamedTuple):
    """A figure other than a rate, with its interval."""

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


FONT, SMALL_FONT = 12.5, 11.5
"""Sizes of the letters of figures in the style sheet."""
LETTER, LINE = 0.85, 1.4
"""Width and height of a letter, as shares of its size, that figures leave room for: digits of Arial are two thirds as wide."""
GAP = 6
"""Room between an axis and a text to the left of it."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Size of a figure and the margins around its plot, in user units (pixels at natural size)."""

    width: int
    height: int
    left_edge: int
    bottom: int
    top: int = 10
    right: int = 12
    font: float = FONT

    def x(self, share: float) -> float:
        """Horizontal position of a share (0 to 1) of the plot's width."""
        return self.left_edge + share * (self.width - self.left_edge - self.right)

    def y(self, share: float) -> float:
        """Vertical position of a share (0 to 1) of the plot's height, counted from below."""
        return self.height - self.bottom - share * (self.height - self.bottom - self.top)

    def text_width(self, text: str) -> float:
        """Width that a text has in a wide font."""
        return LETTER * self.font * len(text)

    def with_levels(self, texts: Iterable[str]) -> "Frame":
        """The frame with room for these texts to the left of its axis, in a wide font."""
        return replace(self, left_edge=max(self.left_edge, math.ceil(max(map(self.text_width, texts), default=0) + GAP)))


COLOURS = 5
"""Series colours of the style sheet; a sixth model starts over with another dash."""
KEY = 28
"""Width of a line's sample in a legend."""
LARGE = Frame(width=430, height=270, left_edge=60, bottom=46)
SMALL = Frame(width=170, height=124, left_edge=36, bottom=26, top=8, right=14, font=SMALL_FONT)
BARS = Frame(width=330, height=174, left_edge=40, bottom=46, right=20)


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
    parts = [percent_axis(frame, small), _eps_axis(frame, labels, top, axis or (distance and f"budget eps ({distance})"))]
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
    bins, most = len(bars.counts), max(int(bars.counts.max()), 1)
    marks = [(share, count(round(share * most))) for share in ((0.0, 1.0) if most % 2 else (0.0, 0.5, 1.0))]
    frame = BARS.with_levels(text for _, text in marks)
    parts = [levels(frame, marks)]
    width = max(frame.x(1 / bins) - frame.x(0) - 1, 0.5)
    for i, height in enumerate(bars.counts):
        x, y = frame.x(i / bins) + 0.5, frame.y(height / most)
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{frame.y(0) - y:.1f}"'
        tip = f"{_bin(bars, i, integral=ticks is None)}: {count(int(height))}"
        parts.append(f'<rect class="bar s{style % COLOURS}" {place}><title>{escape(tip)}</title></rect>')
    parts.append(baseline(frame))
    if ticks is None:
        labels_at = [(frame.x((i + 0.5) / bins), _bin(bars, i, integral=True)) for i in range(bins)]
    else:
        labels_at = [(frame.x(value / float(bars.edges[-1])), text) for value, text in ticks]
    parts += [tick(frame, x, text) for x, text in _spaced(frame, labels_at)]
    parts.append(axis_label(frame, label))
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


def levels(frame: Frame, marks: Sequence[tuple[float, str]]) -> str:
    """Horizontal lines at shares of the plot's height, the text of each to the left of it."""
    parts = []
    for share, text in marks:
        y = frame.y(share)
        parts.append(f'<line class="grid" x1="{frame.left_edge}" x2="{frame.x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{frame.left_edge - GAP}" y="{y + 4:.1f}">{escape(text)}</text>')
    return "".join(parts)


def baseline(frame: Frame) -> str:
    """The line of the horizontal axis."""
    y = frame.y(0)
    return f'<line class="axis" x1="{frame.left_edge}" x2="{frame.x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def axis_label(frame: Frame, label: str) -> str:
    """The text below the horizontal axis and its ticks; one that is too long for a wide font has its width set."""
    room = 2 * min(frame.x(0.5), frame.width - frame.x(0.5))
    length = f' textLength="{room:.1f}" lengthAdjust="spacingAndGlyphs"' if frame.text_width(label) > room else ""
    return f'<text class="mid label" x="{frame.x(0.5):.1f}" y="{frame.height - 6}"{length}>{escape(label)}</text>'


def _eps_axis(frame: Frame, labels: Sequence[tuple[float, str]], top: float, label: str) -> str:
    positions = [(frame.x(eps / top), text) for eps, text in labels]
    marks = [tick(frame, x, text, line=True) for x, text in _spaced(frame, positions)]
    return "".join([baseline(frame), *marks, axis_label(frame, label) if label else ""])


def tick(frame: Frame, x: float, text: str, *, line: bool = False) -> str:
    """The text of a tick, a line below that of the lowest level, and on demand a short line at the axis."""
    anchor, position = _anchor(frame, x, text)
    y = frame.y(0)
    short_line = f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 4:.1f}"/>' if line else ""
    return f'{short_line}<text class="{anchor}" x="{position:.1f}" y="{y + 4 + LINE * frame.font:.1f}">{escape(text)}</text>'


def _anchor(frame: Frame, x: float, text: str) -> tuple[str, float]:
    """How the text of a tick stands: centred, but where a wide font would leave the figure."""
    half = frame.text_width(text) / 2
    if x + half > frame.width:
        return "end", min(x + 10, frame.width)
    return ("start", max(x - 10, 0.0)) if x < half else ("mid", x)


def _extent(frame: Frame, x: float, text: str) -> tuple[float, float]:
    """Both ends of the text of a tick in a wide font."""
    anchor, position = _anchor(frame, x, text)
    width = frame.text_width(text)
    start = position - {"start": 0.0, "mid": 0.5, "end": 1.0}[anchor] * width
    return start, start + width


def _spaced(frame: Frame, ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The ticks that fit beside each other, both ends if possible: every so many, or of uneven budgets whatever has room."""
    if frame.font < FONT:
        return fitting(frame, [ticks[-1], ticks[0]]) if len(ticks) > 1 else list(ticks)
    for step in range(1, len(ticks) + 1):
        even = ticks[::-1][::step]
        if len(fitting(frame, even)) == len(even):
            break
    greedy = fitting(frame, [*ticks[-1:], *ticks[:-1]])  # the ends first: they say what was tested
    return sorted(greedy if len(greedy) > len(even) + 2 else fitting(frame, [*even, ticks[0]]))


def fitting(frame: Frame, ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The ticks, in order, whose text leaves the texts of earlier ones free in a wide font."""
    fitted: list[tuple[float, str]] = []
    for tick in ticks:
        left, right = _extent(frame, *tick)
        extents = [_extent(frame, *earlier) for earlier in fitted]
        if all(left >= end + 4 or right <= start - 4 for start, end in extents):
            fitted.append(tick)
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
