"""The rows of a tally, the figures that are counted from them, and the report.

Nothing here needs torch.
"""

from dataclasses import dataclass

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.core.record import Array, Columns, column
from brinell.reports.numbers import percent
from brinell.reports.values import Report, Table
from brinell.store.table import Folder
from brinell.studies.result import FolderResult

from . import TallyRequest


@dataclass(frozen=True, kw_only=True)
class Predictions(Columns):
    """Rows as columns, each a (rows,) array."""

    size: Array = column("float64", "standard deviation of the noise")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "predicted class")


class Level(Result):
    """One size of the noise."""

    size: float
    """Standard deviation."""
    counts: list[int]
    """Predictions of each class."""
    accuracy: Rate
    """Accuracy under the noise."""


class TallyResult(FolderResult):
    """What `brinell tally --json` prints."""

    request: TallyRequest
    levels: list[Level]
    """By size, as they were asked for."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        (model,), last = self.models, self.levels[-1]
        return Report(
            verb="tally",
            title=f"What {model} predicts under noise",
            subject=f"{self.data}, {last.accuracy.n} samples",
            sentences=[
                f"At noise of {last.size:g} the accuracy is {percent(last.accuracy.value)}."
            ],
            blocks=[
                Table(
                    title="Predictions by class",
                    columns=("noise", "accuracy", *self.classes),
                    rows=[(level.size, level.accuracy, *level.counts) for level in self.levels],
                    name="predictions",
                    terminal=True,
                )
            ],
        )


def summarise(folder: Folder[Predictions]) -> TallyResult:
    """Count the predictions of each class at each size."""
    head, rows = folder.head(), folder.rows
    levels = []
    for size in dict.fromkeys(rows.size.tolist()):
        level = rows.size == size
        right = rows.prediction[level] == rows.label[level]
        counts = np.bincount(rows.prediction[level], minlength=len(head["classes"])).tolist()
        levels.append(Level(size=size, counts=counts, accuracy=rate(int(right.sum()), len(right))))
    return TallyResult(**head, levels=levels)
