"""The HTML page of a corruption study: accuracy by kind and severity, corruption errors, and placed corruptions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import class_name
from brinell.pages.html import fill, save_page
from brinell.pages.page import heat
from brinell.pages.tables import csv_text
from brinell.report.pictures import picture
from brinell.store.files import read_arrays
from brinell.store.table import Folder
from brinell.studies.corruption.analysis import CLEAN, summarise
from brinell.studies.corruption.records import TABLE, Answers, example_path
from brinell.studies.corruption.results import CorruptResult, Error
from brinell.studies.corruption.words import reading

MAX_CLASSES = 20
"""Most classes that the page shows."""


def write(path: Path | str) -> Path:
    """Write `report.html` and `tables/levels.csv` into a corruption folder. Returns the path of the page.

    Raises:
        RequestError: the folder holds no corruption study, or one of its files is damaged.
        StoppedError: the folder cannot be written.
    """
    corruption = TABLE.read(path)
    result = summarise(corruption)
    return save_page(corruption.path, render(result, render_examples(corruption, result)), {"levels.csv": table(result)})


def render_examples(corruption: Folder[Answers], result: CorruptResult) -> list[dict[str, Any]]:
    """One sample of each kind that changes any, clean beside corrupted; the kinds that cost the first model most come first."""
    model, facts = result.models[0], corruption.manifest
    domain, names = facts["data"]["domain"], [str(name) for name in facts["data"]["classes"]]
    low, high = float(np.min(domain["low"])), float(np.max(domain["high"]))
    severity, answers = max(level.severity for level in result.kinds), corruption.rows
    examples = []
    for kind in sorted((kind for kind in model.kinds if kind.active), key=lambda kind: kind.accuracy or 0.0):
        arrays = read_arrays(corruption.path / example_path(facts["kinds"].index(kind.kind)))
        sample = int(arrays["sample"][0])
        of_sample = (answers.model == model.model) & (answers.sample_id == sample)
        clean, corrupted = (
            np.flatnonzero(of_sample & (answers.kind == name) & (answers.severity == level))[0]
            for name, level in ((CLEAN, 0), (kind.kind, severity))
        )
        label, before, after = (
            class_name(names, int(value)) for value in (answers.label[clean], answers.pred[clean], answers.pred[corrupted])
        )
        views = [
            picture(arrays[name], domain["kind"], low, high, title=f"sample {sample}, {label}, {name}")
            for name in ("clean", "corrupted")
        ]
        examples.append(
            {"kind": kind.kind, "severity": severity, "views": views, "label": label, "before": before, "after": after}
        )
    return examples


def render(result: CorruptResult, examples: Sequence[dict[str, Any]] = ()) -> str:
    """The page as one self-contained HTML document."""
    return fill(
        __package__,
        "page.html",
        {"heat": heat, "hundred": error_percent},
        result=result,
        sentences=reading(result),
        examples_of_kinds=list(examples),
        notes=[("note", note) for note in result.notes],
        severities=sorted({level.severity for level in result.kinds}),
        levels={(level.model, level.kind, level.severity): level for level in result.kinds},
        placed=[level for level in result.kinds if level.placed is not None],
        classes=len(result.models[0].per_class) <= MAX_CLASSES,
    )


def error_percent(error: Error) -> str:
    """A corruption error in per cent of the reference, with its interval."""
    if error.value is None:
        return "–"
    if error.low is None or error.high is None:
        return f"{100 * error.value:.1f}"
    return f"{100 * error.value:.1f} ({100 * error.low:.1f} to {100 * error.high:.1f})"


def table(result: CorruptResult) -> str:
    """Every corruption at every severity as CSV."""

    def cells(rate: Rate | None) -> tuple[object, ...]:
        """The fields of a rate as table cells."""
        return (None,) * 5 if rate is None else (rate.value, rate.low, rate.high, rate.k, rate.n)

    parts = ("value", "low", "high", "k", "n")
    head = [f"{name}_{part}" for name in ("accuracy", "placed", "uniform") for part in parts]
    return csv_text(
        ("model", "kind", "severity", *head, "median_l2", "cost", "cost_low", "cost_high", "p"),
        (
            (level.model, level.kind, level.severity, *cells(level.accuracy), *cells(level.placed), *cells(level.uniform))
            + (level.median_l2, level.cost, level.low, level.high, level.p)
            for level in result.kinds
        ),
    )
