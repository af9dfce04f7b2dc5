"""A report for a terminal: the answer, what qualifies it, the tables that belong to it, and what to
do next; at any width.
"""

import io
from collections.abc import Iterator
from textwrap import fill

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from brinell.core.outward import printable
from brinell.reports.numbers import detail_text, main_text, share_of
from brinell.reports.values import Detail, Report, Span, Table

WIDTH, BROAD = 80, 1000
UNBROKEN = 24
"""Cells up to this length stay on one line where a table is narrow."""
LEVELS = {
    "stop": ("incomplete:", "bold red"),
    "warn": ("warning:", "yellow"),
    "note": ("note:", "dim"),
}
"""Word and style of a note by its level."""


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print a report: headline, further sentences, warnings, tables, steps; with `verbose` all
    notes.
    """
    stopped = any(note.level == "stop" for note in report.notes)
    first, *further = [_plain(sentence) for sentence in report.sentences] or [""]
    console.print(Text(first, style="bold red" if stopped else "bold"))
    for sentence in further:
        console.print(Text(sentence))
    console.print(Text(_plain(f"{report.title}: {report.subject}"), style="dim"))
    for note in report.notes:
        if verbose or note.level != "note":
            word, style = LEVELS[note.level]
            console.print(Text(f"{word} {_plain(note.text)}", style=style))
    hidden = 0 if verbose else sum(note.level == "note" for note in report.notes)
    if hidden:
        console.print(
            Text(
                f"{hidden} note{'s' * (hidden > 1)}: brinell -v shows "
                f"{'them' if hidden > 1 else 'it'}",
                style="dim",
            )
        )
    for table in (block for block in report.blocks if isinstance(block, Table) and block.terminal):
        for form in ("intervals", "figures", "narrow"):
            grid = _grid(table, form)
            if (
                Measurement.get(console, console.options.update(width=BROAD), grid).maximum
                <= console.width
            ):
                break
        console.print(grid)
    for step in report.steps:
        console.print(Text(f"next: {_plain(step.text)}"))
        console.print(Text(f"  {printable(step.command)}", style="cyan"), soft_wrap=True)


def lines(report: Report, width: int = WIDTH, *, verbose: bool = False) -> Iterator[str]:
    """The lines of a report without colours."""
    buffer = io.StringIO()
    print_report(
        report,
        Console(file=buffer, width=width, color_system=None, highlight=False),
        verbose=verbose,
    )
    yield from (line.rstrip() for line in buffer.getvalue().splitlines())


def _grid(table: Table, form: str) -> Grid:
    """A table with numbers on the right, intervals dim beside them, and long texts wrapped; narrow:
    headings break first.
    """
    title = _plain(table.title) + ", in percent" * table.heat
    gap = (0, 1, 0, 0) if form == "narrow" else (0, 1)
    grid = Grid(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        padding=gap,
    )
    bars = {
        index for row in table.rows for index, value in enumerate(row) if isinstance(value, Span)
    }  # the page draws them
    shown = [index for index in range(len(table.columns)) if index not in bars]
    for index in shown:
        numeric = index > 0 and any(not isinstance(row[index], str | None) for row in table.rows)
        cells = [_cell(row[index], table, form).plain for row in table.rows]
        heading, widest = _plain(table.columns[index]), max(map(len, cells), default=0)
        fixed = form == "narrow" and index > 0 and widest <= UNBROKEN
        if fixed:
            heading = fill(heading, max(widest, *map(len, heading.split())), break_long_words=False)
        grid.add_column(
            heading, justify="right" if numeric else "left", overflow="fold", no_wrap=fixed
        )
    for row in table.rows:
        grid.add_row(*(_cell(row[index], table, form) for index in shown))
    return grid


def _cell(value: object, table: Table, form: str) -> Text:
    share = share_of(value)
    text = Text(
        f"{100 * share:.1f}" if table.heat and share is not None else _plain(main_text(value))
    )
    if table.heat and share is not None and (share > 0.5) == table.reverse:
        text.stylize("red")
    detail = (
        detail_text(value)
        if form == "intervals"
        else value.text
        if isinstance(value, Detail)
        else ""
    )
    if detail:
        text.append(f" {_plain(detail).removesuffix(' %' * table.heat)}", style="dim")
    return text


def _plain(text: str) -> str:
    """A text without characters that only a page has a use for."""
    return printable(text.replace("\u2060", "").replace("\u00a0", " ").replace("\u202f", ","))
