"""Rows of the samples of a benchmark set, the figures that are counted from them, and the report."""

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.core.data import Task
from brinell.core.domain import Domain
from brinell.core.record import Array
from brinell.manifest import Amount, Count, Facts, Listing
from brinell.reports import values
from brinell.reports.numbers import counted, short
from brinell.reports.values import Code, Percent, Report, Step, Table
from brinell.store import parquet
from brinell.store.files import write_text
from brinell.store.table import Folder
from brinell.studies.benchmark import BenchmarkRequest
from brinell.studies.benchmark.card import CARD, card
from brinell.studies.benchmark.rows import Form, Outcome, Samples
from brinell.studies.result import FolderResult


class BenchmarkFacts(Facts):
    """Facts that the request leaves open."""

    levels: Listing[Amount]
    """Multiples of the L2 distance of the adversarial example."""
    criterion: str
    """The criterion of an adversarial input, as a clause."""
    task: Task | None = None
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
    """All forwards of the model, with those that recognise the kind of its answers."""
    median_queries_to_success: float | None
    """Median forwards until the first adversarial example, over the samples that have one."""
    median_l2: float | None
    """Median L2 distance of the adversarial examples."""
    median_patches: float | None
    """Median number of distorted patches of the adversarial examples."""
    levels: tuple[LevelResult, ...]
    """All levels, clean inputs first."""

    def report(self) -> Report:
        """The report of the page, the terminal, the data card and the CSV files."""
        facts, (model,), successes = self.facts, self.models, self.outcomes[Outcome.REACHED]
        outcomes = [
            (name.replace("_", " "), count) for name, count in self.outcomes.items() if count
        ]
        sentences = [
            f"{successes} of {counted(self.samples, 'sample')} have an input at "
            f"which {facts.criterion}."
        ]
        if successes:
            sentences.append(
                "In the median it lies at an L2 distance of "
                f"{short(self.median_l2)} with {short(self.median_patches)} "
                "distorted "
                f"patches, and took {short(self.median_queries_to_success)} queries to find."
            )
        sentences.append(
            f"The search took {self.queries:,} queries; the training of its "
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
                            one.level,
                            one.inputs,
                            one.unreached,
                            Percent(one.accuracy),
                            Percent(one.adversarial),
                            one.median_l2,
                        )
                        for one in self.levels
                    ],
                    text="A level is a multiple of the L2 distance of the adversarial "
                    "example; 0 is the clean input. Accuracy is "
                    f"the share of {NOUNS[facts.task]} that {model} gets right.",
                    name="levels",
                    terminal=True,
                ),
                Table(
                    title="Samples", columns=("outcome", "samples"), rows=outcomes, name="outcomes"
                ),
                values.Facts(
                    title="Method",
                    facts=[
                        ("attack", "RLAB (arXiv 2310.18626 and 2403.18985)"),
                        ("distortions", Code(self.request.distortions)),
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


NOUNS = {None: "inputs", "segmentation": "pixels", "detection": "objects"}
"""What is right or wrong, by task."""


def summarise(folder: Folder[Samples]) -> BenchmarkResult:
    """Figures of a folder from its rows and its tables in data/."""
    samples, facts = folder.rows, folder.facts
    outcomes = samples.outcome.tolist()
    probes = sum(probe["forwards"] for probe in folder.manifest.get("probes", {}).values())
    names = ["level", "reached", "valid", "wrong", "adversarial", "l2"]
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
        outcomes={outcome: outcomes.count(outcome) for outcome in map(str, Outcome)},
        # The plan looks at one map or at the boxes of one picture.
        queries=int(samples.queries.sum()) + probes + (facts.task is not None),
        median_queries_to_success=_median(samples.queries_to_success),
        median_l2=_median(samples.l2),
        median_patches=_median(samples.patch_count),
        levels=tuple(_level(rows, level) for level in (0.0, *facts.levels)),
    )


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
