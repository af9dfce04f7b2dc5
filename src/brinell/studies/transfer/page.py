"""The page of a transfer: the matrix as a heat map, the sources and how they rank, class by class."""

from pathlib import Path

from brinell.analysis.results import Rate, Share
from brinell.pages.format import norm
from brinell.pages.html import fill
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.studies.transfer.analysis import summarise
from brinell.studies.transfer.records import TABLE
from brinell.studies.transfer.results import Cell, TransferResult
from brinell.studies.transfer.words import reading

CLASSES = 20
"""Up to this many classes the page shows them; of more, the CSV does."""


def write(path: Path | str) -> Path:
    """Write `report.html` and `tables/cells.csv` into a transfer folder; returns the path of the page.

    Raises:
        RequestError: no transfer there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    transfer = TABLE.read(path)
    result = summarise(transfer)
    write_text(transfer.path / "tables" / "cells.csv", table(result))
    file = transfer.path / "report.html"
    write_text(file, render(result))
    return file


def render(result: TransferResult) -> str:
    """The page as one self-contained HTML document."""
    matrix = {(cell.source, cell.model): cell for cell in result.cells}
    classes = {one.class_: one.name for cell in result.cells for one in cell.per_class}
    return fill(
        __package__,
        "page.html",
        {"hot": hot},
        result=result,
        norm_name=norm(result.distance),
        sentences=reading(result),
        matrix=matrix,
        classes=sorted(classes.items()) if len(classes) <= CLASSES else [],
        placed=[cell for cell in result.cells if cell.per_distortion],
        of_class={key: {one.class_: one for one in cell.per_class} for key, cell in matrix.items()},
    )


def hot(cell: Cell | Share) -> str:
    """CSS class of a cell of the heat map: `h0` where no example succeeds to `h10` where all do."""
    value = (cell.success if isinstance(cell, Cell) else cell).value
    return "none" if value is None else f"h{round(10 * value)}"


def table(result: TransferResult) -> str:
    """All cells as CSV, each class and distortion of them too."""
    head = ("source", "model", "white_box", "class", "distortion", "accuracy", "accuracy_low", "accuracy_high", "n")
    lines: list[tuple[object, ...]] = []
    for cell in result.cells:
        parts: list[tuple[str | None, str | None, Rate, Share]] = [(None, None, cell.accuracy, cell.success)]
        parts += [(one.name, None, one.accuracy, one.success) for one in cell.per_class]
        parts += [(None, one.distortion, one.accuracy, one.success) for one in cell.per_distortion]
        for name, placed, a, s in parts:
            rate, success = (a.value, a.low, a.high, a.n), (s.value, s.low, s.high, s.k, s.n)
            lines.append((cell.source, cell.model, cell.white_box, name, placed, *rate, *success))
    return csv_text((*head, "success", "success_low", "success_high", "successes", "both_right"), lines)
