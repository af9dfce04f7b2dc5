"""Rows of the samples of a benchmark set, the figures that are counted from them, and
the report.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.results import Share
from brinell.analysis.robust_accuracy import class_name, share
from brinell.core.data import DenseTask
from brinell.core.domain import Domain
from brinell.core.record import Array
from brinell.manifest import Amount, Count, Facts, Listing
from brinell.reports import values
from brinell.reports.numbers import counted, detail_text, percent, short
from brinell.reports.values import Code, Percent, Report, Step, Table
from brinell.store import parquet
from brinell.store.files import write_text
from brinell.store.table import ROWS, Folder
from brinell.studies.benchmark import BenchmarkRequest
from brinell.studies.benchmark.card import CARD, card
from brinell.studies.benchmark.gallery import galleries
from brinell.studies.benchmark.rows import BenchmarkRows, Form, SearchOutcome
from brinell.studies.result import FolderResult

DEVIATION = 0.226
"""Standard deviation of the values of ImageNet's photographs in [0, 1], the mean of its channels
(0.229, 0.224 and 0.225), by which the code of RLAB's papers divides."""
PHOTOGRAPH = 200
"""Least side of a photograph in pixels."""


class BenchmarkFacts(Facts):
    """Facts that the request leaves open."""

    levels: Listing[Amount]
    """Multiples of the L2 distance of the adversarial example."""
    criterion: str
    """The criterion of an adversarial input, as a clause."""
    task: DenseTask | None = None
    """Kind of the truth, masks or boxes; null for one class for each input."""
    patches: str
    """Patches along each axis, and their size."""
    policy: str
    """The policy of the agent, and the reason for choosing it."""
    training_queries: Count
    """Forwards of the policy's training."""


class LevelResult(Result):
    """Figures of a benchmark set at one level."""

    level: float
    """Multiple of the L2 distance of the adversarial example, which is 1; 0 is the clean input."""
    inputs: int
    """The number of inputs in the set."""
    unreached: int
    """Samples for which the bounds of the data do not allow this multiple."""
    accuracy: float | None
    """Share of the inputs that the model classifies correctly, or of the pixels or objects in
    them that it gets right; null without inputs."""
    adversarial: float | None
    """Share of the inputs that meet the criterion."""
    median_l2: float | None
    """Median L2 distance from the clean input."""


class Size(Result):
    """A quantity of the adversarial examples."""

    name: str
    """L2, Linf, queries until the first adversarial example, or distorted patches."""
    mean: float
    median: float
    largest: float


class DistortionShare(Result):
    """Share of a distortion in the distorted patches of the adversarial examples."""

    of_class: str | None
    """Name of the class; null for all of them."""
    distortion: str
    patches: Share
    """Patches with this distortion among all distorted ones."""
    energy: float | None
    """Share of these patches in the squared L2 of all distorted ones; null if nothing changed."""


class BenchmarkResult(FolderResult):
    """The result of `brinell benchmark`."""

    beside = (CARD,)

    request: BenchmarkRequest
    facts: BenchmarkFacts
    samples: int
    """The number of samples."""
    outcomes: dict[str, int]
    """Samples by outcome: reached, not_reached, misclassified, already, own_class."""
    queries: int
    """All forwards of the model, with those of the checks before the search."""
    median_queries_to_success: float | None
    """Median forwards until the first adversarial example, over the samples that have one."""
    median_l2: float | None
    """Median L2 distance of the adversarial examples."""
    median_patches: float | None
    """Median number of distorted patches of the adversarial examples."""
    success: Share
    """Samples with an adversarial example among those that the agent distorted: the model gets
    them right, and the clean input does not meet the criterion."""
    sizes: list[Size]
    """Distances, queries and patches of the adversarial examples."""
    distortions: list[DistortionShare]
    """Share of each distortion in the adversarial examples, of all classes and by class."""
    levels: tuple[LevelResult, ...]
    """All levels, clean inputs first."""

    def report(self) -> Report:
        """The report of the page, the terminal, the data card and the CSV files."""
        facts = self.facts
        (model,) = self.names
        successes = self.outcomes[SearchOutcome.REACHED]
        outcomes = [
            (name.replace("_", " "), count) for name, count in self.outcomes.items() if count
        ]

        # Samples that the agent never got say nothing of its search, and are in no share.
        left_out = self.samples - self.success.n
        sentences = ["The agent had no sample to distort."]
        if self.success.n:
            sentences = [
                f"{successes} of the {counted(self.success.n, 'sample')} that the agent distorted "
                f"have an input at which {facts.criterion}: {percent(self.success.value)} "
                f"({detail_text(self.success)})."
            ]

        if left_out:
            sentences.append(
                f"{counted(left_out, 'further sample')} {'is' if left_out == 1 else 'are'} in no "
                "figure: there the model is wrong without a distortion, or the criterion is met."
            )
        if successes:
            sentences.append(
                "In the median it lies at an L2 distance of "
                f"{short(self.median_l2)} with {short(self.median_patches)} "
                "distorted "
                f"patches, and took {short(self.median_queries_to_success)} queries to find."
            )
        sentences.append(
            f"Search and checks took {self.queries:,} queries; the training of the "
            f"policy took {facts.training_queries:,}."
        )

        return Report(
            verb="benchmark",
            title=f"{self.data} against {model}, distorted by RLAB",
            subject=f"{self.data}, {counted(self.samples, 'sample')}; {model}",
            sentences=sentences,
            blocks=[
                Table(
                    title="By level",
                    columns=(
                        "level",
                        "inputs",
                        "out of bounds",
                        "accuracy",
                        "adversarial",
                        "median L2",
                    ),
                    rows=[
                        (
                            entry.level,
                            entry.inputs,
                            entry.unreached,
                            Percent(entry.accuracy),
                            Percent(entry.adversarial),
                            entry.median_l2,
                        )
                        for entry in self.levels
                    ],
                    text="A level is a multiple of the L2 distance of the adversarial "
                    "example; 0 is the clean input. Accuracy is "
                    f"the share of {NOUNS[facts.task]} that {model} gets right.",
                    name="levels",
                    terminal=True,
                ),
                *_example_tables(self),
                *galleries(
                    Path(self.folder),
                    self.manifest,
                    parquet.load_rows(BenchmarkRows, Path(self.folder) / ROWS),
                    NOUNS[facts.task],
                ),
                Table(
                    title="Samples",
                    columns=("outcome", "samples"),
                    rows=outcomes,
                    name="outcomes",
                ),
                values.Facts(
                    title="Method",
                    facts=[
                        ("attack", "RLAB (arXiv 2310.18626 and 2403.18985)"),
                        ("distortions", Code(_placed(self))),
                        ("patches", facts.patches),
                        ("policy", facts.policy),
                        ("largest L2 distance", self.request.eps or "any"),
                    ],
                ),
            ],
            steps=[
                Step(
                    "Audit another model on the set.",
                    "brinell audit --data bench:FOLDER --model MODEL",
                )
            ]
            * bool(successes),
        )

    def write(self) -> Path:
        """Write the page, its tables and the data card into the folder."""
        form = Form(
            Domain.from_json(self.manifest["data"]["domain"]), self.classes, self.facts.task
        )
        write_text(Path(self.folder) / CARD, card(self.report(), form))
        return super().write()


def _example_tables(result: BenchmarkResult) -> Iterator[Table]:
    """Distances and costs of the adversarial examples, and the share of each distortion in them."""
    if not result.sizes:
        return

    yield Table(
        title="The adversarial examples",
        columns=("measure", "mean", "median", "largest"),
        rows=[(size.name, size.mean, size.median, size.largest) for size in result.sizes],
        text=f"Over the {counted(result.success.k, 'adversarial example')}; distances are in the "
        f"units of the data.{beside_papers(result.manifest['data']['domain'], result.sizes[0])}",
        name="examples",
        terminal=True,
    )
    # A share is of a mixture: of one distortion it is all.
    if "+" not in result.request.distortions:
        return
    rows = [
        (share.of_class or "all", share.distortion, share.patches, Percent(share.energy))
        for share in result.distortions
    ]
    yield Table(
        title="Share of each distortion",
        columns=("class", "distortion", "of the distorted patches", "of the squared L2"),
        rows=rows,
        text="Distorted patches of the adversarial examples by their distortion, and the squared "
        "L2 distance within them.",
        name="distortions",
        folded=len(rows) > 12,
        terminal=True,
    )


def beside_papers(domain: Mapping[str, Any], l2: Size) -> str:
    """A sentence that puts the L2 of photographs beside that of RLAB's papers, in the same units;
    empty for other inputs.
    """
    channels, *sides = domain["shape"]
    bounds = {*np.ravel(domain["low"]).tolist(), *np.ravel(domain["high"]).tolist()}
    is_photograph = domain["kind"] == "image" and channels == 3 and min(sides) >= PHOTOGRAPH
    if not is_photograph or bounds != {0.0, 1.0}:
        return ""

    figures = ", ".join(
        f"{name} {short(value / DEVIATION)}"
        for name, value in (("mean", l2.mean), ("median", l2.median), ("largest", l2.largest))
    )
    return (
        f" In units of ImageNet's deviation, {DEVIATION} on average over the channels, the L2 is: "
        f"{figures}. The papers report a mean of 2.48 and a largest of 4.74 on ImageNet; their "
        "released code measures in these units, and they do not name any."
    )


NOUNS = {None: "inputs", "segmentation": "pixels", "detection": "objects"}
"""What is right or wrong, by task."""


def summarise(folder: Folder[BenchmarkRows]) -> BenchmarkResult:
    """Figures of a folder from its rows and its tables in data/."""
    samples, facts = folder.rows, folder.facts
    outcomes = samples.outcome.tolist()
    probes = sum(probe["forwards"] for probe in folder.manifest.get("probes", {}).values())

    # Only what the figures need is read: the inputs are most of the file.
    names = [
        "level",
        "reached",
        "valid",
        "wrong",
        "adversarial",
        "l2",
        "linf",
        "label",
        "patches",
    ]
    tables = [
        parquet.read_table(file, names) for file in sorted((folder.path / "data").glob("*.parquet"))
    ]
    rows = {
        name: np.array(
            [value for table in tables for value in table[name].to_pylist()], dtype=object
        )
        for name in names
    }

    return BenchmarkResult(
        **folder.head(),
        samples=len(samples),
        outcomes={outcome: outcomes.count(outcome) for outcome in map(str, SearchOutcome)},
        # The plan looks at one map or at the boxes of one picture.
        queries=int(samples.queries.sum()) + probes + (facts.task is not None),
        median_queries_to_success=_median(samples.queries_to_success),
        median_l2=_median(samples.l2),
        median_patches=_median(samples.patch_count),
        levels=tuple(_level(rows, level) for level in (0.0, *facts.levels)),
        success=share(
            outcome == SearchOutcome.REACHED
            for outcome in outcomes
            if outcome in (SearchOutcome.REACHED, SearchOutcome.NOT_REACHED)
        ),
        sizes=_sizes(samples, rows),
        distortions=_distortions(rows, folder.head()["classes"]),
    )


def _sizes(samples: BenchmarkRows, rows: dict[str, Array]) -> list[Size]:
    """Quantities of the adversarial examples; none without one."""
    values = {
        "L2": np.ma.compressed(samples.l2),
        "Linf": rows["linf"][_examples(rows)].astype(float),
        "queries": np.ma.compressed(samples.queries_to_success),
        "patches": np.ma.compressed(samples.patch_count),
    }

    return [
        Size(
            name=name,
            mean=float(column.mean()),
            median=float(np.median(column)),
            largest=float(column.max()),
        )
        for name, column in values.items()
        if len(column)
    ]


def _placed(result: BenchmarkResult) -> str:
    """The distortions that were placed, where none was named those that stand on patches."""
    if result.request.distortions != "default":
        return result.request.distortions
    return "+".join(dict.fromkeys(share.distortion for share in result.distortions)) or "default"


def _distortions(rows: dict[str, Array], classes: Sequence[str]) -> list[DistortionShare]:
    """The share of each distortion, of all classes first."""
    # By class, with the patches of all classes under None.
    patches: dict[int | None, list[dict[str, Any]]] = {None: []}
    for row in np.flatnonzero(_examples(rows)):
        patches[None] += rows["patches"][row]
        if rows["label"][row] is not None:
            patches.setdefault(int(rows["label"][row]), []).extend(rows["patches"][row])

    names = sorted({patch["distortion"] for patch in patches[None]})
    labels = sorted(label for label in patches if label is not None)
    return [
        DistortionShare(
            of_class=None if label is None else class_name(classes, label),
            distortion=name,
            patches=share(patch["distortion"] == name for patch in patches[label]),
            energy=_energy(patches[label], name),
        )
        for label in (None, *labels)
        for name in names
    ]


def _energy(patches: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Share of a distortion in the squared L2 of patches; None if nothing changed."""
    total = sum(patch["energy"] for patch in patches)
    energy = sum(patch["energy"] for patch in patches if patch["distortion"] == name)
    return energy / total if total else None


def _examples(rows: dict[str, Array]) -> Array:
    """(rows,) bool: the adversarial examples, which are level 1."""
    # Columns hold objects, of which a comparison makes flags and a bare name does not.
    return np.asarray((rows["level"] == 1) & (rows["reached"] == True))  # noqa: E712


def _median(values: Any) -> float | None:
    """The median of a column without its nulls; None if all are null."""
    numbers = np.ma.compressed(values).tolist()
    return float(median(numbers)) if numbers else None


def _level(rows: dict[str, Array], level: float) -> LevelResult:
    """Figures of one level."""
    at_level = rows["level"] == level
    inputs = {name: values[at_level & (rows["reached"] == True)] for name, values in rows.items()}  # noqa: E712
    count = len(inputs["level"])
    valid = int(inputs["valid"].sum())
    return LevelResult(
        level=level,
        inputs=count,
        unreached=int(at_level.sum()) - count,
        accuracy=1 - int(inputs["wrong"].sum()) / valid if valid else None,
        adversarial=int(inputs["adversarial"].sum()) / count if count else None,
        median_l2=float(median(inputs["l2"])) if count else None,
    )
