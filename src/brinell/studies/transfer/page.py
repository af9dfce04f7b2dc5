"""The page of a transfer: the matrix as a heat map, the sources with their ranks, and figures by class."""

from pathlib import Path

from brinell.analysis.results import Rate, Share
from brinell.pages.html import fill, save_page
from brinell.pages.tables import csv_text
from brinell.studies.transfer import words
from brinell.studies.transfer.analysis import summarise
from brinell.studies.transfer.records import TABLE
from brinell.studies.transfer.results import Cell, TransferResult

CLASSES = 20
"""The page shows figures by class up to this number of classes; the CSV always does."""


def write(path: Path | str) -> Path:
    """Write `report.html` and `tables/cells.csv` into a transfer folder.

    Returns:
        The path of the page.

    Raises:
        RequestError: the folder holds no transfer, or a file in it is damaged.
        StoppedError: the folder cannot be written.
    """
    transfer = TABLE.read(path)
    result = summarise(transfer)
    return save_page(transfer.path, render(result), {"cells.csv": table(result)})


def render(result: TransferResult) -> str:
    """Render the page as one self-contained HTML document."""
    matrix = {(cell.source, cell.model): cell for cell in result.cells}
    classes = {entry.class_: entry.name for cell in result.cells for entry in cell.per_class}
    return fill(
        __package__,
        "page.html",
        {"heat_class": heat_class},
        result=result,
        budget=words.budget(result),
        terms=words.terms(result),
        sentences=words.sentences(result),
        notes=[("note", note) for note in result.notes],
        matrix=matrix,
        classes=sorted(classes.items()) if len(classes) <= CLASSES else [],
        with_distortions=[cell for cell in result.cells if cell.per_distortion],
        of_class={key: {entry.class_: entry for entry in cell.per_class} for key, cell in matrix.items()},
    )


def heat_class(cell: Cell | Share) -> str:
    """CSS class of a cell of the heat map, from `h0` if no example succeeds to `h10` if all do."""
    value = (cell.success if isinstance(cell, Cell) else cell).value
    return "none" if value is None else f"h{round(10 * value)}"


def table(result: TransferResult) -> str:
    """All cells as CSV, with a line for each class and each distortion of a cell."""
    column = words.terms(result).column
    header = ("source", "model", "white_box", "class", "distortion", column, f"{column}_low", f"{column}_high", "n")
    lines: list[tuple[object, ...]] = []
    for cell in result.cells:
        parts: list[tuple[str | None, str | None, Rate, Share]] = [(None, None, cell.rate, cell.success)]
        parts += [(entry.name, None, entry.rate, entry.success) for entry in cell.per_class]
        parts += [(None, entry.distortion, entry.rate, entry.success) for entry in cell.per_distortion]
        for class_name, distortion, left, success in parts:
            rates = (left.value, left.low, left.high, left.n, success.value, success.low, success.high)
            lines.append((cell.source, cell.model, cell.white_box, class_name, distortion, *rates, success.k, success.n))
    eligible = "both_right" if result.criterion is None else "both_unmet"
    return csv_text((*header, "success", "success_low", "success_high", "successes", eligible), lines)
