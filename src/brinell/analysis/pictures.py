"""Figures of pictures with masks or boxes from the answers in rows, with intervals.

A figure is one of a set of inputs: an index of rows, one for each picture. An input within a budget
is within every larger one, so the candidates of a picture at a budget are its inputs at all budgets
up to it, of all attacks. For masks, pixel accuracy takes of each picture the candidate with the
most wrong pixels; the mean IoU is a figure of the whole set, so candidates are exchanged picture by
picture as long as that lowers it (the greedy choice of Croce, Singh & Hein 2023, arXiv 2306.12941).
For boxes each input was aimed at one kind of error: a set holds of each picture the input with the
most errors of one kind, errors are counted in the sets of their kind, and of all sets within the
budget that with the lowest AP or recall counts. So no figure of accuracy rises with the budget, and
all are upper bounds.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from brinell.analysis.average_precision import (
    Matches,
    average_precision,
    class_precision,
    interval,
    leave_out,
    match_set,
)
from brinell.core.boxes import ERRORS, FALSE, BoxOutcomes, Detections, Objects, judge
from brinell.core.record import Array, Columns, column

ROUNDS = 20
"""Largest number of rounds over the pictures in the choice of their inputs."""


@dataclass(frozen=True, kw_only=True)
class PictureRows(Columns):
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position of the picture in the data")
    aim: Array = column(
        "string",
        "what the input was aimed at: a criterion of maps or a kind of error; "
        "empty without an attack",
    )
    distance: Array = column("float64", "size of the change, in the norm of the request", null=True)
    valid: Array = column("int64", "pixels or objects that have a true class", zero=True)
    wrong: Array = column("int64", "pixels or objects among them that are wrong", zero=True)
    answer: Array = column(
        "string",
        "the answer of the model, as JSON: for masks [true class, predicted "
        "class, pixels] of each pair that occurs, for boxes "
        "the final ones as [x0, y0, x1, y1, class, score], and for the untouched "
        "picture the objects",
    )


class Pictures(ABC):
    """The answers to inputs made of pictures.

    A set is an array (n,) with one row for each picture, by whose answers a figure is computed.

    Args:
        texts: (rows,) the answers as text.
        picture: (rows,) position of the picture of each row.
        clean: (n,) the row of each untouched picture.
        level: (rows,) place of the budget of each row, 0 for untouched pictures.
        aim: (rows,) what each input was aimed at.
        margin: (rows,) margin of the criterion, masked where there is none.
        least_score: score above which boxes are shown.
    """

    accuracy: ClassVar[str]
    """The figure that stands for robust accuracy: right units, pixels or objects, of all."""
    figures: ClassVar[tuple[str, ...]]
    """All figures."""
    class_means: ClassVar[tuple[str, ...]] = ()
    """Those that are means over classes."""
    of_class: ClassVar[str]
    """The figure that reports give class by class."""

    def __init__(
        self,
        texts: Array,
        picture: Array,
        clean: Array,
        *,
        level: Array | None = None,
        aim: Array | None = None,
        margin: Array | None = None,
        least_score: float = 0.0,
    ) -> None:
        self.picture = picture
        self.clean = clean
        self.least_score = least_score

        self.level = np.zeros(len(texts), dtype=np.int64) if level is None else level
        self.aim = np.full(len(texts), "", dtype=object) if aim is None else aim
        self.margin = np.zeros(len(texts)) if margin is None else margin

        self.weights = leave_out(len(clean))
        self._read(texts)

    @abstractmethod
    def _read(self, texts: Array) -> None:
        """Read the answers."""

    @property
    @abstractmethod
    def total(self) -> Array:
        """(n,): units of each picture."""

    @abstractmethod
    def right(self, index: Array) -> Array:
        """(n,): right units of the pictures in a set."""

    @abstractmethod
    def values(self, name: str, index: Array, weights: Array) -> Array:
        """(draws,): a figure of a set, with weights (draws, n) of its pictures; NaN for nothing."""

    @abstractmethod
    def worst(self, name: str, level: int) -> Array:
        """(n,): the set within the budget of place `level` for which the figure `name` is worst."""

    @abstractmethod
    def least_right(self, level: int) -> Array:
        """(n,): the fewest right units of each picture at a budget."""

    @abstractmethod
    def class_values(self, index: Array) -> tuple[Array, Array]:
        """(classes,) the classes that occur, and (classes,) the figure of each in a set."""

    @abstractmethod
    def class_sizes(self, label: int) -> Array:
        """(n,): units of a class in each picture."""

    @property
    @abstractmethod
    def labels(self) -> list[int]:
        """The classes that occur."""

    def pictures_with(self, name: str) -> int:
        """Number of pictures that hold what a figure counts; of a mean over classes, those of the
        class in the fewest.
        """
        if name == FALSE:
            return len(self.clean)
        if name not in self.class_means:
            return int((self.total > 0).sum())
        sizes = [int((self.class_sizes(label) > 0).sum()) for label in self.labels]
        return min(sizes, default=0)

    def value(self, name: str, index: Array) -> float:
        """A figure of a set."""
        return float(self.values(name, index, np.ones((1, len(index))))[0])

    def figure(self, name: str, index: Array, less: Array | None = None) -> dict[str, Any]:
        """A figure of a set, or what it has less in `less`: value, low and high, or None."""
        value = self.value(name, index)
        replicates = self.values(name, index, self.weights)
        # The same replicates on both sides: the difference is paired, and narrower than two
        # intervals.
        if less is not None:
            value = value - self.value(name, less)
            replicates = replicates - self.values(name, less, self.weights)

        # Boxes of no object have no largest number; the other errors are shares.
        largest = math.inf if name == FALSE else 1.0
        bounds = (0.0 if less is None else -largest, largest)
        ends = interval(value, replicates, self.pictures_with(name), bounds)
        return {
            "value": value if np.isfinite(value) else None,
            "low": None if ends is None else ends.low,
            "high": None if ends is None else ends.high,
        }


def _ratio(part: Array, total: Array, weights: Array) -> Array:
    """(draws,): a sum over pictures per sum over pictures; NaN where there is nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Array = (weights @ part.astype(np.float64)) / (weights @ total.astype(np.float64))
    return ratio


# Masks


class Maps(Pictures):
    """Counts of pixels by true and predicted class."""

    accuracy = "pixel accuracy"
    figures = ("pixel accuracy", "mean IoU")
    class_means = ("mean IoU",)
    of_class = "mean IoU"

    def _read(self, texts: Array) -> None:
        self.counts = read_counts(texts)
        """(rows, classes, classes)."""
        self._right = self.counts.diagonal(axis1=1, axis2=2).sum(1)
        self._lowest: list[Array] = []

    @property
    def total(self) -> Array:
        return np.asarray(self.counts[self.clean].sum((1, 2)))

    def right(self, index: Array) -> Array:
        return np.asarray(self._right[index])

    def values(self, name: str, index: Array, weights: Array) -> Array:
        """Pixel accuracy is a ratio of sums; the mean IoU comes from the summed counts."""
        if name == self.accuracy:
            return _ratio(self.right(index), self.total, weights)
        counts = self.counts[index]
        hits = weights @ counts.diagonal(axis1=1, axis2=2).astype(np.float64)
        true = weights @ counts.sum(2).astype(np.float64)
        predicted = weights @ counts.sum(1).astype(np.float64)
        # Classes without a pixel in the drawn pictures do not count.
        occurs = true > 0
        total = np.where(occurs, hits / np.maximum(true + predicted - hits, 1), 0.0).sum(1)
        return np.where(occurs.any(1), total / np.maximum(occurs.sum(1), 1), np.nan)

    def worst(self, name: str, level: int) -> Array:
        """Of pixel accuracy picture by picture; of the mean IoU the set that exchanges lower."""
        if name == self.accuracy:
            # The fewest right pixels first, of equal ones the earlier row.
            order = np.lexsort((np.arange(len(self._right)), self._right))
            order = order[self.level[order] <= level]
            _, first = np.unique(self.picture[order], return_index=True)
            return np.asarray(order[first])
        while len(self._lowest) <= level:
            self._lowest.append(self._lowest_miou(len(self._lowest)))
        return self._lowest[level]

    def _lowest_miou(self, level: int) -> Array:
        """(n,): the inputs by which the mean IoU of the set is least.

        They start from those of the smaller budget, or from the most wrong ones.
        """
        if not level:
            return self.clean
        # The mean IoU is not a sum over pictures: the worst set is searched for, from two starts.
        candidates = [
            self._lower(self.worst("mean IoU", level - 1), level),
            self._lower(self.worst(self.accuracy, level), level),
        ]
        return min(candidates, key=lambda index: self._miou(self.counts[index].sum(0)))

    def _lower(self, start: Array, level: int) -> Array:
        """(n,): inputs exchanged picture by picture as long as the mean IoU falls."""
        selection = start.copy()
        total = self.counts[start].sum(0)
        allowed = np.flatnonzero(self.level <= level)
        value = self._miou(total)

        for _ in range(ROUNDS):
            changed = False
            for picture in range(len(selection)):
                # An exchange changes the counts of one picture alone.
                without = total - self.counts[selection[picture]]
                for row in allowed[self.picture[allowed] == picture]:
                    candidate = self._miou(without + self.counts[row])
                    # Beyond rounding, or two equal inputs would be exchanged for ever.
                    if candidate < value - 1e-12:
                        value = candidate
                        selection[picture] = row
                        total = without + self.counts[row]
                        changed = True
            if not changed:
                break
        return selection

    @staticmethod
    def _miou(counts: Array) -> float:
        """Mean IoU over the classes that occur; 0 without a valid pixel."""
        values = ious(counts)
        return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0

    def least_right(self, level: int) -> Array:
        return self.right(self.worst(self.accuracy, level))

    def class_values(self, index: Array) -> tuple[Array, Array]:
        values = ious(self.counts[index].sum(0))
        return np.array(self.labels), values[self.labels]

    @property
    def labels(self) -> list[int]:
        return np.flatnonzero(self.counts[self.clean].sum((0, 2))).tolist()

    def class_sizes(self, label: int) -> Array:
        return np.asarray(self.counts[self.clean].sum(2)[:, label])


def read_counts(texts: Sequence[str] | Array) -> Array:
    """(rows, classes, classes) int64: pixels by true and predicted class, from answers."""
    pairs = [np.array(json.loads(text), dtype=np.int64).reshape(-1, 3) for text in texts]
    classes = 1 + max((int(entries[:, :2].max()) for entries in pairs if len(entries)), default=0)
    counts = np.zeros((len(pairs), classes, classes), dtype=np.int64)
    for number, entries in enumerate(pairs):
        counts[number, entries[:, 0], entries[:, 1]] = entries[:, 2]
    return counts


def ious(counts: Array) -> Array:
    """(..., classes): IoU of each class from counts (..., classes, classes), or NaN."""
    hits = counts.diagonal(axis1=-2, axis2=-1).astype(np.float64)
    true = counts.sum(-1)
    predicted = counts.sum(-2)
    return np.where(true > 0, hits / np.maximum(true + predicted - hits, 1), np.nan)


# Boxes


class BoxPictures(Pictures):
    """Boxes of every row and the objects of its picture."""

    accuracy = "recall"
    figures = ("recall", "AP50", "AP", *ERRORS)
    class_means = ("AP50", "AP")
    of_class = "AP50"

    def _read(self, texts: Array) -> None:
        self.boxes = list(map(read_boxes, texts))
        self.objects = [read_objects(texts[row]) for row in self.clean]
        self._precision: dict[tuple[bytes, int], tuple[Array, Array]] = {}

    @property
    def total(self) -> Array:
        return np.array([picture.count for picture in self.objects])

    @cached_property
    def outcomes(self) -> list[BoxOutcomes]:
        """The outcome of each object and shown box of each row."""
        visible = [boxes.select_above(self.least_score) for boxes in self.boxes]
        return [
            judge(boxes, self.objects[picture])
            for boxes, picture in zip(visible, self.picture, strict=True)
        ]

    @cached_property
    def counts(self) -> dict[str, Array]:
        """(rows,) errors of each kind."""
        return {
            error: np.array([outcomes.count(error) for outcomes in self.outcomes])
            for error in ERRORS
        }

    def right(self, index: Array) -> Array:
        # A false box is no object, so it takes no recall.
        wrong = sum(self.counts[error][index] for error in ERRORS if error != FALSE)
        return np.asarray(self.total - wrong)

    def outcome(self, row: int) -> tuple[Detections, Objects, BoxOutcomes]:
        """The shown boxes of a row, the objects of its picture, and the outcomes of both."""
        return (
            self.boxes[row].select_above(self.least_score),
            self.objects[self.picture[row]],
            self.outcomes[row],
        )

    def _matches(self, index: Array) -> Matches:
        """The matched boxes of a set."""
        return match_set([self.boxes[row] for row in index], self.objects)

    def values(self, name: str, index: Array, weights: Array) -> Array:
        """Average precision from the matches of the set; other figures are ratios of sums."""
        if name in ("AP50", "AP"):
            # Both precisions come from one matching, which is slow.
            key = index.tobytes(), len(weights)
            if key not in self._precision:
                self._precision[key] = average_precision(self._matches(index), weights)
            return self._precision[key][int(name == "AP")]
        part = self.right(index) if name == self.accuracy else self.counts[name][index]
        return _ratio(part, np.ones(len(index)) if name == FALSE else self.total, weights)

    @cached_property
    def aims(self) -> list[str]:
        """Kinds of errors that were attacked."""
        return [error for error in ERRORS if error in set(self.aim.tolist())]

    def worst(self, name: str, level: int) -> Array:
        """Of an error picture by picture; of another figure the lowest of a few sets."""
        if name in ERRORS:
            return self._most(name, level)
        sets = self._sets(level)
        values = [self.value(name, index) for index in sets]
        # A figure that is not defined is not the worst.
        lowest = np.argmin([value if np.isfinite(value) else np.inf for value in values])
        return sets[int(lowest)]

    def _sets(self, level: int) -> list[Array]:
        """The sets within a budget: the untouched one, and one by kind of error and budget."""
        steps = range(1, level + 1)
        return [self.clean, *(self._most(error, step) for step in steps for error in self.aims)]

    def _most(self, error: str, level: int) -> Array:
        """Of each picture the input within a budget with the most errors of a kind.

        Of equal ones it is that of the larger margin.
        """
        counts = self.counts[error]
        margin = np.ma.filled(self.margin, -1e9)
        # Ranks of the margins, so that they can be turned; rows without a margin come last.
        order = margin.argsort(kind="stable").argsort()
        allowed = ((self.aim == error) & (self.level <= level)) | (self.level == 0)
        index = np.flatnonzero(allowed)
        # Picture by picture, the last key first: the most errors, the largest margin, the first
        # row.
        index = index[np.lexsort((index, -order[index], -counts[index], self.picture[index]))]
        _, first = np.unique(self.picture[index], return_index=True)
        return np.asarray(index[first])

    def least_right(self, level: int) -> Array:
        return np.asarray(np.min([self.right(index) for index in self._sets(level)], 0))

    def class_values(self, index: Array) -> tuple[Array, Array]:
        # Precision is (draws, levels, classes): of the set itself, at the first level of overlap.
        labels, precision = class_precision(self._matches(index))
        return labels, precision[0, 0]

    @property
    def labels(self) -> list[int]:
        return sorted(
            {label for truth in self.objects for label in truth.labels[~truth.crowd].tolist()}
        )

    def class_sizes(self, label: int) -> Array:
        # Crowds are no objects that must be found.
        counts = [(picture.labels[~picture.crowd] == label).sum() for picture in self.objects]
        return np.array([int(count) for count in counts])


def read_boxes(text: str) -> Detections:
    """The boxes of a row, the highest score first."""
    # A box is written as its four corners, its class and its score.
    values = _table(json.loads(text)["boxes"])
    order = np.argsort(-values[:, 5], kind="stable")
    return Detections(
        boxes=values[order, :4], labels=values[order, 4].astype(np.int64), scores=values[order, 5]
    )


def read_objects(text: str) -> Objects:
    """The objects of a row without an attack."""
    # An object is written as its four corners, its class and its mark of a crowd.
    values = _table(json.loads(text)["objects"])
    return Objects(
        boxes=values[:, :4], labels=values[:, 4].astype(np.int64), crowd=values[:, 5] > 0
    )


def _table(values: list[list[float]]) -> Array:
    """(k, 6) float64."""
    return np.array(values, dtype=np.float64).reshape(-1, 6)
