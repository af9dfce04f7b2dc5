"""Tables of a report as CSV: numbers in full, a share as its five parts, an interval as three."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from brinell.analysis.inference import Rank
from brinell.core.outward import cell as safe_cell
from brinell.reports.numbers import is_proportion
from brinell.reports.values import (
    Claimed,
    Code,
    Detail,
    Link,
    Measure,
    Percent,
    Points,
    PValue,
    Report,
    Seconds,
    Table,
)

COUNTED, MEASURED = ("value", "low", "high", "k", "n"), ("value", "low", "high")


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
    rows = table.rows[1:] if table.total else table.rows
    parts = [_parts(row[index] for row in rows) for index in range(len(table.columns))]
    head = [
        name if part in ("", "value") else f"{name} {part}"
        for name, group in zip(table.columns, parts, strict=True)
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


def _parts(cells: Iterable[Any]) -> tuple[str, ...]:
    """The columns that the cells of a column need."""
    kinds = [value.value if isinstance(value, Detail) else value for value in cells]
    if any(is_proportion(value) for value in kinds):
        return COUNTED
    return (
        MEASURED
        if any(isinstance(value, Percent | Points | Measure | Rank) for value in kinds)
        else ("",)
    )


def _value(cell: Any, part: str) -> Any:
    if isinstance(cell, Detail):
        cell = cell.value
    if isinstance(cell, PValue | Seconds):
        return cell.value
    if isinstance(cell, Link | Code | Claimed):
        return cell.text
    if isinstance(cell, list | tuple):
        return "; ".join(map(str, cell))
    if part and hasattr(cell, "value"):
        return getattr(cell, part, None)
    return cell if part in ("", "value") else None
