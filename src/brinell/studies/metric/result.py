"""The result of a training of a distance: how well it separates classes, and how well the distance
between pixels does.
"""

from pydantic import Field

from brinell.analysis.results import Share
from brinell.core.numbers import seconds
from brinell.reports.distances import class_distances, nearness_sentence
from brinell.reports.numbers import counted
from brinell.reports.values import Measure, Note, Report, Step, Table
from brinell.studies.result import ReportedResult

NEIGHBOURS = 5
"""How many neighbours vote."""
SPACES = {"pixels": "L2 between inputs", "embedding": "the embedding"}
"""Both distances in words."""


class MetricResult(ReportedResult):
    """What `brinell train metric --json` prints."""

    embedding: str
    """The file, for `--norm embedding:FILE`."""
    digest: str
    """Hash of it."""
    bytes: int
    data: str
    """Name of the data."""
    trained_on: int
    """Samples."""
    held_out: int
    """Samples by which all figures are measured."""
    seconds: float
    """Processor time of the training."""
    auc: dict[str, float | None]
    """pixels and embedding: how often a pair of one class is nearer than a pair of two; gain,
    low, high: of the second; low and high are null if the samples are too few or nearly all
    alike."""
    knn: dict[str, Share]
    """pixels and embedding: held-out samples for whose right class most of the nearest
    neighbours vote."""
    eps: dict[str, dict[str, float | None]]
    """pixels (L2) and embedding: median and percent_1 (1 % of the samples have less) over
    held-out samples of half the distance to the nearest training sample of another class, beyond
    which balls of two classes may meet; null without another class."""
    classes: list[str]
    """Names of the classes."""
    means: dict[str, list[list[float | None]]] = Field(repr=False)
    """pixels and embedding: mean distance between held-out samples, by class of the row and class
    of the column; null without a pair."""
    notes: tuple[str, ...]
    """Notes on the data."""

    def report(self) -> Report:
        """The lines of the terminal."""
        auc = self.auc
        interval = "no interval" if auc["low"] is None else f"{auc['low']:.4f} to {auc['high']:.4f}"

        return Report(
            verb="train metric",
            title="Learned distance",
            subject=f"{counted(self.bytes, 'byte')}, digest {self.digest}; trained on "
            f"{counted(self.trained_on, 'sample')} of "
            f"{self.data} in {seconds(self.seconds)}",
            sentences=[
                "A pair of one class is nearer than a pair of two in "
                f"{auc['embedding']:.4f} of all cases by {self.embedding}, "
                f"and in {auc['pixels']:.4f} by L2 between inputs: a gain of "
                f"{auc['gain']:.4f} ({interval}) on "
                f"{counted(self.held_out, 'held-out sample')}.",
                *(
                    nearness_sentence(SPACES[name], self.classes, means)
                    for name, means in self.means.items()
                ),
            ],
            blocks=[
                Table(
                    title="Both distances",
                    columns=("distance", "AUC", f"{NEIGHBOURS}-NN", "eps, median", "eps of 1 %"),
                    rows=[
                        (
                            name,
                            Measure(auc[name]),
                            votes,
                            self.eps[name]["median"],
                            self.eps[name]["percent_1"],
                        )
                        for name, votes in self.knn.items()
                    ],
                    text="eps: half the distance to another class.",
                    terminal=True,
                ),
                *(
                    class_distances(
                        SPACES[name],
                        self.classes,
                        means,
                        text="Between held-out samples.",
                        name=f"distances-{name}",
                    )
                    for name, means in self.means.items()
                ),
            ],
            notes=[Note("data", "warn", note) for note in self.notes],
            steps=[
                Step(
                    "Audit a model in this distance.",
                    f"brinell audit --norm embedding:{self.embedding} --eps 0.1 --attack apgd-ce",
                )
            ],
        )
