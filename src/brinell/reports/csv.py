"""Tables of a report as CSV: numbers in full, a share as its five parts, an interval as three.

A share is a fraction from 0 to 1, from one share to another are two, a difference of shares is in
percentage points, a duration in seconds; the heading names every unit but that of a share. The
column `column note` holds the small text of a value, such as a name.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from brinell.analysis.inference import Rank
from brinell.core.outward import cell as safe_cell
from brinell.reports.numbers import is_proportion, main_text
from brinell.reports.values import (
    Claimed,
    Code,
    Detail,
    Framed,
    Link,
    Measure,
    Percent,
    Points,
    PValue,
    Report,
    Seconds,
    Span,
    Table,
)

COUNTED, MEASURED = ("value", "low", "high", "k", "n"), ("value", "low", "high")
ENDS = ("low", "high")
NOTE = "note"
"""The part for the small text of a `Detail`."""
PLAIN = (float, int, str, type(None))
"""Values that are one cell of a file as they are."""
DIGITS = 12
"""Decimal places of points: a share times 100 without the rounding of the product."""


def csv_files(report: Report) -> dict[str, str]:
    """The named tables by the names of their files.

    Raises:
        ValueError: two tables have one name.
    """
    tables = [block for block in report.blocks if isinstance(block, Table) and block.name]
    files = {f"{table.name}.csv": table_csv(table) for table in tables}
    if len(files) < len(tables):
        raise ValueError(f"two tables of {report.verb} have the same name")
    return files


def table_csv(table: Table) -> str:
    """A table as CSV; the columns of shares and measures are named `column`, `column low` and so
    on.
    """
    # The first row of a table with a total repeats what the others sum up to.
    rows = table.rows[1:] if table.total else table.rows

    columns = [[row[index] for row in rows] for index in range(len(table.columns))]
    parts = [_parts(cells) for cells in columns]
    names = [_with_unit(name, cells) for name, cells in zip(table.columns, columns, strict=True)]

    head = [
        name if part in ("", "value") else f"{name} {part}"
        for name, group in zip(names, parts, strict=True)
        for part in group
    ]
    body = [
        [_value(value, part) for value, group in zip(row, parts, strict=True) for part in group]
        for row in rows
    ]
    return csv_text(head, body)


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV: None is an empty cell, and a text that a spreadsheet would take for a formula
    begins with an apostrophe.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([[safe_cell(value) for value in row] for row in (head, *rows)])
    return buffer.getvalue()


def _with_unit(name: str, cells: Sequence[Any]) -> str:
    """A heading that names the unit of its numbers; where shares stand above a row of points, the
    name of that row does.
    """
    values = _composed(cells)
    has_shares = any(is_proportion(value) or isinstance(value, Percent) for value in values)
    units = {value.unit for value in values if isinstance(value, Measure) and value.unit}
    units |= {"points" for value in values if isinstance(value, Points) and not has_shares}
    units |= {"seconds" for value in values if isinstance(value, Seconds)}
    missing = [unit for unit in sorted(units) if unit not in name]
    return ", ".join([name, *missing])


def _parts(cells: Sequence[Any]) -> tuple[str, ...]:
    """The columns that the cells of a column need."""
    values = _composed(cells)
    note = (NOTE,) if any(isinstance(cell, Detail) for cell in cells) else ()
    if any(is_proportion(value) for value in values):
        return (*COUNTED, *note)
    if any(isinstance(value, Percent | Points | Measure | Rank) for value in values):
        return (*MEASURED, *note)
    if any(isinstance(value, Span) for value in values):
        return (*ENDS, *note)
    return ("", *note)


def _composed(cells: Sequence[Any]) -> list[Any]:
    """The values of cells that are more than a number or a text: a thousand classes have a million
    distances.
    """
    return [value for value in map(_value_of, cells) if not isinstance(value, PLAIN)]


def _value_of(cell: Any) -> Any:
    """The value of a cell, without its small text."""
    return cell.value if isinstance(cell, Detail | Framed) else cell


def _value(cell: Any, part: str) -> Any:
    """A part of a cell as a number or a text; None where it has no such part."""
    if part == NOTE:
        return cell.text if isinstance(cell, Detail) else None
    value = _value_of(cell)
    is_main = part in ("", "value")

    if isinstance(value, PLAIN):
        return value if is_main else None
    if isinstance(value, Span):
        return getattr(value, part, None)
    if isinstance(value, list | tuple):
        return "; ".join(map(main_text, value))
    if isinstance(value, PValue | Seconds):
        value = value.value
    elif isinstance(value, Link | Code | Claimed):
        value = value.text
    elif part and hasattr(value, "value"):
        number = getattr(value, part, None)
        if number is None or not isinstance(value, Points):
            return number
        # Points are stored as shares, and their unit is in the name of the column.
        return round(100 * number, DIGITS)
    return value if is_main else None
