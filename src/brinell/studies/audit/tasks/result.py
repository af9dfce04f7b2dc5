"""Rows of an audit of pictures with masks or boxes, the figures that are counted from them, and the
report.

inputs/*.safetensors   AIM-SAMPLE: the strongest input at the largest budget; as bytes what the page
                       shows: picture-SAMPLE, and for masks mask-SAMPLE and the predicted classes
                       before-SAMPLE and after-SAMPLE
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.pictures import PictureRows, Pictures
from brinell.analysis.results import CheckResult, OfClass, Rate
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.checks import Code
from brinell.core.record import CLEAN, Array, column
from brinell.engine.request import Request
from brinell.manifest import Amount, Facts, Listing
from brinell.reports.numbers import capital, counted, distance, listed, percent, whole
from brinell.reports.samples import where
from brinell.reports.task_reports import TaskReport
from brinell.reports.values import (
    Curve,
    Example,
    Note,
    Percent,
    Report,
    Samples,
    Series,
    Step,
    Table,
)
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.store.table import ROWS, Folder
from brinell.studies.result import FolderResult
from brinell.studies.tasks import part_of

PIECE = 4
"""Pictures of a piece, which share a file of inputs."""
MOST_PICTURES = 500
"""Pictures that a page holds."""
COLUMNS = ("model", "sample", "class", "clean", "state", "levels", "broken")
"""The columns of a picture on a page: 0, its position in the data, the classes that occur in it,
what is right without an attack, the state without one, what is right at each budget, and pairs
of attack and budget, by their numbers, that met the criterion."""


def inputs_path(start: int, source: int | None = None) -> str:
    """Path of the inputs of the pictures from a position on, of a transfer those found on a source,
    relative to the folder.
    """
    return f"inputs/{'' if source is None else f'{source:03d}-'}{start // PIECE:04d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class AttackRows(PictureRows):
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
        "float64",
        "wall time, shared among the pictures that were attacked together",
        zero=True,
        claimed=True,
    )


class TaskFacts(Facts):
    """Facts on the task that the request leaves open."""

    task: str
    """What the data have a truth about: segmentation, detection, or a task of another package."""
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
    """A figure of a set of pictures, with its 95 % interval by the jackknife over pictures."""

    value: float | None
    """The figure; null where no picture has what it counts."""
    low: float | None
    """Lower end of the interval; null with fewer than six pictures, or three of a class."""
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
        failed = [check for check in self.checks if not check.passed]
        tables = (self._class_table(), self._stage_table(), self._picture_table())
        return Report(
            verb="audit",
            title=f"{self.names[0]} on {self.data}",
            subject=f"{counted(self.n, self._words.sample)}, {distance(self.request.norm)}, "
            f"{self.facts.criterion}, {listed(list(self.request.attack))}",
            sentences=list(self._sentences()),
            notes=[
                *(Note(check.code, "warn", check.text) for check in failed),
                *(Note("note", "note", text) for text in self.notes),
            ],
            blocks=[
                self._curve(),
                *self._budget_tables(),
                self._samples(),
                *(table for table in tables if table.rows),
            ],
            steps=[
                Step(
                    "Have the figures made again before you pass them on.", "brinell verify FOLDER"
                )
            ],
        )

    @property
    def _words(self) -> TaskReport:
        """The words and drawings of the task."""
        report: TaskReport = part_of(self.facts.task, "report")()
        return report

    @property
    def texts(self) -> list[str]:
        """The budgets as they were written, 0 first."""
        return ["0", *self.facts.eps_text]

    def _of_class(self) -> str:
        """The figure of single classes."""
        figures: type[Pictures] = part_of(self.facts.task, "figures")
        return figures.of_class.removeprefix("mean ")

    def _cells(self) -> dict[str, list[Any]]:
        """The figures over the budgets as cells, by the name of what they count."""
        words = self._words
        return {
            self.clean_accuracy.quantity: [self.clean_accuracy, *self.robust_accuracy],
            **{
                entry.quantity: [words.cell(entry.quantity, value) for value in entry.values]
                for entry in self.figures
            },
        }

    def _sentences(self) -> Iterator[str]:
        """Whether to believe the figures, the figures at the largest budget, and the
        weakest class.
        """
        for check in self.checks:
            if check.code == Code.CLEAN and not check.passed:
                yield f"Do not rely on the figures: {check.text}."

        words, last = self._words, self.robust_accuracy[-1]
        first = self.figures[0]
        yield (
            f"At {self.texts[-1]}, at most {percent(last.value)} of "
            f"{counted(last.n, words.unit)} in {counted(self.n, words.sample)} {words.remain} "
            f"({percent(self.clean_accuracy.value)} without an attack); "
            f"{first.quantity} is at most {percent(first.values[-1].value)} "
            f"({percent(first.values[0].value)})."
        )

        weakest = next((entry for entry in self._by_weakness() if entry.clean), None)
        if weakest is not None and (weakest.robust[-1] or 0.0) < (weakest.clean or 0.0):
            ends = f"{percent(weakest.robust[-1])} ({percent(weakest.clean)} without an attack)"
            yield f"The class {weakest.name} has the lowest {self._of_class()} there: {ends}."

    def _by_weakness(self) -> list[ClassFigures]:
        """The classes, the lowest at the largest budget first."""
        return sorted(
            self.per_class, key=lambda entry: (entry.robust[-1] or 0.0, -(entry.clean or 0.0))
        )

    def _curve(self) -> Curve:
        """Shares over the budget."""
        levels = [0.0, *self.facts.eps]
        shares = {
            name: values for name, values in self._cells().items() if name not in self._words.errors
        }
        return Curve(
            title="Over the budget",
            series=[
                Series(name=name, points=list(zip(levels, values, strict=True)))
                for name, values in shares.items()
            ],
            ticks=list(zip(levels, self.texts, strict=True)),
            axis=f"eps ({distance(self.request.norm)})",
        )

    def _budget_tables(self) -> Iterator[Table]:
        """The figures by budget, and the kinds of errors where each was attacked by itself."""
        words, cells = self._words, self._cells()
        shares = {name: values for name, values in cells.items() if name not in words.errors}
        errors = {title: cells[name] for name, title in words.errors.items() if name in cells}
        met = [f"{rate.n - rate.k} of {counted(rate.n, words.sample)}" for rate in self.unmet]
        yield Table(
            title="Figures by budget",
            columns=("eps", *shares, "criterion met"),
            rows=list(zip(self.texts, *shares.values(), met, strict=True)),
            text="Upper bounds: the worst inputs count that any attack found within a budget. "
            f"Attacks on a {words.sample} end when it meets the criterion "
            f"«{self.facts.criterion}». Intervals are of the {words.sample}s: 95 %, jackknife."
            f"{words.about if errors else ''}",
            name="budgets",
            terminal=True,
        )

        if errors:
            yield Table(
                title="Kinds of errors",
                columns=("eps", *errors),
                rows=list(zip(self.texts, *errors.values(), strict=True)),
                text=words.about_errors,
                name="errors",
                terminal=True,
            )

    def _class_table(self) -> Table:
        """The classes over the budgets."""
        words = self._words
        return Table(
            title="Class by class",
            columns=("class", f"{words.unit}s", f"{words.sample}s", *self.texts),
            rows=[
                (
                    *(entry.name, entry.n, entry.pictures),
                    *map(Percent, (entry.clean, *entry.robust)),
                )
                for entry in self._by_weakness()
            ],
            text=f"{self._of_class()} of each class.",
            name="per_class",
            heat=True,
            opens=[
                [
                    *(where(**{"class": entry.class_}), "", "", where(**{"class": entry.class_})),
                    *(where(**{"class": entry.class_}, eps=text) for text in self.facts.eps_text),
                ]
                for entry in self._by_weakness()
            ],
        )

    def _stage_table(self) -> Table:
        """Each attack by itself."""
        words = self._words
        right = f"{words.unit}s left right"
        texts = dict(zip(self.facts.eps, self.facts.eps_text, strict=True))

        return Table(
            title="Attack by attack",
            columns=("aim", "attack", "eps", f"{words.sample}s", right, "forwards", "backwards"),
            rows=[
                (
                    *(stage.aim, stage.attack, texts[stage.eps], stage.pictures),
                    *(Percent(stage.accuracy), stage.forwards, stage.backwards),
                )
                for stage in self.stages
            ],
            text=f"Each attack by itself, on the {words.sample}s that it attacked. They run in "
            "this order, each from the worst input so far where it can.",
            name="stages",
            folded=True,
        )

    def _picture_table(self) -> Table:
        """Each picture over the budgets."""
        words = self._words
        return Table(
            title=capital(f"{words.sample} by {words.sample}"),
            columns=(words.sample, f"{words.unit}s", *(f"right at {text}" for text in self.texts)),
            rows=[(entry.name, entry.n, entry.clean, *entry.robust) for entry in self.pictures],
            name="pictures",
            folded=True,
            # 0 is the number of the model, the only one.
            opens=[[where(sample=f"0/{entry.sample}")] for entry in self.pictures],
        )

    def _samples(self) -> Samples:
        """The pictures before and after, those that lose most first."""
        words, pictures = self._words, self.pictures
        rows = parquet.load_rows(AttackRows, Path(self.folder) / ROWS)
        figures = pictures_of(rows, self.facts)
        broken = _broken(rows, self.facts)
        successes = set(rows.sample_id[rows.met & (rows.attack == CLEAN)].tolist())
        # The share that stays right; a picture with nothing to count loses nothing.
        shares = [entry.robust[-1] / entry.n if entry.n else 1.0 for entry in pictures]
        numbers = sorted(range(self.n), key=shares.__getitem__)[:MOST_PICTURES]

        one_aim = len(self.facts.aims) == 1
        names = [
            attack if one_aim else f"{aim}: {attack}"
            for aim, attack in product(self.facts.aims, self.facts.attacks)
        ]
        sizes = {entry.class_: figures.class_sizes(entry.class_) for entry in self.per_class}
        content = {
            "models": self.names,
            "classes": {str(entry.class_): entry.name for entry in self.per_class},
            "attacks": [(name, name) for name in names],
            "eps": self.facts.eps_text,
            "distance": distance(self.request.norm),
            "outcome": "",
            "outcomes": {
                "broken": "criterion met",
                "robust": "criterion not met",
                "wrong": "met untouched",
            },
            "none": f"No {words.sample} of these data is drawn.",
            # The picture on a card, by its place: that after the attack, which is second for boxes
            # and fourth, after picture, mask and the map before, for masks.
            "card": 1 if self._words.errors else 3,
            "columns": COLUMNS,
            "rows": [
                [
                    *(0, pictures[number].sample),
                    [label for label, size in sizes.items() if size[number]],
                    self._right(pictures[number], pictures[number].clean),
                    "wrong" if pictures[number].sample in successes else "right",
                    [self._right(pictures[number], right) for right in pictures[number].robust],
                    broken.get(pictures[number].sample, []),
                ]
                for number in numbers
            ],
        }
        extent = f"{whole(len(numbers))} of " if len(numbers) < self.n else "All "
        return Samples(
            title="Sample by sample",
            text=f"{extent}{counted(self.n, words.sample)}, those that lose most first, before and after the attacks at "
            f"{self.texts[-1]}.",
            content=content,
            draw=partial(self._draw, numbers, figures),
        )

    def _right(self, entry: PictureFigures, right: int) -> str:
        """How much of a picture is right."""
        return f"{whole(right)} of {counted(entry.n, self._words.unit)} right"

    def _draw(self, chosen: Sequence[int], figures: Pictures) -> dict[str, Example]:
        """The pictures before and after, by their keys on the page."""
        drawings, legend = self._words.draw(
            chosen, self._view, figures, self.classes, self.facts.aims
        )
        entries = [self.pictures[number] for number in chosen]
        return {
            f"0/{entry.sample}": Example(
                pictures=pictures,
                caption=f"{entry.name}: {self._right(entry, entry.clean)}, "
                f"{whole(entry.robust[-1])} at {self.facts.eps_text[-1]}",
                legend=legend,
            )
            # A task that draws nothing has no drawings at all.
            for entry, pictures in zip(entries, drawings, strict=False)
        }

    def _view(self, number: int, name: str) -> Array:
        """An array that the folder holds for the page of a picture, by its place in the rows."""
        key = f"{name}-{self.pictures[number].sample}"
        return read_arrays(Path(self.folder) / inputs_path(number), key.__eq__)[key]


def _broken(rows: AttackRows, facts: PicturesFacts) -> dict[int, list[tuple[int, int]]]:
    """By picture the numbers of attack and budget of the inputs that met the criterion."""
    attacks = list(product(facts.aims, facts.attacks))
    broken: dict[int, list[tuple[int, int]]] = {}
    for row in np.flatnonzero(rows.met & (rows.attack != CLEAN)).tolist():
        attack = attacks.index((str(rows.aim[row]), str(rows.attack[row])))
        pair = (attack, facts.eps.index(rows.eps[row]))
        broken.setdefault(int(rows.sample_id[row]), []).append(pair)
    return broken


def pictures_of(rows: AttackRows, facts: PicturesFacts) -> Pictures:
    """The answers of rows by picture and budget."""
    clean = np.flatnonzero(rows.attack == CLEAN)
    places = {sample: number for number, sample in enumerate(rows.sample_id[clean].tolist())}
    levels = [0.0, *facts.eps]
    figures: type[Pictures] = part_of(facts.task, "figures")
    return figures(
        rows.answer,
        np.array([places[sample] for sample in rows.sample_id.tolist()]),
        clean,
        level=np.array([levels.index(eps) for eps in rows.eps.tolist()]),
        aim=rows.aim,
        margin=rows.margin,
        least_score=facts.least_score,
    )


def summarise(folder: Folder[AttackRows]) -> PicturesResult:
    """Figures of a folder from its rows."""
    rows, facts, head = folder.rows, folder.facts, folder.head()
    pictures, levels = pictures_of(rows, facts), [0.0, *facts.eps]
    n, by_level = len(pictures.clean), range(len(levels))
    words: TaskReport = part_of(facts.task, "report")()
    per_class = _per_class(pictures, head["classes"], by_level)

    worst = [pictures.worst(pictures.accuracy, level) for level in by_level]
    rates = [
        Rate(
            **pictures.figure(pictures.accuracy, index),
            eps=eps,
            k=int(pictures.right(index).sum()),
            n=int(pictures.total.sum()),
            quantity=words.quantity(pictures),
        )
        for index, eps in zip(worst, levels, strict=True)
    ]

    figures = []
    for name in pictures.figures:
        is_counted = name not in words.errors or name in facts.aims
        if name != pictures.accuracy and is_counted:
            sets = [pictures.worst(name, level) for level in by_level]
            values = [Figure(**pictures.figure(name, index)) for index in sets]
            figures.append(FigureCurve(quantity=name, values=values))

    met = [len(set(rows.sample_id[rows.met & (rows.eps <= eps)].tolist())) for eps in levels]
    least = np.stack([pictures.least_right(level) for level in by_level])
    entries = zip(
        rows.sample_id[pictures.clean].tolist(),
        facts.names,
        pictures.total.tolist(),
        least.T.tolist(),
        strict=True,
    )
    # The first of all rates, and of the pictures' own, is that of the clean inputs.
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
            for sample, name, total, right in entries
        ],
        stages=list(_stages(rows, facts)),
        checks=[CheckResult(**check) for check in folder.manifest["checks"]],
        notes=_notes(folder.manifest, pictures, head["classes"], per_class, words),
    )


def _per_class(pictures: Pictures, names: Sequence[str], levels: range) -> list[ClassFigures]:
    """The classes that occur, each with its figure over the budgets."""
    # In every set of inputs the same classes occur: those of the truth.
    labels = pictures.class_values(pictures.clean)[0].tolist()
    values = [
        pictures.class_values(pictures.worst(pictures.of_class, level))[1].tolist()
        for level in levels
    ]

    sizes = [pictures.class_sizes(label) for label in labels]
    return [
        ClassFigures(
            class_=label,
            name=class_name(names, label),
            n=int(sizes[place].sum()),
            pictures=int((sizes[place] > 0).sum()),
            clean=values[0][place],
            robust=[figures[place] for figures in values[1:]],
        )
        for place, label in enumerate(labels)
    ]


def _stages(rows: AttackRows, facts: PicturesFacts) -> Iterator[StageFigures]:
    """Each attack for each aim at each budget."""
    for aim, attack, eps in product(facts.aims, facts.attacks, facts.eps):
        index = (rows.aim == aim) & (rows.attack == attack) & (rows.eps == eps)
        valid = int(rows.valid[index].sum())
        yield StageFigures(
            attack=attack,
            aim=aim,
            eps=eps,
            pictures=int(index.sum()),
            accuracy=1 - int(rows.wrong[index].sum()) / valid if valid else None,
            forwards=rows.forwards[index].sum(),
            backwards=rows.backwards[index].sum(),
            seconds=rows.seconds[index].sum(),
        )


def _notes(
    manifest: Mapping[str, Any],
    pictures: Pictures,
    names: Sequence[str],
    per_class: Sequence[ClassFigures],
    words: TaskReport,
) -> list[str]:
    """Notes on the model, on pictures without a pixel or object, and on classes that
    never occur.
    """
    notes = [str(note) for note in manifest["models"][0].get("notes", [])]
    if empty := int((pictures.total == 0).sum()):
        notes.append(
            f"{empty} of {len(pictures.total)} {words.sample}s have no {words.unit} of any class: "
            f"{words.uncounted}"
        )

    occurring = {entry.class_ for entry in per_class}
    absent = [name for label, name in enumerate(names) if label not in occurring]
    if absent:
        notes.append(
            f"{len(absent)} of {len(names)} classes never occur "
            f"({listed(absent, 5)}): {pictures.of_class} is over the others"
        )
    return notes
