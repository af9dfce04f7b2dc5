"""Figures as small inline SVG: colours and fonts come from the page's style sheet, so that light,
dark and print all fit.

Drawn here and not by a plotting library: a curve is a few lines of SVG, the bytes are the same on
every machine, every mark can carry its exact figures as a tooltip, and nothing has to be imported
or patched to follow the reader's theme.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

from brinell.reports.numbers import full_text, short
from brinell.reports.values import Curve, Series

FONT, SMALL_FONT = 12.5, 11.5
"""Sizes of the letters of figures in the style sheet."""
LETTER, LINE = 0.85, 1.4
"""Width and height of a letter, as shares of its size, that figures leave room for: digits of
Arial are two thirds as wide."""
GAP = 6
OVERHANG = 10
"""How far the text of a tick that would leave the figure may reach beyond its tick."""
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


COLOURS = 5
"""Series colours of the style sheet; a sixth series starts over with another dash."""
AREAS = ("broken", "open", "proven")
"""Areas of a figure of attacks and proofs, from above."""
KEY = 28
"""Width of a line's sample in a legend."""
LARGE = Frame(width=430, height=270, left_edge=60, bottom=46)
SMALL = Frame(width=170, height=124, left_edge=36, bottom=26, top=8, right=14, font=SMALL_FONT)


def legend(figure: Curve) -> Markup:
    """The names of the series of a figure beside samples of their lines; empty for a single one."""
    if len(figure.series) < 2:
        return Markup()
    items = [
        Markup("<li>{}{}</li>").format(key(style, line=series.line), series.name)
        for style, series in enumerate(figure.series)
    ]
    if is_filled(figure):
        area = Markup('<li><i class="key area {0}"></i>{0}</li>')
        items += [area.format(name) for name in AREAS]
    return Markup('<ul class="legend">{}</ul>').format(Markup().join(items))


def draw(figure: Curve, *, small: bool = False) -> Markup:
    """A figure as inline SVG; `small` for one of a grid of figures.

    One line for each series, each later one on top, dashed and with smaller marks, so that lines
    that coincide can be seen.
    """
    frame = SMALL if small else LARGE
    x = _horizontal(figure, frame)
    parts = [levels(frame, _shares(small)), baseline(frame)]
    marks = spaced(frame, [(x(position), text) for position, text in figure.ticks])
    parts += [tick(frame, *mark, line=True) for mark in marks]
    if not small:
        parts.append(axis_label(frame, figure.axis))
    if is_filled(figure):
        parts += areas(
            frame, [[(x(at), value) for at, value in s.points] for s in figure.series[:2]]
        )

    texts = dict(figure.ticks)
    for style, series in enumerate(figure.series):
        # Marks of later series lie on top, so they are smaller.
        radius = (2.2 if small else 3.2) + 0.7 * min(len(figure.series) - 1 - style, COLOURS)
        points = [
            (x(position), texts.get(position, short(position)), value)
            for position, value in series.points
            if _value(value) is not None
        ]
        plain = replace(series, band=series.band and not is_filled(figure))
        # Of many points the marks would hide the line.
        parts.append(_line(frame, plain, style, points, 0.0 if len(points) > 40 else radius))
    places = {text: round(x(position), 1) for position, text in figure.ticks}
    return svg(frame, figure.title, parts, "small" if small else "large", places)


def _horizontal(figure: Curve, frame: Frame) -> Callable[[float], float]:
    """The function from a position on the axis of a figure to one in its frame."""
    positions = [position for position, _ in figure.ticks]
    for series in figure.series:
        positions += [position for position, _ in series.points]
    # A logarithmic axis begins at the least position above 0, where 0 stands too.
    least = min([position for position in positions if position > 0], default=1.0)

    def scaled(position: float) -> float:
        return math.log(max(position / least, 1.0)) if figure.logarithmic else position

    largest = max([*map(scaled, positions), 1e-12])
    return lambda position: frame.x(scaled(position) / largest)


def _shares(small: bool) -> list[tuple[float, str]]:
    """The shares at which lines cross a figure, with their texts."""
    if small:
        return [(share, f"{100 * share:.0f}") for share in (0.0, 0.5, 1.0)]
    return [(share, f"{100 * share:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]


def is_filled(figure: Curve) -> bool:
    """True if the first two lines part the figure into areas: what attacks broke, what is open, and
    what is proven.
    """
    return figure.fill and len(figure.series) > 1


def areas(frame: Frame, lines: Sequence[Sequence[tuple[float, Any]]]) -> list[str]:
    """The areas above, between and below two lines."""
    if not all(lines):
        return []

    ends = [lines[0][0][0], lines[0][-1][0]]
    heights = [[(x, _value(value) or 0.0) for x, value in line] for line in lines]
    borders = [[(x, 1.0) for x in ends], *heights, [(x, 0.0) for x in ends]]
    parts = []
    for name, upper, lower in zip(AREAS, borders[:-1], borders[1:], strict=True):
        corners = [f"{x:.1f},{frame.y(share):.1f}" for x, share in (*upper, *reversed(lower))]
        parts.append(f'<polygon class="area {name}" points="{" ".join(corners)}"/>')
    return parts


def _placed(series: Series, x: Callable[[float], float]) -> list[tuple[float, Any]]:
    """The points of a line that have a value, by their horizontal positions."""
    return [(x(at), value) for at, value in series.points if _value(value) is not None]


def _value(value: Any) -> float | None:
    """The number in a cell of a series, which may be a share with its interval or the number itself."""
    share: float | None = getattr(value, "value", value)
    return share


def _line(
    frame: Frame,
    series: Series,
    style: int,
    points: Sequence[tuple[float, str, Any]],
    radius: float,
) -> str:
    """One line with its band, and marks of this radius where it is above 0."""
    if not points:
        return ""
    parts = [_band(frame, style, points)] if series.band else []
    if series.line:
        line = " ".join(f"{x:.1f},{frame.y(_value(value) or 0.0):.1f}" for x, _, value in points)
        parts.append(f'<polyline class="line {style_of(style)}" points="{line}"/>')
    for x, text, value in points if radius else ():
        tip = f"{series.name}, {text}: {full_text(value)}"
        parts.append(mark(style, x, frame.y(_value(value) or 0.0), radius, tip))
    return "".join(parts)


def _band(frame: Frame, style: int, points: Sequence[tuple[float, str, Any]]) -> str:
    """The band between the ends of intervals; empty if a point has none."""
    ends = [
        (x, getattr(value, "low", None), getattr(value, "high", None)) for x, _, value in points
    ]
    if any(low is None or high is None for _, low, high in ends):
        return ""
    # Forth along the upper ends and back along the lower ones.
    upper = [f"{x:.1f},{frame.y(high or 0.0):.1f}" for x, _, high in ends]
    lower = [f"{x:.1f},{frame.y(low or 0.0):.1f}" for x, low, _ in reversed(ends)]
    return f'<polygon class="band {style_of(style)}" points="{" ".join(upper + lower)}"/>'


def svg(
    frame: Frame,
    title: str,
    parts: Sequence[str],
    kind: str,
    places: Mapping[str, float] | None = None,
) -> Markup:
    """The parts as one inline SVG of this size; `kind` is a class of the style sheet, `places` the
    horizontal positions of the ticks by their texts.
    """
    ticks = f' data-ticks="{escape(json.dumps(places))}"' if places else ""
    head = (
        f'<svg class="figure {kind}" viewBox="0 0 {frame.width} {frame.height}" '
        f'role="img" aria-label="{escape(title)}"{ticks}>'
    )
    return Markup(head + "".join(parts) + "</svg>")


def levels(frame: Frame, marks: Sequence[tuple[float, str]]) -> str:
    """Horizontal lines at shares of the plot's height, the text of each to the left of it."""
    parts = []
    for share, text in marks:
        y = frame.y(share)
        parts.append(
            f'<line class="grid" x1="{frame.left_edge}" x2="{frame.x(1):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="end" x="{frame.left_edge - GAP}" y="{y + 4:.1f}">{escape(text)}</text>'
        )
    return "".join(parts)


def baseline(frame: Frame) -> str:
    """The line of the horizontal axis."""
    y = frame.y(0)
    return (
        f'<line class="axis" x1="{frame.left_edge}" x2="{frame.x(1):.1f}" '
        f'y1="{y:.1f}" y2="{y:.1f}"/>'
    )


def axis_label(frame: Frame, label: str) -> str:
    """The text below the horizontal axis and its ticks; one that is too long for a wide font has
    its width set.
    """
    room = 2 * min(frame.x(0.5), frame.width - frame.x(0.5))
    length = (
        f' textLength="{room:.1f}" lengthAdjust="spacingAndGlyphs"'
        if frame.text_width(label) > room
        else ""
    )
    return (
        f'<text class="mid label" x="{frame.x(0.5):.1f}" '
        f'y="{frame.height - 6}"{length}>{escape(label)}</text>'
    )


def tick(frame: Frame, x: float, text: str, *, line: bool = False) -> str:
    """The text of a tick, a line below that of the lowest level, and on demand a short line at the
    axis.
    """
    anchor, position = _anchor(frame, x, text)
    y = frame.y(0)
    short_line = (
        f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 4:.1f}"/>'
        if line
        else ""
    )

    return (
        f'{short_line}<text class="{anchor}" x="{position:.1f}" '
        f'y="{y + 4 + LINE * frame.font:.1f}">{escape(text)}</text>'
    )


def _anchor(frame: Frame, x: float, text: str) -> tuple[str, float]:
    """How the text of a tick stands: centred, but where a wide font would leave the figure."""
    half = frame.text_width(text) / 2
    if x + half > frame.width:
        return "end", min(x + OVERHANG, frame.width)
    return ("start", max(x - OVERHANG, 0.0)) if x < half else ("mid", x)


def _extent(frame: Frame, x: float, text: str) -> tuple[float, float]:
    """Left and right end of the text of a tick."""
    anchor, position = _anchor(frame, x, text)
    width = frame.text_width(text)
    start = position - {"start": 0.0, "mid": 0.5, "end": 1.0}[anchor] * width
    return start, start + width


def spaced(frame: Frame, ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The ticks that fit beside each other, both ends if possible: every so many, or of uneven
    budgets whatever has room.
    """
    # A small figure shows the ends alone.
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


def style_of(style: int) -> str:
    """Classes of the style sheet for a series: its colour and its dash."""
    return f"s{style % COLOURS} d{(style + style // COLOURS) % COLOURS}"


def mark(style: int, x: float, y: float, radius: float, tip: str) -> str:
    """A mark of a series, told apart by its shape as well as by its colour; `tip` is what it says
    when it is pointed at.
    """
    tooltip = f"<title>{escape(tip)}</title>" if tip else ""

    if style % COLOURS == 0:
        return (
            f'<circle class="dot {style_of(style)}" cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{radius:.1f}">{tooltip}</circle>'
        )
    # Shapes besides colours: a reader may not tell the colours apart. The angles, clockwise from
    # the right, are the corners of a square, a triangle, a diamond and a triangle upside down.
    corners = {1: (45, 135, 225, 315), 2: (270, 30, 150), 3: (0, 90, 180, 270), 4: (90, 210, 330)}[
        style % COLOURS
    ]

    size = radius * 1.25
    points = " ".join(
        f"{x + size * math.cos(math.radians(angle)):.1f},{y + size * math.sin(math.radians(angle)):.1f}"
        for angle in corners
    )
    return f'<polygon class="dot {style_of(style)}" points="{points}">{tooltip}</polygon>'


def key(style: int, *, line: bool = True) -> Markup:
    """The sample of a series for a legend: its mark, and its line if it has one."""
    stroke = f'<line class="line {style_of(style)}" x1="0" x2="{KEY}" y1="6" y2="6"/>'
    dot = mark(style, KEY / 2, 6, 3.2, tip="")
    return Markup(
        f'<svg class="keyline" viewBox="0 0 {KEY} 12" width="{KEY}" height="12" '
        f'aria-hidden="true">{stroke * line}{dot}</svg>'
    )
