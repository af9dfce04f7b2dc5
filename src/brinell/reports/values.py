"""A study as values: sentences, tables, curves, pictures, facts and notes.

How they look is decided by the renderers.

A study returns a `Report`; nothing else of it knows HTML, SVG, CSV, Markdown or the width of a
terminal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from markupsafe import Markup


@dataclass(frozen=True)
class Estimate:
    """A figure with an interval where there is one; its kinds say what it is."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Measure(Estimate):
    """A number with an interval, such as a mean, in its units."""

    unit: str = ""
    """Text behind the number."""


@dataclass(frozen=True)
class Percent(Estimate):
    """A share without counts, from 0 to 1."""


@dataclass(frozen=True)
class Points(Estimate):
    """A difference of two shares, -1 to 1, shown in percentage points."""


@dataclass(frozen=True)
class Span:
    """From one share to another, 0 to 1, drawn as a bar on the page: proven to attacked; in another
    colour if it goes back.
    """

    low: float | None
    high: float | None


@dataclass(frozen=True)
class PValue:
    """A p-value, never rounded to 0."""

    value: float | None


@dataclass(frozen=True)
class Seconds:
    """A duration."""

    value: float | None


@dataclass(frozen=True)
class Link:
    """A text that leads to another page or to a block of this one (`#slug`)."""

    text: str
    address: str


@dataclass(frozen=True)
class Code:
    """A command, a path or a digest."""

    text: str


@dataclass(frozen=True)
class Claimed:
    """What no verification finds again, since it is the word of whoever made the folder.

    Durations are too; † marks both.
    """

    text: str


@dataclass(frozen=True)
class Detail:
    """A value with a smaller text below it."""

    value: Any
    text: str


@dataclass(frozen=True)
class Framed:
    """A value that stands out: in a frame on the page, in brackets at a terminal."""

    value: Any


Cell = Any
"""None (no data), a text, a number, one of the values above, or a proportion: value, low, high,
k and n, as a `Rate` has."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of values."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    name: str = ""
    """Stem of its CSV file in tables/; empty for a table that is only shown."""
    text: str = ""
    """The content of the table and how to read it."""
    caveat: str = ""
    """The part of the text without which a column misleads: a terminal shows it too."""
    heat: bool = False
    """True if proportions are shaded: the smaller, the darker."""
    reverse: bool = False
    """True if the larger proportions are darker."""
    total: bool = False
    """True if the first row is of all together: sorting leaves it in its place, and CSV leaves
    it out."""
    folded: bool = False
    """True if the page opens with it folded."""
    terminal: bool = False
    """True if the terminal shows it."""
    page: bool = True
    """False for a table of too many rows for a page: then it is a CSV file alone."""
    filter: bool = False
    """True if the page has a field that filters its rows."""
    beside: bool = False
    """True if the texts of `Detail` in a shaded table are figures of their own: they stand in the
    place of the intervals, on small screens too."""
    intervals: bool = False
    """True if intervals are shown on small screens and at terminals of any width."""
    opens: Sequence[Sequence[str]] = ()
    """For each row and column the samples that a click on the cell opens (`reports.samples.where`);
    empty texts for cells that open none."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line of a figure."""

    name: str
    points: Sequence[tuple[float, Any]]
    """Position on the axis, and a proportion or a value with an interval, from 0 to 1;
    ascending."""
    band: bool = True
    """True if the interval is drawn."""
    line: bool = True
    """False for marks alone."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Shares over budgets, with intervals as bands."""

    title: str
    series: Sequence[Series]
    ticks: Sequence[tuple[float, str]]
    """Positions with their texts, such as the budgets as they were asked."""
    axis: str
    """Name of the axis with its unit."""
    logarithmic: bool = False
    fill: bool = False
    """True if the room between the first two series is filled: proofs below, attacks above."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Small figures side by side, one of each class or model."""

    title: str
    figures: Sequence[Curve]
    text: str = ""
    folded: bool = True


@dataclass(frozen=True)
class Picture:
    """One picture of an example, drawn by `reports.pictures`, with its caption."""

    image: Markup
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Example:
    """Pictures of one sample, side by side."""

    pictures: Sequence[Picture]
    caption: str
    anchor: str = ""
    """The id by which tables link to it."""
    legend: Sequence[tuple[str, str]] = ()
    """Colour (as CSS has it) and text."""
    wide: bool = False
    """True if each picture takes the whole width, as those of signals and videos do."""


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Examples with their pictures."""

    title: str
    examples: Sequence[Example]
    text: str = ""
    folded: bool = False
    open_examples: int = 6
    """Examples that are shown at once; further ones are folded."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Names with values: what was measured, with what, where it comes from."""

    title: str
    facts: Sequence[tuple[str, Cell]]
    folded: bool = True


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Sentences under a title."""

    title: str
    sentences: Sequence[str]
    folded: bool = True


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The samples behind the figures of a page, to be filtered and opened one by one.

    A terminal, CSV files and Markdown leave them out: the rows of the folder hold the same.
    """

    title: str
    text: str
    """Says which samples are held, and which have pictures."""
    content: Mapping[str, Any]
    """Models, classes, attacks, budgets and rows as JSON values (`reports.samples`)."""
    draw: Callable[[], Mapping[str, Example]] = field(compare=False)
    """Draws the pictures by `MODEL/SAMPLE`, the model by its number: only a page needs them."""


Block = Table | Curve | Figures | Gallery | Samples | Facts | Prose


@dataclass(frozen=True)
class Note:
    """A qualification of the result."""

    code: str
    """Short name, stable for programs."""
    level: Literal["stop", "warn", "note"]
    """stop: the result is incomplete or wrong. warn: it may mislead. note: it is good to know."""
    text: str


@dataclass(frozen=True)
class Step:
    """What to do next."""

    text: str
    """Why, in one sentence."""
    command: str
    """What to type."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a page, a terminal, CSV files and a notebook say of a result."""

    verb: str
    title: str
    subject: str
    """Data, model, budget and number of samples in one line."""
    sentences: Sequence[str]
    """The answer; the first sentence is the headline."""
    blocks: Sequence[Block] = ()
    """The first figure among them stands next to the answer."""
    notes: Sequence[Note] = ()
    steps: Sequence[Step] = ()
    """At most three, the most useful first."""
    links: Sequence[Link] = ()
    """Pages that belong to this one."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The settings, shown folded at the end."""
    provenance: Sequence[tuple[str, Cell]] = ()
    """Digests, versions, machine, time."""
