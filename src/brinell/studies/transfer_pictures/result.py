"""Rows of a transfer of pictures, the figures of every model on the inputs of every source, and the report.

The inputs of a cell are those that were strongest on its source, whatever other models answer to them. So a figure on another
model than the source does not bound the robustness of that model.

inputs/SOURCE-*.safetensors   the strongest inputs on each source, as an audit of pictures stores them
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.pictures import TASKS, PictureRows, Pictures
from brinell.core.boxes import ERRORS, FALSE
from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, Facts, Listing
from brinell.reports.numbers import counted, distance, percent, points
from brinell.reports.values import Detail, Measure, Note, Percent, Report, Seconds, Table
from brinell.studies.audit_pictures.result import PIECE, TITLES
from brinell.studies.result import Folder, FolderResult
from brinell.studies.transfer import TransferRequest


def inputs_path(source: int, start: int) -> str:
    """Path of the inputs of the pictures from a position on that were found on a source, relative to the folder."""
    return f"inputs/{source:03d}-{start // PIECE:04d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Answers(PictureRows):
    """The rows of a transfer; its costs are in the rows of the source."""

    source: Array = column("string", "model on which the input was found; empty for the untouched picture")
    model: Array = column("string", "model that is shown the input")


class SourceFacts(Content):
    """A model that was attacked."""

    name: str
    """Its name."""
    attacks: Listing[str]
    """The attacks, in the order in which they ran."""


class TransferFacts(Facts):
    """Facts that the request leaves open."""

    task: Literal["segmentation", "detection"]
    criterion: str
    """The criterion of success, which ends the attacks on a picture."""
    eps: Amount
    """The budget."""
    eps_text: str
    """The same as it was written."""
    least_score: float
    """Score above which boxes are shown."""
    sources: Listing[SourceFacts]
    """The models that were attacked."""


class Effect(Result):
    """A figure of a set of pictures, with 95 % intervals by bootstrap over pictures, and its change by the inputs of a source."""

    quantity: str
    """pixel accuracy or mean IoU; for boxes recall, AP50, AP, and the kinds of errors."""
    value: float | None
    """The figure; null where no picture has what it counts."""
    low: float | None
    """Lower end of the interval; null with fewer than two pictures."""
    high: float | None
    """Upper end of the interval."""
    change: float | None
    """The figure minus that of the same model without an attack; 0 without one."""
    change_low: float | None
    """Lower end of the interval of this change, paired by picture."""
    change_high: float | None
    """Upper end of this interval."""


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


class SourceCosts(Result):
    """A model that was attacked."""

    source: str
    """Its name."""
    forwards: int
    """Forward evaluations."""
    backwards: int
    """Backward evaluations."""
    seconds: float
    """Wall time."""


class TransferResult(FolderResult):
    """What `brinell transfer --json` prints for data with masks or boxes."""

    request: TransferRequest
    facts: TransferFacts
    n: int
    """Number of pictures."""
    sources: list[SourceCosts]
    """The models that were attacked."""
    cells: list[Cell]
    """The untouched pictures on each model, and then each source and aim on each model."""
    notes: list[str]
    """Notes on the models."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        cells = {(cell.source, cell.aim, cell.model): cell for cell in self.cells}
        crossing = [cell for cell in self.cells if cell.source is not None and not cell.white_box]
        attacks = {source.name: source.attacks for source in self.facts.sources}
        return Report(
            verb="transfer",
            title="Do inputs found on one model harm another?",
            subject=f"{self.data}, {counted(self.n, 'picture')}; {distance(self.request.norm)} up to {self.facts.eps_text}, "
            f"{self.facts.criterion}",
            sentences=[_sentence(cell, cells) for cell in sorted(crossing, key=lambda cell: cell.figures[0].change or 0.0)],
            notes=[Note("note", "note", text) for text in self.notes],
            blocks=[
                *self._matrices(cells),
                Table(
                    title="The sources",
                    columns=("source", "attacks", "forwards", "backwards", "time"),
                    rows=[
                        (entry.source, attacks[entry.source], entry.forwards, entry.backwards, Seconds(entry.seconds))
                        for entry in self.sources
                    ],
                    folded=True,
                ),
                Table(
                    title="Cells",
                    columns=("source", "aim", "model", "white_box", *(name for name in Effect.model_fields if name != "low")),
                    rows=[
                        (
                            *(cell.source, cell.aim, cell.model, cell.white_box, effect.quantity),
                            *(Measure(effect.value, effect.low, effect.high), effect.high),
                            *(effect.change, effect.change_low, effect.change_high),
                        )
                        for cell in self.cells
                        for effect in cell.figures
                    ],
                    name="cells",
                    page=False,
                ),
            ],
        )

    def _matrices(self, cells: Mapping[tuple[str | None, str | None, str], Cell]) -> list[Table]:
        """A table of figures by sources and models for each aim."""
        aims = list(dict.fromkeys(cell.aim for cell in self.cells if cell.aim is not None))
        names = [effect.quantity for effect in self.cells[0].figures]
        sources = [None, *(entry.source for entry in self.sources)]
        return [
            Table(
                title=f"Aimed at {aim}" if len(aims) > 1 else "Figures of each model on the inputs of each source",
                columns=("figure", "found on", *self.models),
                rows=[
                    (
                        TITLES.get(name, name),
                        source or "no attack",
                        *(_shown(cells[source, aim if source else None, model].figures[place]) for model in self.models),
                    )
                    for place, name in enumerate(names)
                    if name not in ERRORS or name == aim
                    for source in sources
                ],
                text="Below each figure: its interval and its change by the inputs, whose interval is paired by picture (95 %, "
                "bootstrap). Inputs are those that were strongest on their source: on other models the figures are no upper "
                "bounds of robustness.",
                terminal=True,
            )
            for aim in aims
        ]


def _shown(effect: Effect) -> Detail:
    """A figure with its change."""
    is_count = effect.quantity == FALSE
    value = (Measure if is_count else Percent)(effect.value, effect.low, effect.high)
    changes = effect.change, effect.change_low, effect.change_high
    change, low, high = ("" if part is None else f"{part:+.1f}" if is_count else points(part) for part in changes)
    return Detail(value, "" if not effect.change else f"{change} ({low} to {high})" if low else change)


def _sentence(cell: Cell, cells: Mapping[tuple[str | None, str | None, str], Cell]) -> str:
    """The figure of a model on the inputs of another one, without an attack, and under its own."""
    effect, clean = cell.figures[0], cells[None, None, cell.model].figures[0]
    own = cells.get((cell.model, cell.aim, cell.model))
    under_own = f", {percent(own.figures[0].value)} under its own attack" if own else ""
    aimed = f" aimed at {cell.aim}" if cell.aim in ERRORS else ""
    return (
        f"On inputs found on {cell.source}{aimed}, the {effect.quantity} of {cell.model} is {percent(effect.value)} "
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
    clean = {model: part("", "", model) for model in models}
    cells = [_cell(pictures, None, None, model, clean[model], clean[model]) for model in models]
    for source in (entry.name for entry in facts.sources):
        for aim in dict.fromkeys(rows.aim[rows.source == source].tolist()):
            cells += [_cell(pictures, source, aim, model, part(source, aim, model), clean[model]) for model in models]
    return TransferResult(
        **head,
        n=len(first),
        sources=[
            SourceCosts(
                source=entry.name,
                **{name: getattr(rows, name)[rows.source == entry.name].sum() for name in ("forwards", "backwards", "seconds")},
            )
            for entry in facts.sources
        ],
        cells=cells,
        notes=[str(note) for entry in folder.manifest["models"] for note in entry.get("notes", [])],
    )


def _cell(pictures: Pictures, source: str | None, aim: str | None, model: str, index: Array, clean: Array) -> Cell:
    figures = []
    for name in pictures.figures:
        change = pictures.figure(name, index, less=clean)
        ends = {"change": change["value"], "change_low": change["low"], "change_high": change["high"]}
        figures.append(Effect(quantity=name, **pictures.figure(name, index), **ends))
    return Cell(source=source, aim=aim, model=model, white_box=source == model, figures=figures)
