"""The figures of ordered classes, and their words; nothing here needs torch."""

import json

import numpy as np

from brinell.analysis.pictures import Pictures
from brinell.core.record import Array
from brinell.reports.task_reports import TaskReport


class Grades(Pictures):
    """True and predicted classes of every row.

    A set is an index of rows, one for each sample; the worst one has the farthest answers.
    """

    accuracy = "near enough"
    figures = ("near enough", "exactly right")
    of_class = "near enough"

    def _read(self, texts: Array) -> None:
        self.true, self.away, self.wrong = np.array([json.loads(text) for text in texts]).T

    @property
    def total(self) -> Array:
        """One answer a sample."""
        return np.ones(len(self.clean), dtype=np.int64)

    def right(self, index: Array) -> Array:
        """Answers that are near enough."""
        return np.asarray(1 - self.wrong[index])

    def values(self, name: str, index: Array, weights: Array) -> Array:
        """Shares of the samples, weighted."""
        right = self.right(index) if name == self.accuracy else self.away[index] == 0
        return np.asarray(weights @ right.astype(float) / weights.sum(1))

    def worst(self, name: str, level: int) -> Array:
        """Of each sample the input within a budget whose answer is farthest."""
        order = np.lexsort((np.arange(len(self.away)), -self.away))
        order = order[self.level[order] <= level]
        return np.asarray(order[np.unique(self.picture[order], return_index=True)[1]])

    def least_right(self, level: int) -> Array:
        """Whether even that is near enough."""
        return self.right(self.worst(self.accuracy, level))

    def class_values(self, index: Array) -> tuple[Array, Array]:
        """The true classes, and the share of their answers that is near enough."""
        right, true = self.right(index), self.true[index]
        shares = [right[true == label].mean() for label in self.labels]
        return np.array(self.labels), np.array(shares)

    @property
    def labels(self) -> list[int]:
        """The true classes."""
        return sorted(set(self.true[self.clean].tolist()))

    def class_sizes(self, label: int) -> Array:
        """Whether each sample is of a class."""
        return np.asarray(self.true[self.clean] == label, dtype=np.int64)


class GradesReport(TaskReport):
    """The words of reports."""

    sample = "sample"
    unit = "answer"
    remain = "stay near enough"
