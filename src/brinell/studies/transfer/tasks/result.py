"""Rows of a transfer of pictures, the figures of every model on the inputs of every source, and the
report.

The inputs of a cell are those that were strongest on its source, whatever other models answer to
them. So a figure on another model than the source does not bound the robustness of that model.

inputs/SOURCE-*.safetensors   the strongest inputs on each source, as an audit of pictures stores
                              them
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.pictures import TASKS, PictureRows
from brinell.core.boxes import ERRORS, FALSE
from brinell.core.record import Array, column
from brinell.manifest import Amount, Listing
from brinell.reports.numbers import counted, distance, listed, percent, points
from brinell.reports.values import Detail, Note, Report, Table
from brinell.store.table import Folder
from brinell.studies.audit.tasks.result import TITLES, Figure, TaskFacts, show
from brinell.studies.result import FolderResult
from brinell.studies.transfer import TransferRequest


@dataclass(frozen=True, kw_only=True)
class Answers(PictureRows):
    """The rows of a transfer."""

    source: Array = column(
        "string", "model on which the input was found; empty for the untouched picture"
    )
    model: Array = column("string", "model that is shown the input")


class TransferFacts(TaskFacts):
    """Facts that the request leaves open."""

    eps: Amount
    """The budget."""
    eps_text: str
    """The same as it was written."""
    sources: Listing[str]
    """The models that were attacked."""
    attacks: Listing[str]
    """The attacks on them, in the order in which they ran."""


class Effect(Figure):
    """A figure of a set of pictures, and its change by the inputs of a source."""

    quantity: str
    """pixel accuracy or mean IoU; for boxes recall, AP50, AP, and the kinds of errors."""
    change: Figure
    """The figure minus that of the same model without an attack, paired by picture; 0 without
    one."""


class Cell(Result):
    """The answers of one model to one set of inputs."""

    source: str | None
    """The model on which the inputs were found; null for the untouched pictures."""
    aim: str | None
    """Aim of the attack; null without one."""
    model: str
    """The model that is shown the inputs."""
    white_box: bool
    """True if the inputs were found on this model."""
    figures: list[Effect]


class TransferResult(FolderResult):
    """What `brinell transfer --json` prints for data with masks or boxes."""

    request: TransferRequest
    facts: TransferFacts
    n: int
    """Number of pictures."""
    cells: list[Cell]
    """The untouched pictures on each model, and then each source and aim on each model."""
    notes: list[str]
    """Notes on the models."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        cells = {(cell.source, cell.aim, cell.model): cell for cell in self.cells}
        crossing = [cell for cell in self.cells if cell.source is not None and not cell.white_box]
        return Report(
            verb="transfer",
            title="Do inputs found on one model harm another?",
            subject=f"{self.data}, {counted(self.n, 'picture')}; "
            f"{distance(self.request.norm)} up to {self.facts.eps_text}, "
            f"{self.facts.criterion}, {listed(list(self.facts.attacks))}",
            sentences=[
                _sentence(cell, cells)
                for cell in sorted(crossing, key=lambda cell: cell.figures[0].change.value or 0.0)
            ],
            notes=[Note("note", "note", text) for text in self.notes],
            blocks=[
                Table(
                    title="Figures of each model on the inputs of each source",
                    columns=("figure", "found on", *self.models),
                    rows=[
                        (
                            TITLES.get(name, name),
                            "no attack"
                            if source is None
                            else f"{source}, {aim}"
                            if aim in ERRORS
                            else source,
                            *(
                                _shown(cells[source, aim, model].figures[place])
                                for model in self.models
                            ),
                        )
                        for place, name in enumerate(
                            effect.quantity for effect in self.cells[0].figures
                        )
                        for source, aim in dict.fromkeys(
                            (cell.source, cell.aim) for cell in self.cells
                        )
                        if name not in ERRORS or aim in (None, name)
                    ],
                    text="Below each figure: its interval and its change by the "
                    "inputs, whose interval is paired by picture "
                    "(95 %, bootstrap). Inputs are those that were strongest on "
                    "their source: on other models the figures are no "
                    "upper bounds of robustness.",
                    name="figures",
                    terminal=True,
                ),
            ],
        )


def _shown(effect: Effect) -> Detail:
    """A figure with its change."""
    is_count, change = effect.quantity == FALSE, effect.change
    parts = (change.value, change.low, change.high)
    text, low, high = (
        "" if part is None else f"{part:+.1f}" if is_count else points(part) for part in parts
    )
    return Detail(
        show(effect.quantity, effect),
        "" if not change.value else f"{text} ({low} to {high})" if low else text,
    )


def _sentence(cell: Cell, cells: Mapping[tuple[str | None, str | None, str], Cell]) -> str:
    """The figure of a model on the inputs of another one, without an attack, and under its own."""
    effect, clean = cell.figures[0], cells[None, None, cell.model].figures[0]
    own = cells.get((cell.model, cell.aim, cell.model))
    under_own = f", {percent(own.figures[0].value)} under its own attack" if own else ""
    aimed = f" aimed at {cell.aim}" if cell.aim in ERRORS else ""
    return (
        f"On inputs found on {cell.source}{aimed}, the {effect.quantity} of "
        f"{cell.model} is {percent(effect.value)} "
        f"({percent(clean.value)} without an attack{under_own})."
    )


def summarise(folder: Folder[Answers]) -> TransferResult:
    """Figures of a folder from its rows."""
    rows, facts, head = folder.rows, folder.facts, folder.head()
    models = head["models"]

    def part(source: str, aim: str, model: str) -> Array:
        """The rows of a model on one set of inputs, by picture."""
        index = np.flatnonzero((rows.source == source) & (rows.aim == aim) & (rows.model == model))
        return index[np.argsort(rows.sample_id[index], kind="stable")]

    first = part("", "", models[0])
    place = np.searchsorted(rows.sample_id[first], rows.sample_id)
    pictures = TASKS[facts.task](rows.answer, place, first, least_score=facts.least_score)
    sets = [("", "")]
    for source in facts.sources:
        sets += [(source, aim) for aim in dict.fromkeys(rows.aim[rows.source == source].tolist())]
    cells = [
        Cell(
            source=source or None,
            aim=aim or None,
            model=model,
            white_box=source == model,
            figures=[
                Effect(
                    quantity=name,
                    **pictures.figure(name, index),
                    change=Figure(**pictures.figure(name, index, less=part("", "", model))),
                )
                for name in pictures.figures
            ],
        )
        for source, aim in sets
        for model in models
        for index in [part(source, aim, model)]
    ]
    notes = [str(note) for entry in folder.manifest["models"] for note in entry.get("notes", [])]
    return TransferResult(**head, n=len(first), cells=cells, notes=notes)
