"""Every table of every study as CSV: the names beside the numbers, in the units of the headings."""

import csv
import io

import pytest

import brinell
from brinell.analysis.inference import Rank
from brinell.analysis.robust_accuracy import rate
from brinell.core.outward import printable
from brinell.reports.csv import csv_files, table_csv
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
    Seconds,
    Table,
)

RUNS = (
    "audit",
    "models",
    "epsilon",
    "transfer",
    "compare",
    "explain",
    "harden",
    "certify",
    "corrupt",
    "smooth",
    "benchmark",
    "masks",
    "boxes",
    "review",
    "unrestricted",
    "claim",
)
UNITS = ((Points, "points"), (Seconds, "seconds"))


def parse(table):
    return [*csv.DictReader(io.StringIO(table_csv(table)))]


def headings_of(name, line):
    """The headings of the column of a table whose heading in the report is `name`."""
    return [head for head in line if head == name or head.startswith((f"{name},", f"{name} "))]


def check_cell(name, cell, line, first):
    """A cell of a report stands in the line of its CSV, in the unit that its heading names, or the
    first cell of its row.
    """
    value = cell.value if isinstance(cell, Detail) else cell
    heads = headings_of(name, line)
    texts = [line[head].removeprefix("'") for head in heads]
    if isinstance(cell, Detail):
        assert printable(cell.text).replace("\n", " ") in texts
    if isinstance(value, Link | Code | Claimed):
        assert printable(value.text) in texts
    elif isinstance(value, str):
        assert printable(value).replace("\n", " ") in texts
    elif isinstance(value, Points):
        assert all("points" in head for head in (heads if "points" not in first else ()))
        assert value.value is None or 100 * value.value in map(pytest.approx, number_of(texts))
    elif isinstance(value, Seconds):
        assert all("seconds" in head for head in heads)
        assert value.value is None or value.value in number_of(texts)
    elif isinstance(value, Measure):
        assert all(value.unit in head for head in heads)
        assert value.value is None or value.value in number_of(texts)
    elif isinstance(value, Percent | PValue | Rank) or is_proportion(value):
        assert not any("%" in head or "percent" in head for head in heads)
        assert value.value is None or value.value in number_of(texts)
        if is_proportion(value):
            assert {value.k, value.n} <= {*number_of(texts)}
    elif isinstance(value, int | float) and not isinstance(value, bool):
        assert value in number_of(texts)


def number_of(texts):
    numbers = []
    for text in texts:
        try:
            numbers.append(float(text))
        except ValueError:
            continue
    return numbers


@pytest.mark.parametrize("kinds", [RUNS[start::8] for start in range(8)])
def test_each_table_holds_all_that_the_report_says(kinds, request, subtests):
    """Each text, name, number, count and unit of each named table of a finished run."""
    for kind in kinds:
        with subtests.test(kind):
            check_tables(request.getfixturevalue(f"{kind}_run"))


def check_tables(folder):
    report = brinell.open(folder).report()
    tables = [block for block in report.blocks if isinstance(block, Table) and block.name]
    assert len(csv_files(report)) == len(tables)
    for table in tables:
        rows, lines = table.rows[1:] if table.total else table.rows, parse(table)
        assert len(lines) == len(rows)
        for row, line in zip(rows, lines, strict=True):
            for name, cell in zip(table.columns, row, strict=True):
                check_cell(name, cell, line, str(row[0]))


def test_names_and_units_by_hand():
    """The weakest class has its name; a change of −0.0167 is −1.67 points; 2 of 3 is a share."""
    columns = ("weakest class", "change, points", "gap", "time", "size", "accuracy")
    cells = (
        Detail(Percent(0.5), "bird"),
        Points(-0.0167, -0.03, 0.01),
        Points(0.25),
        Seconds(90.0),
        Measure(3.0, unit="dB"),
        rate(2, 4, eps=0.0),
    )
    (line,) = parse(Table(title="t", columns=columns, rows=[cells]))
    known = {
        "weakest class": "0.5",
        "weakest class note": "bird",
        "change, points": "-1.67",
        "change, points low": "-3.0",
        "change, points high": "1.0",
        "gap, points": "25.0",
        "time, seconds": "90.0",
        "size, dB": "3.0",
        "accuracy": "0.5",
        "accuracy k": "2",
        "accuracy n": "4",
    }
    assert known.items() <= line.items()


def test_an_audit_names_its_weakest_class(audit_run):
    """Known from the margins of `patterns`: at 6/255 three classes tie, the first among them."""
    (table,) = [
        block
        for block in brinell.open(audit_run).report().blocks
        if isinstance(block, Table) and "weakest class" in block.columns
    ]
    last = parse(table)[-1]
    assert last["weakest class"].startswith("first (class 0)")
    assert float(last["lowest of a class"]) == pytest.approx(1 / 3)
