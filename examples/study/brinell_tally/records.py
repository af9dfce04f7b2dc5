"""The rows of a tally, and what is read from them: result, lines for a terminal, page. Nothing here needs torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.core.record import Array, column
from brinell.manifest import FolderManifest
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.store.folder import PAGE, Layout
from brinell.store.table import Folder, Table


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Rows as columns, each a (rows,) array."""

    size: Array = column("float64", "standard deviation of the noise")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "predicted class")

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(Layout(verb="tally", noun="tally", version=1, manifest=FolderManifest), Predictions)


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

    model: str
    """Name of the model."""
    classes: list[str]
    """Names of the classes."""
    levels: list[Level]
    """By size, as they were asked for."""


def summarise(folder: Folder[Predictions]) -> TallyResult:
    """Count the predictions of each class at each size."""
    manifest, rows = folder.manifest, folder.rows
    names = manifest["data"]["classes"]
    levels = []
    for size in dict.fromkeys(rows.size.tolist()):
        level = rows.size == size
        right = rows.prediction[level] == rows.label[level]
        counts = np.bincount(rows.prediction[level], minlength=len(names)).tolist()
        levels.append(Level(size=size, counts=counts, accuracy=rate(int(right.sum()), len(right))))
    return TallyResult(folder=str(folder.path), model=manifest["models"][0]["name"], classes=names, levels=levels)


def lines(result: TallyResult) -> Iterator[str]:
    """The result as a terminal shows it."""
    for level in result.levels:
        yield f"noise of {level.size:g}: {level.accuracy.k} of {level.accuracy.n} right, predictions {level.counts}"
    yield f"page: {result.folder}/{PAGE}"


def write_page(path: Path) -> Path:
    """Write the page of a folder from its records."""
    page = Path(path) / PAGE
    write_text(page, fill(__package__, "page.html", {}, result=summarise(TABLE.read(path))))
    return page
