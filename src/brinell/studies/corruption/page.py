"""The page of a corruption study: kinds by severity as heat maps, errors relative to the reference, placed beside whole."""

from pathlib import Path

from brinell.analysis.results import Rate
from brinell.pages.html import fill
from brinell.pages.page import heat
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.studies.corruption.analysis import summarise
from brinell.studies.corruption.records import TABLE
from brinell.studies.corruption.results import CorruptResult, Error
from brinell.studies.corruption.words import reading

CLASSES = 20
"""Up to this many classes the page shows them."""


def write(path: Path | str) -> Path:
    """Write `report.html` and `tables/levels.csv` into a corruption folder; returns the path of the page.

    Raises:
        RequestError: no corruptions there, or a damaged file in them.
        StoppedError: the folder cannot be written.
    """
    corruption = TABLE.read(path)
    result = summarise(corruption)
    write_text(corruption.path / "tables" / "levels.csv", table(result))
    file = corruption.path / "report.html"
    write_text(file, render(result))
    return file


def render(result: CorruptResult) -> str:
    """The page as one self-contained HTML document."""
    return fill(
        __package__,
        "page.html",
        {"heat": heat, "hundred": hundred},
        result=result,
        sentences=reading(result),
        severities=sorted({one.severity for one in result.kinds}),
        levels={(one.model, one.kind, one.severity): one for one in result.kinds},
        placed=[one for one in result.kinds if one.placed is not None],
        classes=len(result.models[0].per_class) <= CLASSES,
    )


def hundred(error: Error) -> str:
    """A corruption error as it is published, 100 for the reference, with its interval."""
    if error.value is None or error.low is None or error.high is None:
        return "–"
    return f"{100 * error.value:.1f} ({100 * error.low:.1f} to {100 * error.high:.1f})"


def table(result: CorruptResult) -> str:
    """Every corruption at every severity as CSV."""

    def cells(rate: Rate | None) -> tuple[object, ...]:
        return (None,) * 5 if rate is None else (rate.value, rate.low, rate.high, rate.k, rate.n)

    parts = ("value", "low", "high", "k", "n")
    head = [f"{name}_{part}" for name in ("accuracy", "placed", "uniform") for part in parts]
    return csv_text(
        ("model", "kind", "severity", *head, "median_l2", "cost", "cost_low", "cost_high", "p"),
        (
            (one.model, one.kind, one.severity, *cells(one.accuracy), *cells(one.placed), *cells(one.uniform))
            + (one.median_l2, one.cost, one.low, one.high, one.p)
            for one in result.kinds
        ),
    )
