"""Rows of an audit of pictures with masks or boxes, the figures that are counted from them, and the
report.

inputs/*.safetensors   AIM-SAMPLE: the strongest input at the largest budget; as bytes what the page
                       shows: picture-SAMPLE, and for masks mask-SAMPLE and the predicted classes
                       before-SAMPLE and after-SAMPLE
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.pictures import TASKS, Boxes, PictureRows, Pictures
from brinell.analysis.results import CheckResult, OfClass, Rate
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.boxes import ERRORS, FALSE
from brinell.core.checks import Code
from brinell.core.record import CLEAN, Array, column
from brinell.engine.request import Request
from brinell.manifest import Amount, Facts, Listing
from brinell.reports.numbers import counted, distance, listed, percent
from brinell.reports.values import (
    Curve,
    Example,
    Gallery,
    Measure,
    Note,
    Percent,
    Picture,
    Report,
    Series,
    Table,
)
from brinell.reports.views import colours_of, css, draw_boxes, draw_map, draw_pixels, legend_of
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.store.table import ROWS, Folder
from brinell.studies.result import FolderResult

PIECE = 4
"""Pictures of a piece, which share a file of inputs."""
MOST_PICTURES = 9
"""Pictures that a page shows."""
UNITS = {"segmentation": ("pixel", "stay right"), "detection": ("object", "are still found")}
TITLES = {FALSE: "false boxes a picture"}


def inputs_path(start: int, source: int | None = None) -> str:
    """Path of the inputs of the pictures from a position on, of a transfer those found on a source,
    relative to the folder.
    """
    return f"inputs/{'' if source is None else f'{source:03d}-'}{start // PIECE:04d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Answers(PictureRows):
    """The rows of an audit of pictures."""

    attack: Array = column("string", "the attack; `clean` for the untouched picture")
    eps: Array = column("float64", "the budget; 0 for the untouched picture")
    met: Array = column(
        "bool", "true if the criterion is met; a picture that met it is attacked no more"
    )
    margin: Array = column(
        "float64", "largest margin of the criterion within eps: positive where it is met", null=True
    )
    forwards: Array = column("int64", "forward evaluations that this row cost", zero=True)
    backwards: Array = column("int64", "backward evaluations that this row cost", zero=True)
    seconds: Array = column(
        "float64", "wall time, shared among the pictures that were attacked together", zero=True
    )


class TaskFacts(Facts):
    """Facts on the task that the request leaves open."""

    task: Literal["segmentation", "detection"]
    criterion: str
    """The criterion of success, which ends the attacks on a picture."""
    least_score: float
    """Score above which boxes are shown."""


class PicturesFacts(TaskFacts):
    """Facts that the request leaves open."""

    aims: Listing[str]
    """What was aimed at, each by itself."""
    attacks: Listing[str]
    """The attacks, in the order in which they ran."""
    eps: Listing[Amount]
    """The budgets above 0, ascending."""
    eps_text: Listing[str]
    """The same as they were written."""
    names: Listing[str]
    """The names of the pictures, in the order of the rows."""


class Figure(Result):
    """A figure of a set of pictures, with its 95 % interval by bootstrap over pictures."""

    value: float | None
    """The figure; null where no picture has what it counts."""
    low: float | None
    """Lower end of the interval; null with fewer than two pictures."""
    high: float | None
    """Upper end of the interval."""


class FigureCurve(Result):
    """A figure over the budgets."""

    quantity: str
    """mean IoU; for boxes AP50, AP (over the overlaps 0.5 to 0.95), and the kinds of errors:
    missed, mislabelled and misplaced as shares of the objects, false as shown boxes of no object
    per picture."""
    values: list[Figure]
    """Without an attack, then at each budget."""


class ClassFigures(OfClass):
    """One class of pixels or objects."""

    n: int
    """Pixels or objects of the class."""
    pictures: int
    """Pictures in which it occurs."""
    clean: float | None
    """IoU, or AP50 for boxes, without an attack."""
    robust: list[float | None]
    """The same over the budgets, of the inputs that lower the figure of all classes most."""


class PictureFigures(Result):
    """One picture."""

    sample: int
    """Position in the data."""
    name: str
    """Name of the file."""
    n: int
    """Pixels or objects that have a class."""
    clean: int
    """Those that are right without an attack."""
    robust: list[int]
    """The fewest that are right, over the budgets."""


class StageFigures(Result):
    """One attack at one budget by itself."""

    attack: str
    aim: str
    eps: float
    pictures: int
    """Pictures that it attacked; the others met the criterion before."""
    accuracy: float | None
    """Share of their pixels or objects that it left right."""
    forwards: int
    """Forward evaluations."""
    backwards: int
    """Backward evaluations."""
    seconds: float
    """Wall time."""


class PicturesResult(FolderResult):
    """What `brinell audit --json` prints for data with masks or boxes."""

    request: Request
    facts: PicturesFacts
    n: int
    """Number of pictures."""
    clean_accuracy: Rate
    """Share of the pixels that are right, or of the objects that a shown box finds, without an
    attack."""
    robust_accuracy: list[Rate]
    """The same over the budgets: at most so many, over all inputs found within them."""
    figures: list[FigureCurve]
    """Further figures over the budgets; AP depends on the ranks of boxes alone."""
    unmet: list[Rate]
    """Share of pictures that do not meet the criterion, without an attack first."""
    per_class: list[ClassFigures]
    """By class that occurs."""
    pictures: list[PictureFigures]
    """By picture."""
    stages: list[StageFigures]
    """By aim, attack and budget."""
    checks: list[CheckResult]
    """Checks of the model and of the figures."""
    notes: list[str]
    """Notes on pictures and classes that no figure counts, and on the model."""

    def cautions(self) -> list[str]:
        """The checks that failed, for a caller from Python."""
        return [check.text for check in self.checks if not check.passed]

    def rates(self) -> dict[str, list[Rate]]:
        """Rates that a gate can judge, by metric."""
        return {"clean": [self.clean_accuracy], "robust": self.robust_accuracy}

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        (unit, remain), texts = UNITS[self.facts.task], ["0", *self.facts.eps_text]
        clean, last = self.clean_accuracy, self.robust_accuracy[-1]
        of_class = TASKS[self.facts.task].of_class.removeprefix("mean ")
        before, *_, after = self.figures[0].values
        cells: dict[str, list[Any]] = {clean.quantity: [clean, *self.robust_accuracy]} | {
            entry.quantity: [show(entry.quantity, value) for value in entry.values]
            for entry in self.figures
        }
        shares = {name: values for name, values in cells.items() if name not in ERRORS}
        errors: dict[str, list[Any]] = {
            TITLES.get(name, name): values for name, values in cells.items() if name in ERRORS
        }
        met = [f"{rate.n - rate.k} of {rate.n} pictures" for rate in self.unmet]
        mistakes = [
            check.text for check in self.checks if check.code == Code.CLEAN and not check.passed
        ]
        sentences = [
            *(f"Do not rely on the figures: {text}." for text in mistakes),
            f"At {texts[-1]}, at most {percent(last.value)} of "
            f"{counted(last.n, unit)} in {counted(self.n, 'picture')} {remain} "
            f"({percent(clean.value)} without an attack); "
            f"{self.figures[0].quantity} is at most {percent(after.value)} "
            f"({percent(before.value)}).",
        ]
        classes = sorted(
            self.per_class, key=lambda entry: (entry.robust[-1] or 0.0, -(entry.clean or 0.0))
        )
        for entry in [entry for entry in classes if entry.clean][:1]:
            if (entry.robust[-1] or 0.0) < (entry.clean or 0.0):
                ends = f"{percent(entry.robust[-1])} ({percent(entry.clean)} without an attack)"
                sentences.append(f"The class {entry.name} has the lowest {of_class} there: {ends}.")
        tables = [
            Table(
                title="Figures by budget",
                columns=("eps", *shares, "criterion met"),
                rows=list(zip(texts, *shares.values(), met, strict=True)),
                text="Upper bounds: the worst inputs count that any attack found "
                "within a budget. Attacks on a picture end when "
                f"it meets the criterion «{self.facts.criterion}». Intervals are "
                "of the pictures: 95 %, bootstrap."
                + (
                    " AP depends on the ranks of boxes alone, recall on their scores."
                    if errors
                    else ""
                ),
                name="budgets",
                terminal=True,
            ),
            Table(
                title="Kinds of errors",
                columns=("eps", *errors),
                rows=list(zip(texts, *errors.values(), strict=True)) if errors else (),
                text="Each kind was attacked by itself. An object is found if a shown "
                "box of its class overlaps it by 0.5, "
                "mislabelled if a box of another class does, misplaced if one of "
                "its class overlaps it by 0.1 to 0.5, and missed "
                "otherwise; all other boxes are false.",
                name="errors",
                terminal=True,
            ),
            Table(
                title="Class by class",
                columns=("class", f"{unit}s", "pictures", *texts),
                rows=[
                    (
                        entry.name,
                        entry.n,
                        entry.pictures,
                        *(Percent(value) for value in (entry.clean, *entry.robust)),
                    )
                    for entry in classes
                ],
                text=f"{of_class} of each class.",
                name="per_class",
                heat=True,
            ),
            Table(
                title="Attack by attack",
                columns=(
                    "aim",
                    "attack",
                    "eps",
                    "pictures",
                    f"{unit}s left right",
                    "forwards",
                    "backwards",
                ),
                rows=[
                    (
                        *(
                            stage.aim,
                            stage.attack,
                            texts[self.facts.eps.index(stage.eps) + 1],
                            stage.pictures,
                        ),
                        *(Percent(stage.accuracy), stage.forwards, stage.backwards),
                    )
                    for stage in self.stages
                ],
                text="Each attack by itself, on the pictures that it attacked. They "
                "run in this order, each from the strongest "
                "input so far where it can.",
                name="stages",
                folded=True,
            ),
            Table(
                title="Picture by picture",
                columns=("picture", f"{unit}s", *(f"right at {text}" for text in texts)),
                rows=[(entry.name, entry.n, entry.clean, *entry.robust) for entry in self.pictures],
                name="pictures",
                folded=True,
            ),
        ]
        levels = [0.0, *self.facts.eps]
        curve = Curve(
            title="Over the budget",
            series=[
                Series(name=name, points=list(zip(levels, values, strict=True)))
                for name, values in shares.items()
            ],
            ticks=list(zip(levels, texts, strict=True)),
            axis=f"eps ({distance(self.request.norm)})",
        )
        return Report(
            verb="audit",
            title=f"{self.models[0]} on {self.data}",
            subject=f"{counted(self.n, 'picture')}, {distance(self.request.norm)}, "
            f"{self.facts.criterion}, "
            f"{listed(list(self.request.attack))}",
            sentences=sentences,
            notes=[
                *(
                    Note(check.code, "warn", check.text)
                    for check in self.checks
                    if not check.passed
                ),
                *(Note("note", "note", text) for text in self.notes),
            ],
            blocks=[
                curve,
                *(table for table in tables[:2] if table.rows),
                *self._gallery(),
                *(t for t in tables[2:] if t.rows),
            ],
        )

    def _gallery(self) -> list[Gallery]:
        """The pictures that lose most, before and after."""
        lost = {
            number: (entry.clean - entry.robust[-1]) / entry.n
            for number, entry in enumerate(self.pictures)
            if entry.n
        }
        chosen = sorted(lost, key=lambda number: -lost[number])[:MOST_PICTURES]
        drawings, legend = (
            self._draw_maps if self.facts.task == "segmentation" else self._draw_boxes
        )(chosen)
        examples: list[Example] = []
        for entry, pictures in zip(
            (self.pictures[number] for number in chosen), drawings, strict=True
        ):
            right = f"{entry.clean} of {counted(entry.n, UNITS[self.facts.task][0])} right"
            caption = f"{entry.name}: {right}, {entry.robust[-1]} at {self.facts.eps_text[-1]}"
            examples.append(
                Example(pictures=pictures, caption=caption, legend=() if examples else legend)
            )
        text = "Pictures that lose most come first."
        return [
            Gallery(
                title="Pictures before and after", text=text, examples=examples, open_examples=3
            )
        ][: len(examples)]

    def _view(self, number: int, name: str) -> Array:
        """What the folder holds for the page of a picture."""
        return read_arrays(Path(self.folder) / inputs_path(number))[
            f"{name}-{self.pictures[number].sample}"
        ]

    def _draw_maps(
        self, chosen: Sequence[int]
    ) -> tuple[list[list[Picture]], list[tuple[str, str]]]:
        titles = {"mask": "mask", "before": "without an attack", "after": "attacked"}
        maps = [[self._view(number, name) for name in titles] for number in chosen]
        colours = colours_of((array for arrays in maps for array in arrays), len(self.classes))
        drawings = [
            [
                draw_pixels(self._view(number, "picture"), "picture"),
                *(
                    draw_map(array, colours, title)
                    for array, title in zip(arrays, titles.values(), strict=True)
                ),
            ]
            for number, arrays in zip(chosen, maps, strict=True)
        ]
        return drawings, [
            (css(colour), class_name(self.classes, label)) for label, colour in colours.items()
        ]

    def _draw_boxes(
        self, chosen: Sequence[int]
    ) -> tuple[list[list[Picture]], list[tuple[str, str]]]:
        boxes = pictures_of(parquet.load_rows(Answers, Path(self.folder) / ROWS), self.facts)
        assert isinstance(boxes, Boxes)
        worst = {
            TITLES.get(aim, aim): boxes.worst(aim, len(self.facts.eps)) for aim in self.facts.aims
        }
        sets = {"without an attack": boxes.clean, **worst}
        drawings = [
            [
                draw_boxes(self._view(number, "picture"), *boxes.outcome(int(index[number])), title)
                for title, index in sets.items()
            ]
            for number in chosen
        ]
        return drawings, legend_of()


def show(quantity: str, value: Any) -> Any:
    """A figure as a cell: a share, or false boxes per picture."""
    return (Measure if quantity == FALSE else Percent)(value.value, value.low, value.high)


def pictures_of(rows: Answers, facts: PicturesFacts) -> Pictures:
    """The answers of rows by picture and budget."""
    clean = np.flatnonzero(rows.attack == CLEAN)
    place = {sample: number for number, sample in enumerate(rows.sample_id[clean].tolist())}
    levels = [0.0, *facts.eps]
    return TASKS[facts.task](
        rows.answer,
        np.array([place[sample] for sample in rows.sample_id.tolist()]),
        clean,
        level=np.array([levels.index(eps) for eps in rows.eps.tolist()]),
        aim=rows.aim,
        margin=rows.margin,
        least_score=facts.least_score,
    )


def summarise(folder: Folder[Answers]) -> PicturesResult:
    """Figures of a folder from its rows."""
    rows, facts, head = folder.rows, folder.facts, folder.head()
    pictures, levels = pictures_of(rows, facts), [0.0, *facts.eps]
    n, by_level = len(pictures.clean), range(len(levels))
    quantity = (
        pictures.accuracy if facts.task == "segmentation" else f"recall at {facts.least_score:g}"
    )
    worst = [pictures.worst(pictures.accuracy, level) for level in by_level]
    rates = [
        Rate(
            **pictures.figure(pictures.accuracy, index),
            eps=eps,
            k=int(pictures.right(index).sum()),
            n=int(pictures.total.sum()),
            quantity=quantity,
        )
        for index, eps in zip(worst, levels, strict=True)
    ]
    further = [
        name
        for name in pictures.figures
        if name != pictures.accuracy and (name not in ERRORS or name in facts.aims)
    ]
    figures = [
        FigureCurve(
            quantity=name,
            values=[
                Figure(**pictures.figure(name, pictures.worst(name, level))) for level in by_level
            ],
        )
        for name in further
    ]
    per_class, least = (
        _per_class(pictures, head["classes"], by_level),
        np.stack(list(map(pictures.least_right, by_level))),
    )
    met = [len(set(rows.sample_id[rows.met & (rows.eps <= eps)].tolist())) for eps in levels]
    return PicturesResult(
        **head,
        n=n,
        clean_accuracy=rates[0],
        robust_accuracy=rates[1:],
        figures=figures,
        unmet=[
            rate(n - count, n, eps=eps, quantity="pictures that do not meet the criterion")
            for count, eps in zip(met, levels, strict=True)
        ],
        per_class=per_class,
        pictures=[
            PictureFigures(sample=sample, name=name, n=total, clean=right[0], robust=right[1:])
            for sample, name, total, right in zip(
                rows.sample_id[pictures.clean].tolist(),
                facts.names,
                pictures.total.tolist(),
                least.T.tolist(),
                strict=True,
            )
        ],
        stages=list(_stages(rows, facts)),
        checks=[CheckResult(**check) for check in folder.manifest["checks"]],
        notes=_notes(folder.manifest, pictures, head["classes"], per_class, facts),
    )


def _per_class(pictures: Pictures, names: Sequence[str], levels: range) -> list[ClassFigures]:
    labels = pictures.class_values(pictures.clean)[0].tolist()
    values = [
        pictures.class_values(pictures.worst(pictures.of_class, level))[1].tolist()
        for level in levels
    ]
    return [
        ClassFigures(
            class_=label,
            name=class_name(names, label),
            n=int(sizes.sum()),
            pictures=int((sizes > 0).sum()),
            clean=clean,
            robust=robust,
        )
        for label, (clean, *robust) in zip(labels, zip(*values, strict=True), strict=True)
        for sizes in [pictures.class_sizes(label)]
    ]


def _stages(rows: Answers, facts: PicturesFacts) -> Iterator[StageFigures]:
    for aim, attack, eps in product(facts.aims, facts.attacks, facts.eps):
        index = (rows.aim == aim) & (rows.attack == attack) & (rows.eps == eps)
        valid = int(rows.valid[index].sum())
        accuracy = 1 - int(rows.wrong[index].sum()) / valid if valid else None
        costs = {
            name: getattr(rows, name)[index].sum() for name in ("forwards", "backwards", "seconds")
        }
        yield StageFigures(
            attack=attack, aim=aim, eps=eps, pictures=int(index.sum()), accuracy=accuracy, **costs
        )


def _notes(
    manifest: Mapping[str, Any],
    pictures: Pictures,
    names: Sequence[str],
    per_class: Sequence[ClassFigures],
    facts: PicturesFacts,
) -> list[str]:
    """Notes on the model, on pictures without a pixel or object, and on classes that never occur."""
    notes = [str(note) for note in manifest["models"][0].get("notes", [])]
    if empty := int((pictures.total == 0).sum()):
        counts = (
            "no figure counts them"
            if facts.task == "segmentation"
            else "only false boxes are counted in them"
        )
        notes.append(
            f"{empty} of {len(pictures.total)} pictures have no "
            f"{UNITS[facts.task][0]} of any class: {counts}"
        )
    if absent := [
        name
        for label, name in enumerate(names)
        if label not in {entry.class_ for entry in per_class}
    ]:
        notes.append(
            f"{len(absent)} of {len(names)} classes never occur "
            f"({listed(absent, 5)}): {pictures.of_class} is over the others"
        )
    return notes
