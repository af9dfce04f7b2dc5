"""AP, recall and errors over budgets from the rows of a study of a detector, with intervals by bootstrap over pictures.

An input within a budget is within every larger one, and each input was aimed at one kind of error. So the sets of inputs at a
budget are those of each kind at each budget up to it: of each picture the input with the most errors of that kind. Errors are
taken from the sets of the same kind, and no curve of theirs falls. AP and recall are figures of a whole set: of all these
sets the lowest counts, and neither rises with the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from brinell.analysis.average_precision import (
    Matches,
    average_precision,
    class_precision,
    draw_pictures,
    interval,
    match_set,
    ratio,
)
from brinell.analysis.robust_accuracy import class_name
from brinell.core.boxes import ERRORS, FALSE, MISLABELLED, MISPLACED, MISSED, Detections, Objects, Outcomes, judge
from brinell.core.record import Array
from brinell.store.table import Folder
from brinell.studies.answer_text import read_boxes, read_objects
from brinell.studies.dense.detection_results import AimFigures, ClassFigures, DetectionResult, ErrorFigures, PictureFigures
from brinell.studies.dense.records import CLEAN, Answers
from brinell.studies.dense.results import CheckFigures, Figure


@dataclass(frozen=True, kw_only=True, eq=False)
class InputSet:
    """One input of each picture: the rows that answer for it."""

    error: str
    """The kind of error that was aimed at; `clean` without an attack."""
    eps: float
    rows: Array
    """(n,) positions of the rows."""


class Study:
    """The boxes of every row and the objects of its picture.

    Args:
        rows: the rows of the study.
        levels: budgets above 0, ascending.
        least_score: score above which boxes are shown.
    """

    def __init__(self, rows: Answers, levels: Sequence[float], least_score: float) -> None:
        self.rows, self.least_score, self.levels = rows, least_score, (0.0, *levels)
        clean = np.flatnonzero(rows.attack == CLEAN)
        self.samples = rows.sample_id[clean]
        self.objects = [read_objects(rows.answer[row]) for row in clean]
        self.count = np.array([picture.count for picture in self.objects])
        self.weights = draw_pictures(len(clean))
        position = {sample: number for number, sample in enumerate(self.samples.tolist())}
        self.picture = np.array([position[sample] for sample in rows.sample_id.tolist()])
        """(rows,): the picture of each row."""
        self.boxes: list[Detections | None] = [read_boxes(text) if text else None for text in rows.answer]
        self.aim = np.array([attack.partition("/")[0] for attack in rows.attack], dtype=object)
        """(rows,): the kind of error that each row was aimed at."""
        self._clean = InputSet(error=CLEAN, eps=0.0, rows=clean)
        self._matched: dict[bytes, Matches] = {}

    @cached_property
    def outcomes(self) -> list[Outcomes | None]:
        """The outcome of each object and shown box of each row."""
        return [
            None if boxes is None else judge(boxes.select_above(self.least_score), self.objects[self.picture[row]])
            for row, boxes in enumerate(self.boxes)
        ]

    @cached_property
    def counts(self) -> dict[str, Array]:
        """(rows,) errors of each kind; -1 in rows without an answer."""
        return {
            error: np.array([-1 if outcomes is None else outcomes.count(error) for outcomes in self.outcomes]) for error in ERRORS
        }

    @property
    def errors(self) -> list[str]:
        """Kinds of errors that were attacked."""
        return [error for error in ERRORS if error in set(self.aim.tolist())]

    @cached_property
    def sets(self) -> list[list[InputSet]]:
        """The sets of inputs at each budget: the untouched one, and one for each kind of error and budget up to it."""
        sets = [[self._clean]]
        for level in range(1, len(self.levels)):
            sets.append([*sets[-1], *(self.set_of(error, level) for error in self.errors)])
        return sets

    def set_of(self, error: str, level: int) -> InputSet:
        """Of each picture the input within a budget with the most errors of a kind, the first of equal ones."""
        if not level:
            return self._clean
        counts = self.counts[error]
        allowed = ((self.aim == error) & (self.rows.eps <= self.levels[level])) | (self.aim == CLEAN)
        index = np.flatnonzero(allowed & (counts >= 0))
        index = index[np.lexsort((index, -self._margins(error)[index], self.picture[index]))]
        _, first = np.unique(self.picture[index], return_index=True)
        return InputSet(error=error, eps=self.levels[level], rows=index[first])

    def _margins(self, error: str) -> Array:
        """(rows,): errors of a kind, with what the attack's margin says about the next one as a fraction."""
        margin = np.ma.filled(self.rows.margin, -1e9)
        order = margin.argsort(kind="stable").argsort()
        fraction: Array = self.counts[error] + order / (len(order) + 1)
        return fraction

    def matches(self, inputs: InputSet) -> Matches:
        """The matched detections of a set."""
        key = inputs.rows.tobytes()
        if key not in self._matched:
            boxes = [self.boxes[row] for row in inputs.rows.tolist()]
            self._matched[key] = match_set([picture for picture in boxes if picture is not None], self.objects)
        return self._matched[key]

    def total(self, inputs: InputSet, error: str) -> Array:
        """(n,): errors of a kind in each picture."""
        return self.counts[error][inputs.rows]

    def count_hits(self, inputs: InputSet) -> Array:
        """(n,): objects that a shown box finds."""
        return self.count - sum(self.total(inputs, error) for error in (MISSED, MISLABELLED, MISPLACED))

    def ap_figure(self, level: int, averaged: bool) -> tuple[Figure, InputSet]:
        """AP of the set with the lowest one within a budget, at overlap 0.5 or averaged over overlaps."""
        inputs = min(self.sets[level], key=lambda inputs: _ordered(average_precision(self.matches(inputs))[int(averaged)][0]))
        matches = self.matches(inputs)
        matches = matches if averaged else replace(matches, hit=matches.hit[:, :1], ignored=matches.ignored[:, :1])
        draws = average_precision(matches, self.weights)[int(averaged)]
        return _figure(self.levels[level], interval(float(average_precision(matches)[int(averaged)][0]), draws)), inputs

    def recall_figure(self, level: int) -> Figure:
        """The lowest share of objects that shown boxes find within a budget."""
        lowest = min(self.sets[level], key=lambda inputs: int(self.count_hits(inputs).sum()))
        return _figure(self.levels[level], ratio(self.count_hits(lowest), self.count, self.weights))

    def error_figure(self, error: str, level: int) -> Figure:
        """Errors of a kind within a budget, per object or for false boxes per picture."""
        total = np.ones(len(self.count), dtype=np.int64) if error == FALSE else self.count
        return _figure(self.levels[level], ratio(self.total(self.set_of(error, level), error), total, self.weights))


def _ordered(value: float) -> float:
    """A value by which figures can be compared; undefined ones come last."""
    return value if np.isfinite(value) else float("inf")


def _number(value: float) -> float | None:
    """A figure; None where it is undefined."""
    return float(value) if np.isfinite(value) else None


def _figure(eps: float, values: Any) -> Figure:
    return Figure(eps=eps, value=_number(values.value), low=_number(values.low), high=_number(values.high))


def open_study(folder: Folder[Answers]) -> Study:
    """The rows of a folder."""
    facts = folder.manifest
    return Study(folder.rows, [float(level) for level in facts["levels"]], float(facts["request"]["least_score"]))


def summarise(folder: Folder[Answers]) -> DetectionResult:
    """Summarise a study of a detector."""
    return summary(folder, open_study(folder))


def summary(folder: Folder[Answers], study: Study) -> DetectionResult:
    """The result of a study whose rows are open."""
    facts, levels = folder.manifest, range(len(study.levels))
    lowest = [study.ap_figure(level, averaged=False) for level in levels]
    names = [str(name) for name in facts["data"]["classes"]]
    curves = {error: [study.error_figure(error, level) for level in levels] for error in study.errors}
    return DetectionResult(
        folder=str(folder.path),
        task="detection",
        model=str(facts["models"][0]["name"]),
        data=str(facts["data"]["name"]),
        n=len(study.samples),
        objects=int(study.count.sum()),
        with_objects=int((study.count > 0).sum()),
        norm=str(facts["request"]["norm"]),
        criterion="+".join(study.errors),
        least_score=study.least_score,
        ap50=[figure for figure, _ in lowest],
        ap=[study.ap_figure(level, averaged=True)[0] for level in levels],
        recall=[study.recall_figure(level) for level in levels],
        errors=ErrorFigures(**{error: curves.get(error, []) for error in ERRORS}),
        aims=_aims(study),
        per_class=_per_class(study, [inputs for _, inputs in lowest], names),
        pictures=_pictures(study, [str(name) for name in facts["names"]]),
        checks=[*(CheckFigures(**check) for check in facts.get("checks", [])), *_checks(lowest, study)],
        notes=_notes(study, facts, names),
    )


def _aims(study: Study) -> list[AimFigures]:
    """The untouched set, and the set of each kind of error at each budget."""
    sets = [study.sets[0][0], *(study.set_of(error, level) for error in study.errors for level in range(1, len(study.levels)))]
    figures = []
    for inputs in sets:
        half, mean = average_precision(study.matches(inputs))
        total = int(study.count.sum())
        attacked = (study.aim == inputs.error) & (study.rows.eps == inputs.eps)
        answers = (study.boxes[row] for row in inputs.rows)
        boxes = sum(len(answer.select_above(study.least_score)) for answer in answers if answer is not None)
        figures.append(
            AimFigures(
                error=inputs.error,
                eps=inputs.eps,
                ap50=_number(half[0]),
                ap=_number(mean[0]),
                recall=float(study.count_hits(inputs).sum() / total) if total else None,
                boxes=boxes,
                forwards=int(study.rows.forwards[attacked].sum()),
                backwards=int(study.rows.backwards[attacked].sum()),
                seconds=float(study.rows.seconds[attacked].sum()),
                **{error: int(study.total(inputs, error).sum()) for error in ERRORS},
            )
        )
    return figures


def _per_class(study: Study, lowest: Sequence[InputSet], names: Sequence[str]) -> list[ClassFigures]:
    """AP of each class that occurs, in the sets of the lowest AP."""
    by_level = [class_precision(_first_level(study.matches(inputs))) for inputs in lowest]
    truth = study.matches(lowest[0]).objects
    return [
        ClassFigures(
            class_=label,
            name=class_name(names, label),
            objects=int((truth[:, 1] == label).sum()),
            pictures=len(np.unique(truth[truth[:, 1] == label, 0])),
            ap50=[_number(precision[0, 0, column]) for _, precision in by_level],
        )
        for column, label in enumerate(by_level[0][0].tolist())
    ]


def _first_level(matches: Matches) -> Matches:
    return replace(matches, hit=matches.hit[:, :1], ignored=matches.ignored[:, :1])


def _pictures(study: Study, names: Sequence[str]) -> list[PictureFigures]:
    """The most that each picture loses."""
    losses = np.stack([np.max([study.count - study.count_hits(inputs) for inputs in sets], 0) for sets in study.sets])
    return [
        PictureFigures(sample=sample, name=names[number], objects=int(study.count[number]), losses=losses[:, number].tolist())
        for number, sample in enumerate(study.samples.tolist())
    ]


def _checks(lowest: Sequence[tuple[Figure, InputSet]], study: Study) -> list[CheckFigures]:
    """Whether AP and recall say the same about the largest budget."""
    clean, last = lowest[0][0].value, lowest[-1][0].value
    recall = [study.recall_figure(level).value for level in (0, len(study.levels) - 1)]
    if not clean or last is None or not recall[0] or recall[1] is None:
        return []
    shares = last / clean, recall[1] / recall[0]
    passed = abs(shares[0] - shares[1]) < 0.5
    return [
        CheckFigures(
            code="rank",
            passed=passed,
            text=f"AP50 keeps {100 * shares[0]:.0f} % of its value without an attack, and recall at a score of "
            f"{study.least_score:g} "
            f"keeps "
            f"{100 * shares[1]:.0f} %: AP depends on the ranks of boxes alone, recall on their scores",
        )
    ]


def _notes(study: Study, facts: Any, names: Sequence[str]) -> list[str]:
    """Notes on the model, on pictures without objects and on classes that never occur."""
    notes = [str(note) for note in facts["models"][0].get("notes", [])]
    if empty := int((study.count == 0).sum()):
        notes.append(
            f"{empty} of {len(study.count)} pictures have no object: false boxes are counted in all of them, and shares of "
            f"objects in "
            f"the other {len(study.count) - empty}"
        )
    occurring = np.unique(np.concatenate([picture.labels[~picture.crowd] for picture in study.objects]))
    if absent := len(names) - len(occurring):
        notes.append(
            f"{absent} of {len(names)} classes never occur in these pictures: AP is the mean over the other {len(occurring)}"
        )
    return notes


def found_boxes(study: Study, inputs: InputSet, number: int) -> tuple[Detections, Objects, Outcomes]:
    """The shown boxes of one picture in a set of inputs, its objects, and the outcomes of both."""
    row = int(inputs.rows[number])
    boxes, outcomes = study.boxes[row], study.outcomes[row]
    assert boxes is not None and outcomes is not None
    return boxes.select_above(study.least_score), study.objects[number], outcomes
