"""Rows of an audit of pictures with masks or boxes, the figures that are counted from them, and the report.

inputs/*.safetensors   AIM-SAMPLE: the strongest input at the largest budget; as bytes what the page shows: picture-SAMPLE, and
                       for masks mask-SAMPLE and the predicted classes before-SAMPLE and after-SAMPLE
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.pictures import TASKS, Boxes, Maps, PictureRows, Pictures
from brinell.analysis.results import CheckResult, OfClass, Rate
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.boxes import ERRORS, FALSE
from brinell.core.record import CLEAN, Array, column
from brinell.engine.request import Request
from brinell.manifest import Amount, Facts, Listing
from brinell.reports.numbers import counted, distance, listed, percent
from brinell.reports.values import Curve, Example, Gallery, Measure, Note, Percent, Report, Series, Table
from brinell.reports.views import colours_of, css, draw_boxes, draw_map, draw_pixels, legend_of
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.store.table import ROWS
from brinell.studies.result import Folder, FolderResult

PIECE = 4
"""Pictures of a piece, which share a file of inputs."""
MOST_PICTURES = 9
"""Pictures that a page shows."""
UNITS = {"segmentation": ("pixel", "stay right"), "detection": ("object", "are still found")}
TITLES = {FALSE: "false boxes a picture"}


def inputs_path(start: int) -> str:
    """Path of the inputs of the pictures from a position on, relative to the folder."""
    return f"inputs/{start // PIECE:04d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Answers(PictureRows):
    """The rows of an audit of pictures."""

    attack: Array = column("string", "the attack; `clean` for the untouched picture")
    eps: Array = column("float64", "the budget; 0 for the untouched picture")
    outcome: Array = column(
        "string",
        "met: the criterion is met; open: it is not; below: an input within a smaller budget, or of an attack before, met it, so "
        "that this attack did not run",
    )
    margin: Array = column("float64", "largest margin of the criterion within eps: positive where it is met", null=True)
    first_success: Array = column("int64", "the forward at which the criterion was first met", null=True)


class PicturesFacts(Facts):
    """Facts that the request leaves open."""

    task: Literal["segmentation", "detection"]
    criterion: str
    """The criterion of success, which ends the attacks on a picture."""
    aims: Listing[str]
    """What was aimed at, each by itself."""
    attacks: Listing[str]
    """The attacks, in the order in which they ran."""
    eps: Listing[Amount]
    """The budgets above 0, ascending."""
    eps_text: Listing[str]
    """The same as they were written."""
    least_score: float
    """Score above which boxes are shown."""
    names: Listing[str]
    """The names of the pictures, in the order of the rows."""


class Figure(Result):
    """A figure of a set of pictures at a budget, with its 95 % interval by bootstrap over pictures."""

    eps: float
    """Budget; 0 is the untouched picture."""
    value: float | None
    """The figure; null where no picture has what it counts."""
    low: float | None
    """Lower end of the interval; null with fewer than two pictures."""
    high: float | None
    """Upper end of the interval."""


class FigureCurve(Result):
    """A figure over the budgets."""

    quantity: str
    """mean IoU; for boxes AP50, AP (over the overlaps 0.5 to 0.95), and the kinds of errors: missed, mislabelled and misplaced as
    shares of the objects, false as shown boxes of no object per picture."""
    values: list[Figure]


class ClassFigures(OfClass):
    """One class of pixels or objects."""

    n: int
    """Pixels or objects of the class."""
    pictures: int
    """Pictures in which it occurs."""
    quantity: str
    """IoU, or AP50 for boxes."""
    clean: float | None
    """It without an attack."""
    robust: list[float | None]
    """It over the budgets, of the inputs that lower the figure of all classes most."""


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
    """Share of the pixels that are right, or of the objects that a shown box finds, without an attack."""
    robust_accuracy: list[Rate]
    """The same over the budgets: at most so many, over all inputs found within them."""
    figures: list[FigureCurve]
    """Further figures over the budgets, without an attack first; AP depends on the ranks of boxes alone."""
    unmet: list[Rate]
    """Share of pictures that do not meet the criterion, without an attack first."""
    per_class: list[ClassFigures]
    """By class that occurs."""
    worst_class: str | None
    """The class with the smallest figure at the largest budget, of those that have one above 0 without an attack; the largest
    drop decides between equal ones. Null if there is none."""
    pictures: list[PictureFigures]
    """By picture."""
    stages: list[StageFigures]
    """By aim, attack and budget."""
    checks: list[CheckResult]
    """Checks of the model and of the figures."""
    notes: list[str]
    """Notes on pictures and classes that no figure counts, and on the model."""

    def rates(self) -> dict[str, list[Rate]]:
        """Rates that a gate can judge, by metric."""
        return {"clean": [self.clean_accuracy], "robust": self.robust_accuracy}

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        (model,), (unit, remain) = self.models, UNITS[self.facts.task]
        last, first, texts = self.robust_accuracy[-1], self.clean_accuracy, ["0", *self.facts.eps_text]
        rates, further = [first, *self.robust_accuracy], self.figures[0]
        sentences = [
            f"At {texts[-1]}, at most {percent(last.value)} of {counted(last.n, unit)} in {counted(self.n, 'picture')} {remain} "
            f"({percent(first.value)} without an attack); {further.quantity} is at most {percent(further.values[-1].value)} "
            f"({percent(further.values[0].value)})."
        ]
        for entry in self.per_class:
            if entry.name == self.worst_class and (entry.robust[-1] or 0.0) < (entry.clean or 0.0):
                ends = f"{percent(entry.robust[-1])} ({percent(entry.clean)} without an attack)"
                sentences.append(f"The class {entry.name} has the lowest {entry.quantity} there: {ends}.")
        ticks = [(value.eps, text) for value, text in zip(further.values, texts, strict=True)]
        shares = [entry for entry in self.figures if entry.quantity not in ERRORS]
        series: list[tuple[str, Sequence[Any]]] = [(first.quantity, rates), *((entry.quantity, entry.values) for entry in shares)]
        return Report(
            verb="audit",
            title=f"{model} on {self.data}",
            subject=f"{counted(self.n, 'picture')}, {distance(self.request.norm)}, {self.facts.criterion}, "
            f"{listed(list(self.request.attack))}",
            sentences=sentences,
            notes=[
                *(Note(check.code, "warn", check.text) for check in self.checks if not check.passed),
                *(Note("note", "note", text) for text in self.notes),
            ],
            blocks=[
                Curve(
                    title="Over the budget",
                    series=[
                        Series(name=name, points=[(value.eps, _cell(name, value)) for value in values]) for name, values in series
                    ],
                    ticks=ticks,
                    axis=f"eps ({distance(self.request.norm)})",
                ),
                *self._budgets(texts, rates),
                *self._gallery(),
                Table(
                    title="Class by class",
                    columns=("class", f"{unit}s", "pictures", *texts),
                    rows=[
                        (entry.name, entry.n, entry.pictures, *(Percent(value) for value in (entry.clean, *entry.robust)))
                        for entry in sorted(self.per_class, key=lambda entry: entry.robust[-1] or 0.0)
                    ],
                    text=f"{self.per_class[0].quantity} of each class." if self.per_class else "",
                    name="per_class",
                    heat=True,
                ),
                *self._folded(texts, unit),
            ],
        )

    def _budgets(self, texts: Sequence[str], rates: Sequence[Rate]) -> list[Table]:
        met = [f"{rate.n - rate.k} of {rate.n} pictures" for rate in self.unmet]
        figures = [entry for entry in self.figures if entry.quantity not in ERRORS]
        errors = [entry for entry in self.figures if entry.quantity in ERRORS]
        tables = [
            Table(
                title="Figures by budget",
                columns=("eps", rates[0].quantity, *(entry.quantity for entry in figures), "criterion met"),
                rows=[
                    (text, rates[row], *(_cell(entry.quantity, entry.values[row]) for entry in figures), met[row])
                    for row, text in enumerate(texts)
                ],
                text="Upper bounds: the worst inputs count that any attack found within a budget. Attacks on a picture end when "
                f"it meets the criterion «{self.facts.criterion}». Intervals are of the pictures: 95 %, bootstrap.",
                name="budgets",
                terminal=True,
            ),
            Table(
                title="Kinds of errors",
                columns=("eps", *(TITLES.get(entry.quantity, entry.quantity) for entry in errors)),
                rows=[(text, *(_cell(entry.quantity, entry.values[row]) for entry in errors)) for row, text in enumerate(texts)],
                text="Each kind was attacked by itself. An object is found if a shown box of its class overlaps it by 0.5, "
                "mislabelled if a box of another class does, misplaced if one of its class overlaps it by 0.1 to 0.5, and missed "
                "otherwise; all other boxes are false.",
                name="errors",
                terminal=True,
            ),
        ]
        return tables if errors else tables[:1]

    def _folded(self, texts: Sequence[str], unit: str) -> list[Table]:
        tables = [
            Table(
                title="Attack by attack",
                columns=("aim", "attack", "eps", "pictures", f"{unit}s left right", "forwards", "backwards"),
                rows=[
                    (
                        stage.aim,
                        stage.attack,
                        texts[self.facts.eps.index(stage.eps) + 1],
                        stage.pictures,
                        Percent(stage.accuracy),
                        stage.forwards,
                        stage.backwards,
                    )
                    for stage in self.stages
                ],
                text="Each attack by itself, on the pictures that it attacked. They run in this order, each from the strongest "
                "input so far where it can.",
                name="stages",
                folded=True,
            ),
            Table(
                title="Checks",
                columns=("check", "result", "what it found"),
                rows=[(check.code, "passed" if check.passed else "failed", check.text) for check in self.checks],
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
        return [table for table in tables if table.rows]

    def _gallery(self) -> list[Gallery]:
        """The pictures that lose most, before and after."""
        lost = {number: (entry.clean - entry.robust[-1]) / entry.n for number, entry in enumerate(self.pictures) if entry.n}
        chosen = sorted(lost, key=lambda number: -lost[number])[:MOST_PICTURES]
        if not chosen:
            return []
        arrays = [read_arrays(Path(self.folder) / inputs_path(number)) for number in chosen]
        draw = self._draw_maps if self.facts.task == "segmentation" else self._draw_boxes
        return [
            Gallery(
                title="Pictures before and after",
                text="Pictures that lose most come first.",
                examples=draw([self.pictures[number] for number in chosen], arrays),
                open_examples=3,
            )
        ]

    def _caption(self, entry: PictureFigures) -> str:
        units = counted(entry.n, UNITS[self.facts.task][0])
        return f"{entry.name}: {entry.clean} of {units} right, {entry.robust[-1]} at {self.facts.eps_text[-1]}"

    def _draw_maps(self, pictures: Sequence[PictureFigures], arrays: Sequence[Mapping[str, Array]]) -> list[Example]:
        titles = {"mask": "mask", "before": "without an attack", "after": "attacked"}
        views = [
            {name: content[f"{name}-{entry.sample}"] for name in titles} for entry, content in zip(pictures, arrays, strict=True)
        ]
        colours = colours_of((array for view in views for array in view.values()), len(self.classes))
        return [
            Example(
                pictures=[
                    draw_pixels(content[f"picture-{entry.sample}"], "picture"),
                    *(draw_map(view[name], colours, title) for name, title in titles.items()),
                ],
                caption=self._caption(entry),
                legend=[(css(colour), class_name(self.classes, label)) for label, colour in colours.items()]
                if not number
                else (),
            )
            for number, (entry, content, view) in enumerate(zip(pictures, arrays, views, strict=True))
        ]

    def _draw_boxes(self, pictures: Sequence[PictureFigures], arrays: Sequence[Mapping[str, Array]]) -> list[Example]:
        boxes = pictures_of(parquet.load_rows(Answers, Path(self.folder) / ROWS), self.facts)
        assert isinstance(boxes, Boxes)
        sets = {"without an attack": boxes.clean} | {
            TITLES.get(aim, aim): boxes.worst(aim, len(self.facts.eps)) for aim in self.facts.aims
        }
        examples = []
        for number, (entry, content) in enumerate(zip(pictures, arrays, strict=True)):
            place, pixels = self.pictures.index(entry), content[f"picture-{entry.sample}"]
            views = [draw_boxes(pixels, *boxes.found(int(index[place])), title) for title, index in sets.items()]
            examples.append(Example(pictures=views, caption=self._caption(entry), legend=legend_of() if not number else ()))
        return examples


def _cell(quantity: str, value: Any) -> Any:
    """A figure as a cell: a share, or false boxes per picture."""
    if isinstance(value, Rate):
        return value
    kind = Measure if quantity == FALSE else Percent
    return kind(value.value, value.low, value.high)


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
    pictures, levels = pictures_of(rows, facts), range(len(facts.eps) + 1)
    rates = [_rate(pictures, level, facts) for level in levels]
    further = [name for name in pictures.figures if name != pictures.accuracy and (name not in ERRORS or name in facts.aims)]
    figures = [
        FigureCurve(
            quantity=name,
            values=[
                Figure(eps=eps, **pictures.figure(name, pictures.worst(name, level)))
                for level, eps in enumerate((0.0, *facts.eps))
            ],
        )
        for name in further
    ]
    per_class, stages = _per_class(pictures, head["classes"], len(levels)), _stages(rows, facts)
    ordered = sorted((entry for entry in per_class if entry.clean), key=lambda entry: (entry.robust[-1], -(entry.clean or 0.0)))
    met = [set(rows.sample_id[(rows.outcome == "met") & (rows.eps <= eps)].tolist()) for eps in (0.0, *facts.eps)]
    n, least = len(pictures.clean), np.stack([pictures.least_right(level) for level in levels])
    checks = [CheckResult(**check) for check in folder.manifest["checks"]]
    return PicturesResult(
        **head,
        n=n,
        clean_accuracy=rates[0],
        robust_accuracy=rates[1:],
        figures=figures,
        unmet=[
            rate(n - len(samples), n, eps=eps, quantity="pictures that do not meet the criterion")
            for samples, eps in zip(met, (0.0, *facts.eps), strict=True)
        ],
        per_class=per_class,
        worst_class=ordered[0].name if ordered else None,
        pictures=[
            PictureFigures(sample=sample, name=name, n=total, clean=right[0], robust=right[1:])
            for sample, name, total, right in zip(
                rows.sample_id[pictures.clean].tolist(), facts.names, pictures.total.tolist(), least.T.tolist(), strict=True
            )
        ],
        stages=stages,
        checks=[*checks, *([] if isinstance(pictures, Maps) else _rank(rates, figures[0].values, facts))],
        notes=_notes(folder.manifest, pictures, head["classes"], per_class, facts),
    )


def _rate(pictures: Pictures, level: int, facts: PicturesFacts) -> Rate:
    index = pictures.worst(pictures.accuracy, level)
    return Rate(
        **pictures.figure(pictures.accuracy, index),
        eps=(0.0, *facts.eps)[level],
        k=int(pictures.right(index).sum()),
        n=int(pictures.total.sum()),
        quantity=pictures.accuracy if facts.task == "segmentation" else f"recall at {facts.least_score:g}",
    )


def _per_class(pictures: Pictures, names: Sequence[str], levels: int) -> list[ClassFigures]:
    by_level = [pictures.class_values(pictures.worst(pictures.of_class, level)) for level in range(levels)]
    figures = []
    for place, label in enumerate(by_level[0][0].tolist()):
        sizes = pictures.class_sizes(label)
        values: list[float | None] = [float(of_classes[place]) for _, of_classes in by_level]
        figures.append(
            ClassFigures(
                class_=label,
                name=class_name(names, label),
                n=int(sizes.sum()),
                pictures=int((sizes > 0).sum()),
                quantity=pictures.of_class.removeprefix("mean "),
                clean=values[0],
                robust=values[1:],
            )
        )
    return figures


def _stages(rows: Answers, facts: PicturesFacts) -> list[StageFigures]:
    figures = []
    for aim in facts.aims:
        for attack in facts.attacks:
            for eps in facts.eps:
                index = (rows.aim == aim) & (rows.attack == attack) & (rows.eps == eps)
                ran = index & (rows.outcome != "below")
                valid = int(rows.valid[ran].sum())
                figures.append(
                    StageFigures(
                        attack=attack,
                        aim=aim,
                        eps=eps,
                        pictures=int(ran.sum()),
                        accuracy=1 - int(rows.wrong[ran].sum()) / valid if valid else None,
                        **{name: getattr(rows, name)[index].sum() for name in ("forwards", "backwards", "seconds")},
                    )
                )
    return figures


def _rank(recall: Sequence[Rate], ap50: Sequence[Figure], facts: PicturesFacts) -> list[CheckResult]:
    """Check that AP and recall say the same about the largest budget."""
    ends = [(values[0].value, values[-1].value) for values in (ap50, recall)]
    if any(not clean or last is None for clean, last in ends):
        return []
    of_ap, of_recall = ((last or 0.0) / (clean or 1.0) for clean, last in ends)
    text = (
        f"AP50 keeps {percent(of_ap, 0)} of its value without an attack, and recall at a score of {facts.least_score:g} keeps "
        f"{percent(of_recall, 0)}: AP depends on the ranks of boxes alone, recall on their scores"
    )
    return [CheckResult(code="rank", passed=abs(of_ap - of_recall) < 0.5, text=text)]


def _notes(
    manifest: Mapping[str, Any], pictures: Pictures, names: Sequence[str], per_class: Sequence[ClassFigures], facts: PicturesFacts
) -> list[str]:
    """Notes on the model, on pictures without a pixel or object, and on classes that never occur."""
    notes = [str(note) for note in manifest["models"][0].get("notes", [])]
    if empty := int((pictures.total == 0).sum()):
        counts = "no figure counts them" if facts.task == "segmentation" else "only false boxes are counted in them"
        notes.append(f"{empty} of {len(pictures.total)} pictures have no {UNITS[facts.task][0]} of any class: {counts}")
    if absent := [name for label, name in enumerate(names) if label not in {entry.class_ for entry in per_class}]:
        notes.append(
            f"{len(absent)} of {len(names)} classes never occur ({listed(absent, 5)}): {pictures.of_class} is over the others"
        )
    return notes
