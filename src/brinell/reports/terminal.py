"""A report for a terminal: the answer, what qualifies it, the tables that belong to it, and what to
do next; at any width.

A table that is wider than the terminal is never cropped. The first of these that has room is
printed: the table with its intervals, without them, with rows and columns exchanged, and blocks of
columns one below another, each with the names of the rows.
"""

import bisect
import io
import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from brinell.core.outward import printable
from brinell.reports.numbers import detail_text, main_text, share_of
from brinell.reports.values import Code, Detail, Framed, Link, Report, Span, Table

WIDTH, NARROWEST = 80, 20
"""Columns where nothing says how wide a terminal is, and the fewest that are used."""
UNBROKEN = 24
"""Cells up to this length stay on one line."""
UNBROKEN_WITH_INTERVAL = 60
"""The same where cells have their intervals: they are shown where no cell breaks for them."""
GAP, NARROW_GAP, INDENT = 2, 1, 2
"""Columns between two cells, between those of a table that just has room, and before cells that
stand below the name of their row."""
LEVELS = {
    "stop": ("incomplete:", "bold red"),
    "warn": ("warning:", "yellow"),
    "note": ("note:", "dim"),
}
"""Word and style of a note by its level."""

ColorSystem = Literal["auto", "standard", "256", "truecolor", "windows"]
"""Colours of a terminal, as rich names them."""


def lines(
    report: Report,
    width: int | None = None,
    *,
    verbose: bool = False,
    colors: ColorSystem | None = None,
) -> Iterator[str]:
    """The lines of a report.

    Args:
        report: what to print.
        width: columns of the terminal; by default those of the variable COLUMNS or of the terminal,
            and 80 where the output is piped.
        verbose: True prints notes too.
        colors: the colours of the terminal; None prints no styles.
    """
    width = shutil.get_terminal_size((WIDTH, 24)).columns if width is None else width
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(width, NARROWEST),
        color_system=colors,
        legacy_windows=False,
        highlight=False,
    )

    print_report(report, console, verbose=verbose)
    yield from (line.rstrip() for line in buffer.getvalue().splitlines())


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

    _print_notes(report, console, verbose=verbose)

    for table in (block for block in report.blocks if isinstance(block, Table) and block.terminal):
        text = Text("\n").join(_table_lines(table, console))
        console.print(text, soft_wrap=True)
    if report.steps:
        console.print()
    for step in report.steps:
        console.print(Text(f"next: {_plain(step.text)}"))
        console.print(Text(f"  {printable(step.command)}", style="cyan"), soft_wrap=True)


def _print_notes(report: Report, console: Console, *, verbose: bool) -> None:
    """Print the warnings, and with `verbose` all notes; otherwise how many are hidden."""
    for note in report.notes:
        if verbose or note.level != "note":
            word, style = LEVELS[note.level]
            console.print(Text(f"{word} {_plain(note.text)}", style=style))

    hidden = 0 if verbose else sum(note.level == "note" for note in report.notes)
    if hidden:
        number = f"{hidden} note{'s' * (hidden > 1)}"
        pronoun = "them" if hidden > 1 else "it"
        console.print(Text(f"{number}: brinell -v shows {pronoun}", style="dim"))


@dataclass(frozen=True)
class TextTable:
    """A table as texts.

    Its first `names` columns name a row; a column of `right` stands on the right.
    """

    heads: list[Text]
    rows: list[list[Text]]
    names: int
    right: list[bool]
    intervals: bool
    """True if cells have their intervals."""

    def turned(self) -> "TextTable":
        """Rows and columns exchanged: one column for each row, under its name."""
        titles = [_joined(row[: self.names]) for row in self.rows]
        data = range(self.names, len(self.heads))
        return TextTable(
            [_joined(self.heads[: self.names]), *titles],
            [[self.heads[column], *(row[column] for row in self.rows)] for column in data],
            names=1,
            right=[False, *[any(self.right[self.names :])] * len(titles)],
            intervals=self.intervals,
        )

    @property
    def gap(self) -> int:
        """Least distance of two columns."""
        return GAP if self.intervals else NARROW_GAP

    @cached_property
    def columns(self) -> list[list[Text]]:
        """The texts of each column, its heading first."""
        return [[*texts] for texts in zip(self.heads, *self.rows, strict=True)]

    @cached_property
    def least(self) -> list[int]:
        """By column the cells of a terminal below which it would break a word or a short cell."""
        unbroken = UNBROKEN_WITH_INTERVAL if self.intervals else UNBROKEN
        widths = []
        for column, texts in enumerate(self.columns):
            lengths = [text.cell_len for text in texts[1:] if column >= self.names]
            short = [length for length in lengths if length <= unbroken]
            widths.append(max([*map(_longest_word, texts), *short]))
        return widths


@dataclass(frozen=True)
class ColumnBlocks:
    """A grid in blocks of columns; `above` if the name of a row has a separate line."""

    grid: TextTable
    blocks: list[list[int]]
    above: bool

    @property
    def height(self) -> int:
        """Lines of all blocks, if no cell breaks."""
        return len(self.blocks) * (len(self.grid.rows) * (1 + self.above) + 3)

    def lines(self, console: Console) -> list[Text]:
        """The lines of all blocks, with an empty one between two."""
        parts = [[*self._block_lines(block, console)] for block in self.blocks]
        return [line for block in parts for line in (Text(""), *block)][1:]

    def _block_lines(self, block: Sequence[int], console: Console) -> Iterator[Text]:
        """One block: the columns that name the rows, or these names above each row, and some others."""
        grid, width = self.grid, console.width
        columns = [*([] if self.above else range(grid.names)), *block]
        indent = INDENT if self.above and grid.names else 0
        least = [min(grid.least[column], width - indent) for column in columns]
        has_room = indent + sum(least) + GAP * (len(columns) - 1) <= width
        gap = GAP if has_room else NARROW_GAP
        room = width - indent - sum(least) - gap * (len(columns) - 1)
        widths = _widened(least, [grid.columns[column] for column in columns], room)

        def draw(cells: Sequence[Text], bottom: bool = False) -> Iterator[Text]:
            if self.above:
                yield from _joined(cells[: grid.names]).wrap(console, width, overflow="fold")
            parts = [
                _wrapped(cells[column], size, grid.right[column], console)
                for column, size in zip(columns, widths, strict=True)
            ]
            height = max(map(len, parts), default=0)
            # Cells hang from the top of their row, and headings stand on the rule below them.
            for line in range(height):
                texts = [
                    _line(part, line - (height - len(part)) * bottom, size)
                    for part, size in zip(parts, widths, strict=True)
                ]
                yield Text(" " * indent) + Text(" " * gap).join(texts)

        yield from draw([Text(head.plain, style="bold") for head in grid.heads], bottom=True)
        yield Text("─" * (indent + sum(widths) + gap * (len(widths) - 1)), style="dim")
        for row in grid.rows:
            yield from draw(row)


def _table_lines(table: Table, console: Console) -> Iterator[Text]:
    """A table with its title, in the first layout that has room."""
    full = _grid(table, intervals=True)
    short = _grid(table, intervals=table.intervals)
    title = _plain(table.title) + ", in percent" * table.heat
    yield Text("")
    yield from Text(title, style="bold").wrap(console, console.width, overflow="fold")

    grids = [full, short, full.turned(), short.turned()]
    layouts = (_layout(grid, console.width, above=False) for grid in grids)
    single = next((layout for layout in layouts if layout and len(layout.blocks) == 1), None)
    chosen = single or _shortest(short, console.width)
    yield from chosen.lines(console)
    if table.caveat:
        yield from Text(_plain(table.caveat), style="dim").wrap(console, console.width)

    if not chosen.grid.intervals and full.rows != short.rows:
        place = f"tables/{table.name}.csv" if table.name else "the page"
        yield from Text(f"intervals: {place}", style="dim").wrap(console, console.width)


def _shortest(grid: TextTable, width: int) -> ColumnBlocks:
    """Of the layouts in blocks the one with the fewest lines, as it is before turned."""
    candidates = [
        _layout(form, width, above) for above in (False, True) for form in (grid, grid.turned())
    ]
    layouts = [layout for layout in candidates if layout is not None]
    return min(layouts, key=lambda layout: layout.height)


def _layout(grid: TextTable, width: int, above: bool) -> ColumnBlocks | None:
    """A grid in as few blocks of columns as have room; None where its names leave none."""
    least = [min(size, width - INDENT * above) for size in grid.least]
    data = range(grid.names, len(grid.heads))
    start = INDENT if above else sum(least[: grid.names]) + NARROW_GAP * (grid.names - 1)
    if sum(least) + grid.gap * (len(least) - 1) <= width and not above:
        return ColumnBlocks(grid, [[*data]], above)
    if not above and any(start + GAP + least[column] > width for column in data):
        return None

    blocks: list[list[int]] = []
    free = 0
    for column in data:
        # A column that finds no room in a block begins the next one.
        needed = least[column] + GAP
        if not blocks or needed > free:
            blocks.append([])
            free = width - start + GAP * above
        blocks[-1].append(column)
        free -= needed
    return ColumnBlocks(grid, blocks or [[]], above)


def _widened(least: Sequence[int], columns: Sequence[Sequence[Text]], room: int) -> list[int]:
    """Widths from the least on: the room goes to the columns of the most lines, each time as much
    as takes a line off one; what takes none off stays free.
    """
    widths = list(least)
    words = [[[*map(cell_len, text.plain.split())] for text in texts] for texts in columns]

    while True:
        lines = [_count_lines(texts, width) for texts, width in zip(words, widths, strict=True)]
        for column in sorted(range(len(widths)), key=lambda k: -lines[k]):
            further = range(1, room + 1) if lines[column] > 1 else ()
            # Lines never grow with the width, so that the least that takes one off is bisected.
            needed = bisect.bisect_left(
                further,
                True,
                key=lambda extra, k=column: _count_lines(words[k], widths[k] + extra) < lines[k],
            )
            if needed < len(further):
                widths[column] += needed + 1
                room -= needed + 1
                break
        else:
            return widths


def _count_lines(texts: Sequence[Sequence[int]], width: int) -> int:
    """Lines of the longest cell of a column, by the lengths of its words."""
    most = 1
    for words in texts:
        # Below 0 no word has room: the first one begins a line.
        lines, free = 0, -1
        for length in words:
            if length < free:
                free -= length + 1
            else:  # a word that is wider than its column takes several lines
                rows = -(-length // max(width, 1))
                lines, free = lines + rows, rows * width - length
        most = max(most, lines)
    return most


def _wrapped(text: Text, width: int, right: bool, console: Console) -> list[Text]:
    """The lines of a cell, each as wide as its column."""
    fits = text.cell_len <= width and "\n" not in text.plain
    parts = [text.copy()] if fits else list(text.wrap(console, width, overflow="fold"))
    for part in parts:
        part.rstrip()
        part.align("right" if right else "left", width)
    return parts


def _line(part: Sequence[Text], line: int, width: int) -> Text:
    return part[line] if 0 <= line < len(part) else Text(" " * width)


def _joined(texts: Sequence[Text]) -> Text:
    return Text(" · ").join(texts)


def _longest_word(text: Text) -> int:
    return max(map(cell_len, text.plain.split()), default=0)


def _grid(table: Table, intervals: bool) -> TextTable:
    """A table as texts, without the bars that only a page draws."""
    columns = [
        index
        for index in range(len(table.columns))
        if not any(isinstance(row[index], Span) for row in table.rows)
    ]

    rows = [[_cell(row[index], table, intervals) for index in columns] for row in table.rows]
    right = [
        index > 0 and any(not isinstance(row[index], str | None) for row in table.rows)
        for index in columns
    ]

    return TextTable(
        [Text(_plain(table.columns[index])) for index in columns],
        rows,
        names=min(
            _count_names([[row[index] for index in columns] for row in table.rows]), len(columns)
        ),
        right=right,
        intervals=intervals,
    )


def _count_names(rows: Sequence[Sequence[object]]) -> int:
    """The number of leading columns of words that tell the rows apart; 1 where none do."""
    for number in itertools.count(1):
        values = [row[:number] for row in rows]
        if any(len(value) < number or not _is_name(value[-1]) for value in values):
            return 1
        if len({tuple(map(main_text, value)) for value in values}) == len(rows):
            return number
    raise AssertionError("the loop ends by its returns")


def _is_name(value: object) -> bool:
    return (
        _is_name(value.value) if isinstance(value, Detail) else isinstance(value, str | Link | Code)
    )


def _cell(value: object, table: Table, intervals: bool) -> Text:
    """A cell: a share is red on the bad side of one half, where the table shades its shares."""
    share = share_of(value)
    text = Text(
        f"{100 * share:.1f}" if table.heat and share is not None else _plain(main_text(value))
    )
    if isinstance(value, Framed):
        text = Text(f"[{text.plain}]", style="bold")
    if table.heat and share is not None and (share > 0.5) == table.reverse:
        text.stylize("red")
    kept = value.text if isinstance(value, Detail) else ""
    detail = detail_text(value) if intervals else kept
    if detail:
        text.append(f" {_plain(detail).replace(' %' * table.heat, '')}", style="dim")
    return text


def _plain(text: str) -> str:
    """A text without characters that only a page has a use for."""
    return printable(text.replace("\u2060", "").replace("\u00a0", " ").replace("\u202f", ","))
