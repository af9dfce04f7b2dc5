"""The page of a transfer between models with dense outputs: a matrix for each figure."""

from pathlib import Path

from brinell.pages.html import fill, save_page
from brinell.pages.tables import csv_text
from brinell.studies.dense_transfer.analysis import EFFECTS, summarise
from brinell.studies.dense_transfer.records import TABLE
from brinell.studies.dense_transfer.results import DenseTransferResult, Effect
from brinell.studies.dense_transfer.words import aims, budget, change_text, columns, sentences, span_text, value_text


def write(path: Path | str) -> Path:
    """Write the page and `tables/cells.csv` of a folder from its rows."""
    folder = TABLE.read(path)
    result = summarise(folder)
    return save_page(folder.path, render(result), {"cells.csv": table(result)})


def render(result: DenseTransferResult) -> str:
    """The page as one HTML document."""
    return fill(
        __package__,
        "page.html",
        {},
        result=result,
        sentences=sentences(result),
        notes=[("note", note) for note in result.notes],
        budget=budget(result),
        matrices=[(aim, name, title) for aim in aims(result) for name, title in columns(result, aim)],
        several=len(aims(result)) > 1,
        cells={(cell.source, cell.aim, cell.model): cell for cell in result.cells},
        value_text=value_text,
        span_text=span_text,
        change_text=change_text,
    )


def table(result: DenseTransferResult) -> str:
    """All cells as CSV, a line for each figure."""
    header = ("source", "aim", "model", "white_box", "figure", *Effect.model_fields)
    return csv_text(
        header,
        [
            (cell.source, cell.aim, cell.model, cell.white_box, name, *(getattr(effect, key) for key in Effect.model_fields))
            for cell in result.cells
            for name in EFFECTS
            if (effect := getattr(cell, name)) is not None
        ],
    )
