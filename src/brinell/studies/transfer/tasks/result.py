"""Rows of a transfer of pictures, the figures of every model on the inputs of every source, and the
report.

The inputs of a cell are those that were strongest on its source, whatever other models answer to
them. So a figure on another model than the source does not bound the robustness of that model.

inputs/SOURCE-*.safetensors   the strongest inputs on each source, as an audit of pictures stores
                              them
"""

from dataclasses import dataclass

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.pictures import PictureRows, Pictures
from brinell.core.record import Array, column
from brinell.manifest import Amount, Listing
from brinell.reports.numbers import counted, distance, listed, percent, points
from brinell.reports.task_reports import TaskReport
from brinell.reports.values import Detail, Note, Report, Step, Table
from brinell.store.table import Folder
from brinell.studies.audit.tasks.result import Figure, TaskFacts
from brinell.studies.result import FolderResult
from brinell.studies.tasks import part_of
from brinell.studies.transfer import TransferRequest


@dataclass(frozen=True, kw_only=True)
class TransferRows(PictureRows):
    """The rows of a transfer."""

    source: Array = column(
        "string", "model on which the input was found; empty for the untouched picture"
    )
    model: Array = column("string", "model that is shown the input")


class TaskTransferFacts(TaskFacts):
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


class TaskCell(Result):
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


class TaskTransferResult(FolderResult):
    """What `brinell transfer --json` prints for data with masks or boxes."""

    request: TransferRequest
    facts: TaskTransferFacts
    n: int
    """Number of pictures."""
    cells: list[TaskCell]
    """The untouched pictures on each model, and then each source and aim on each model."""
    notes: list[str]
    """Notes on the models."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        words: TaskReport = part_of(self.facts.task, "report")()
        crossing = [cell for cell in self.cells if cell.source is not None and not cell.white_box]
        crossing.sort(key=lambda cell: cell.figures[0].change.value or 0.0)

        return Report(
            verb="transfer",
            title="Do inputs found on one model harm another?",
            subject=f"{self.data}, {counted(self.n, words.sample)}; "
            f"{distance(self.request.norm)} up to {self.facts.eps_text}, "
            f"{self.facts.criterion}, {listed(list(self.facts.attacks))}",
            sentences=[self._sentence(cell, words) for cell in crossing],
            notes=[Note("note", "note", text) for text in self.notes],
            blocks=[self._matrix(words)],
            steps=[
                Step(
                    "Have the figures made again before you pass them on.", "brinell verify FOLDER"
                )
            ],
        )

    def _by_place(self) -> dict[tuple[str | None, str | None, str], TaskCell]:
        """The cells by source, aim and model."""
        return {(cell.source, cell.aim, cell.model): cell for cell in self.cells}

    def _matrix(self, words: TaskReport) -> Table:
        """Every figure of each model on the inputs of each source and aim."""
        cells = self._by_place()
        sets = dict.fromkeys((cell.source, cell.aim) for cell in self.cells)
        rows = []

        for place, effect in enumerate(self.cells[0].figures):
            for source, aim in sets:
                # A kind of error is counted on the inputs that were aimed at it.
                if effect.quantity in words.errors and aim not in (None, effect.quantity):
                    continue
                found_on = source or "no attack"
                if aim in words.errors:
                    found_on = f"{source}, {aim}"
                effects = [cells[source, aim, model].figures[place] for model in self.names]
                title = words.errors.get(effect.quantity, effect.quantity)
                rows.append((title, found_on, *(_detail(effect, words) for effect in effects)))

        return Table(
            title="Figures of each model on the inputs of each source",
            columns=("figure", "found on", *self.names),
            rows=rows,
            text="Below each figure: its interval and its change by the inputs, whose interval is "
            f"paired by {words.sample} (95 %, jackknife). Inputs are the worst ones of their "
            "source: on other models the figures are no upper bounds of robustness.",
            name="figures",
            terminal=True,
        )

    def _sentence(self, cell: TaskCell, words: TaskReport) -> str:
        """The figure of a model on the inputs of another one, without an attack, and
        under its own.
        """
        cells, effect = self._by_place(), cell.figures[0]
        clean = cells[None, None, cell.model].figures[0]
        white_box = cells.get((cell.model, cell.aim, cell.model))
        under_own = (
            f", {percent(white_box.figures[0].value)} under its own attack" if white_box else ""
        )
        aimed = f" aimed at {cell.aim}" if cell.aim in words.errors else ""
        return (
            f"On inputs found on {cell.source}{aimed}, the {effect.quantity} of {cell.model} is "
            f"{percent(effect.value)} ({percent(clean.value)} without an attack{under_own})."
        )


def _detail(effect: Effect, words: TaskReport) -> Detail:
    """A figure with its change."""
    change = effect.change
    ends = []
    for end in (change.value, change.low, change.high):
        number = "" if end is None else points(end)
        if end is not None and effect.quantity in words.counts:
            number = f"{end:+.1f}"
        ends.append(number)

    text, low, high = ends
    interval = f" ({low} to {high})" if low else ""
    return Detail(words.cell(effect.quantity, effect), f"{text}{interval}" if change.value else "")


def summarise(folder: Folder[TransferRows]) -> TaskTransferResult:
    """Figures of a folder from its rows."""
    rows, facts, head = folder.rows, folder.facts, folder.head()
    models = folder.models

    def part(source: str, aim: str, model: str) -> Array:
        """The rows of a model on one set of inputs, by picture."""
        index = np.flatnonzero((rows.source == source) & (rows.aim == aim) & (rows.model == model))
        return index[np.argsort(rows.sample_id[index], kind="stable")]

    # The clean inputs have neither source nor aim, and come first. Every model has the same, so the
    # rows of the first one give the order of the pictures.
    no_source = no_aim = ""
    first = part(no_source, no_aim, models[0])
    places = np.searchsorted(rows.sample_id[first], rows.sample_id)
    figures: type[Pictures] = part_of(facts.task, "figures")
    pictures = figures(rows.answer, places, first, least_score=facts.least_score)

    sets = [(no_source, no_aim)]
    for source in facts.sources:
        sets += [(source, aim) for aim in dict.fromkeys(rows.aim[rows.source == source].tolist())]
    cells = []
    for source, aim in sets:
        for model in models:
            index, clean = part(source, aim, model), part(no_source, no_aim, model)
            effects = []
            for name in pictures.figures:
                change = Figure(**pictures.figure(name, index, less=clean))
                effects.append(Effect(quantity=name, **pictures.figure(name, index), change=change))
            cells.append(
                TaskCell(
                    source=source or None,
                    aim=aim or None,
                    model=model,
                    white_box=source == model,
                    figures=effects,
                )
            )
    notes = [str(note) for entry in folder.manifest["models"] for note in entry.get("notes", [])]
    return TaskTransferResult(**head, n=len(first), cells=cells, notes=notes)
