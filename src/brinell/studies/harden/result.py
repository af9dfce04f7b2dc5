"""Rows of a hardening, the audits before and after, paired by sample, what else changed, and the
report.

<model>-hardened.safetensors    the hardened weights, a state dict
checkpoints/last.safetensors    the state from which a training resumes
changes/answers.parquet         answers of both models under changes that the training did or did
                                not use
before/  after/                 the audits, each a run folder of `brinell audit`
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from brinell.analysis.compare import compare, paired, side, simultaneous
from brinell.analysis.folder_result import Result
from brinell.analysis.judgements import change, joint_interval
from brinell.analysis.results import (
    ClassComparison,
    CompareResult,
    ModelResult,
    PairedRate,
    Share,
)
from brinell.analysis.robust_accuracy import rate, share, summarise_model, with_classes
from brinell.analysis.statements import Statement
from brinell.core.numbers import seconds
from brinell.core.record import Array, Columns, column
from brinell.manifest import Amount, Count, DataFacts, Facts
from brinell.reports.numbers import counted, distance, percent, whole
from brinell.reports.statements import changes_sentence, class_sentence, losses_sentence, sentence
from brinell.reports.values import (
    Claimed,
    Code,
    Curve,
    Note,
    Percent,
    Points,
    PValue,
    Report,
    Series,
    Step,
    Table,
)
from brinell.store import parquet, rows
from brinell.store.table import ROWS, Folder
from brinell.studies.harden import HardenRequest
from brinell.studies.result import FolderResult

BEFORE, AFTER, CHANGES, CHECKPOINT = (
    "before",
    "after",
    "changes/answers.parquet",
    "checkpoints/last.safetensors",
)
STEPS, QUERIES, SEVERITY = 20, 50, 3
"""Steps of PGD, queries of RLAB after that of the clean input, and severity of the distortions,
among the changes of the inputs."""
LINES = {
    "clean": "clean inputs",
    "seen": "training attack, at the current budget",
    "pgd": "PGD, at the current budget",
    "robust": "PGD at the full budget, averaged weights",
}
"""Legend of the training curve, by column of `Checks`."""


@dataclass(frozen=True, kw_only=True)
class Checks(Columns):
    """The checks on validation samples during the training as columns, each a (checks,) array."""

    step: Array = column("int64", "updates of the weights so far")
    seconds: Array = column(
        "float64",
        "time of the training so far: of the processor on a CPU, wall time on a GPU",
        claimed=True,
    )
    recipe: Array = column("string", "the recipe in use")
    eps: Array = column("float64", "the training budget at this step, in input units")
    loss: Array = column(
        "float64", "loss of the preceding batch; null before the first step", null=True
    )
    samples: Array = column("int64", "validation samples evaluated")
    clean: Array = column("int64", "samples classified correctly")
    seen: Array = column("int64", "samples that the training attack leaves right")
    pgd: Array = column("int64", "samples that PGD leaves right at this eps")
    robust: Array = column(
        "int64", "samples that PGD leaves right at the full eps, with the averaged weights"
    )
    good: Array = column(
        "bool", "false if the check found overfitting to the attack, or a collapse"
    )
    forwards: Array = column(
        "int64", "forward evaluations of single inputs by the training so far, without the checks"
    )
    backwards: Array = column("int64", "backward evaluations, likewise")
    events: Array = column("string", "what happened at this check, a line for each event")


@dataclass(frozen=True, kw_only=True)
class ChangeRows(Columns):
    """Answers of both models to changed inputs as columns, each a (rows,) array."""

    change: Array = column(
        "string", "the change of the inputs: a distortion, or an attack in a norm"
    )
    seen: Array = column("bool", "true if the training used this change")
    sample_id: Array = column("int64", "position of the sample in the data")
    before: Array = column("bool", "true if the model before the training is right")
    after: Array = column("bool", "true if the hardened model is right")
    clean_before: Array = column("bool", "the same of the input without the change")
    clean_after: Array = column("bool", "the same of the hardened model")
    l2_before: Array = column("float64", "L2 distance of the change against the model before")
    l2_after: Array = column("float64", "L2 distance of the change against the hardened model")
    queries_before: Array = column(
        "float64",
        "queries of RLAB to the model before until the first success, all of them where there is "
        "none; null for other changes",
        null=True,
    )
    queries_after: Array = column("float64", "queries to the hardened model, likewise", null=True)


class HardenFacts(Facts):
    """Facts that the request leaves open."""

    eps: Amount
    """The training budget, in input units."""
    eps_text: str
    """The same as it was written."""
    train: DataFacts
    trained_on: Count
    validation: Count
    """Number of training samples set aside for validation."""
    weights: str
    spec: str | None
    """Model spec with these weights, for use in the folder; null for a model in memory."""


class Training(Result):
    """The end of the training; the folder holds all its checks as rows."""

    recipe: str
    """The recipe in use. It differs from that of the request after catastrophic overfitting."""
    steps: int
    seconds: float
    """Processor time on a CPU, wall time on a GPU."""
    forwards: int
    """Forward evaluations of single inputs, without those of the checks."""
    backwards: int


class Unseen(Result):
    """Both models under one change of the inputs, on the same samples."""

    name: str
    """The change: a distortion, or an attack in a norm."""
    seen: bool
    """True if the training used this change."""
    pair: PairedRate
    """After (A) and before (B) on all samples. The p-value is corrected for all changes (Holm), and
    the interval holds for all of them together: it has a confidence of 1 - 0.05 / changes, and
    reaches 0 where the p-value is above 0.05."""
    success_before: Share
    """Samples that the change makes wrong, of those that the model before gets right without it."""
    success_after: Share
    """The same of the hardened model."""
    queries_before: float | None
    """Mean queries to the model before, over the samples of `success_before`; one that was not
    fooled counts with all its queries. Null for a change that asks none."""
    queries_after: float | None
    """The same of the hardened model."""
    l2_before: float | None
    """Mean L2 distance of the successes against the model before; null for none."""
    l2_after: float | None
    """The same against the hardened model."""


class HardenResult(FolderResult):
    """What `brinell harden --json` prints."""

    claimed_names: ClassVar[frozenset[str]] = FolderResult.claimed_names | {"training", "events"}
    request: HardenRequest
    facts: HardenFacts
    events: list[str]
    """Events of the training that a reader should know, such as overfitting or an early stop."""
    training: Training
    unseen: list[Unseen] = Field(repr=False)
    """Accuracy under distortions and under attacks in both norms."""
    before: ModelResult
    after: ModelResult
    """The audits, in the form of `brinell audit --json`."""
    statements: list[Statement]
    """The change of accuracy at the budget that was trained for, and on clean inputs; corrected for
    clean inputs and all budgets."""
    generalisation: list[Statement]
    """The change of accuracy under each change of the inputs that the training did not use."""
    losses: list[Statement]
    """The change of accuracy on clean inputs of each class."""
    comparison: CompareResult
    """Model A is the hardened model and B the original: differences on the same samples, with
    McNemar's test."""

    @property
    def weights(self) -> str:
        """The hardened weights: a state dict in a safetensors file."""
        return str(Path(self.folder) / self.facts.weights)

    @property
    def spec(self) -> str | None:
        """The value of `model` that loads the hardened model; None if the model was passed in
        memory.
        """
        return spec_in(Path(self.folder), self.facts)

    def places(self) -> Iterator[str]:
        """The paths of files, and the name of the hardened model."""
        yield from super().places()
        yield f"weights: {self.weights}"
        if self.spec is not None:
            yield f"model: --model {shlex.quote(self.spec)}"

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        (model,) = self.names
        facts = self.facts
        train, texts = facts.train, self.after.eps_text
        training = self.training
        passes = (
            f"{whole(training.forwards)} forward and {whole(training.backwards)} "
            "backward evaluations of single inputs"
        )
        # The clean accuracy is one of the tests; budget 0 would repeat it.
        compared = [self.comparison.clean, *self.comparison.robust]
        pairs = [
            (text, jointly(pair, len(compared)))
            for text, pair in zip(("clean", *texts), compared, strict=True)
            if pair.eps > 0 or pair is self.comparison.clean
        ]

        return Report(
            verb="harden",
            title=f"{model}, hardened by {self.training.recipe}",
            subject=f"trained for {distance(self.request.norm)} {facts.eps_text} on "
            f"{counted(facts.trained_on, 'sample')} of "
            f"{train.name}; audited on {counted(self.comparison.n, 'sample')} of {self.data}",
            sentences=sentences(self),
            steps=[
                Step(
                    "Have the figures made again before you pass them on.", "brinell verify FOLDER"
                )
            ],
            blocks=[
                Curve(
                    title="Robust accuracy over eps, before and after",
                    series=[
                        Series(
                            name=name,
                            points=[
                                *([(0.0, audit.clean_accuracy)] if audit.eps[0] else []),
                                *((rate.eps, rate) for rate in audit.robust_accuracy),
                            ],
                        )
                        for name, audit in ((BEFORE, self.before), (AFTER, self.after))
                    ],
                    ticks=list(zip(self.after.eps, texts, strict=True)),
                    axis=f"budget eps ({distance(self.request.norm)})",
                ),
                Table(
                    title="Before and after",
                    columns=(
                        "eps",
                        "before",
                        "after",
                        "difference, points",
                        "lost",
                        "won",
                        "p, corrected",
                    ),
                    rows=[
                        (text, *_values(pair), pair.only_b, pair.only_a, PValue(pair.p))
                        for text, pair in pairs
                    ],
                    text=f"Before: {self.before.verdict} After: {self.after.verdict} "
                    "Lost samples are right before the training "
                    "only, won ones after it only. P-values are by exchanges of both models' "
                    "answers, corrected for all rows together (Westfall & Young), and the intervals "
                    "of the differences hold together.",
                    name="comparison",
                    terminal=True,
                ),
                Table(
                    title="Generalisation",
                    columns=(
                        "change",
                        "trained on",
                        "before",
                        "after",
                        "difference, points",
                        "p, corrected",
                    ),
                    rows=[
                        (row.name, row.seen, *_values(row.pair), PValue(row.pair.p))
                        for row in self.unseen
                    ],
                    text="Accuracy on the same samples: every applicable distortion "
                    f"at severity {SEVERITY} of 5, PGD in both norms, at budgets of about the same "
                    "difficulty, and RLAB in L2 at twice that of PGD. "
                    "P-values are McNemar's, corrected for the number of rows (Holm), and the "
                    "intervals of the differences hold for all rows together.",
                    name="unseen",
                ),
                Table(
                    title="Attacks, before and after",
                    columns=(
                        "attack",
                        "trained on",
                        "success, before",
                        "success, after",
                        "mean queries, before",
                        "mean queries, after",
                        "mean L2, before",
                        "mean L2, after",
                    ),
                    rows=[
                        (
                            row.name,
                            row.seen,
                            row.success_before,
                            row.success_after,
                            row.queries_before,
                            row.queries_after,
                            row.l2_before,
                            row.l2_after,
                        )
                        for row in self.unseen
                    ],
                    text="Success is of the samples that each model gets right without the attack. "
                    "Queries are until the first success, that of the clean input included; a "
                    f"sample without one counts with all {QUERIES + 1}. L2 is of the successes.",
                    name="attacks",
                    terminal=True,
                ),
                Table(
                    title="Costs by class",
                    columns=(
                        "class",
                        "samples",
                        "clean, before",
                        "clean, after",
                        "robust, before",
                        "robust, after",
                    ),
                    rows=[
                        (
                            before.name,
                            before.n,
                            before.clean,
                            after.clean,
                            before.robust[-1],
                            after.robust[-1],
                        )
                        for before, after in zip(
                            self.before.per_class, self.after.per_class, strict=True
                        )
                    ],
                    text=f"Accuracy of each class on clean inputs and under attack at {texts[-1]}.",
                    name="per_class",
                    folded=True,
                ),
                _training(parquet.load_rows(Checks, Path(self.folder) / ROWS)),
            ],
            notes=[
                *(Note("training", "warn", f"{event} †") for event in self.events),
                *(Note("weaker-audit", "warn", text) for text in weaker_audit(self)),
                *(Note("comparison", "note", text) for text in self.comparison.notes),
            ],
            provenance=[
                (
                    "training",
                    Claimed(
                        f"{counted(training.steps, 'step')} in "
                        f"{seconds(training.seconds)}: {passes}"
                    ),
                ),
                ("hardened weights", facts.weights),
                *([("model, in this folder", Code(facts.spec))] if facts.spec else []),
                (
                    "training data",
                    f"{train.spec}, {whole(facts.validation)} of its "
                    f"{counted(train.n, 'sample')} for validation",
                ),
                ("digest of the training data", Code(train.digest)),
            ],
        )


def jointly(pair: PairedRate, family: int) -> PairedRate:
    """A pair with the p-value and the interval that are corrected for all budgets."""
    p = pair.p if pair.p_joint is None else pair.p_joint
    low, high = joint_interval(pair, p, family)
    return pair.model_copy(update={"p": p, "low": low, "high": high})


def _values(pair: PairedRate) -> tuple[Percent, Percent, Points]:
    """The rates before (B) and after (A) the training, and after less before."""
    return (
        Percent(pair.value_b),
        Percent(pair.value_a),
        Points(pair.difference, pair.low, pair.high),
    )


def _training(checks: Checks) -> Curve:
    """The curve of the checks: the shares of validation samples of each kind that are right."""
    steps = list(map(float, checks.step.tolist()))
    samples = checks.samples.tolist()
    return Curve(
        title="Accuracy on validation samples over the training †",
        series=[
            Series(
                name=text,
                points=list(zip(steps, map(rate, right.tolist(), samples), strict=True)),
                band=name == "robust",
            )
            for name, text in LINES.items()
            for right in [getattr(checks, name)]
        ],
        ticks=[(step, f"{step:.0f}") for step in steps],
        axis="step",
    )


def summarise(folder: Folder[Checks]) -> HardenResult:
    """Figures of a folder from its rows and its audits."""
    checks = folder.rows
    # Each audit is of one model, which need not be named.
    before = side(folder.path / BEFORE, model=None)
    after = side(folder.path / AFTER, model=None)
    last = {
        name: getattr(checks, name)[-1] for name in ("recipe", "seconds", "forwards", "backwards")
    }

    comparison = compare(after, before)
    hardened = summarise_model(after.manifest, after.records, after.run, after.model)
    eps = _trained_pair(comparison, folder.facts).eps
    unseen = unseen_of(parquet.load_rows(ChangeRows, folder.path / CHANGES))

    return HardenResult(
        **folder.head(),
        statements=statements_of(comparison, folder.facts, folder.request.norm),
        events=[event for text in checks.events for event in text.splitlines()],
        training=Training(steps=checks.step[-1], **last),
        unseen=unseen,
        generalisation=unseen_statements(unseen),
        before=summarise_model(before.manifest, before.records, before.run, before.model),
        after=with_classes(hardened, hardened.eps.index(eps)),
        losses=class_losses(comparison.per_class),
        comparison=comparison,
    )


def spec_in(folder: Path, facts: HardenFacts) -> str | None:
    """The spec that loads the hardened model from outside its folder."""
    # The folder writes its weights without a path, and may have been moved.
    name = f"weights={facts.weights}"
    return (
        None
        if facts.spec is None
        else facts.spec.replace(name, f"weights={folder / facts.weights}", 1)
    )


def unseen_of(answers: ChangeRows) -> list[Unseen]:
    """Both models under each change, with p-values corrected over all changes."""
    parts = [rows.take(answers, answers.change == name) for name in dict.fromkeys(answers.change)]
    # The budget of a change is part of its name.
    pairs = simultaneous([paired(part.after, part.before, eps=0.0) for part in parts])
    return [
        Unseen(
            name=part.change[0],
            seen=bool(part.seen[0]),
            pair=pair,
            **_attack(part, BEFORE),
            **_attack(part, AFTER),
        )
        for part, pair in zip(parts, pairs, strict=True)
    ]


def _attack(answers: ChangeRows, model: str) -> dict[str, Any]:
    """The fields of `Unseen` on one of the models, `before` or `after`, under one change."""
    clean = getattr(answers, f"clean_{model}")
    fooled = clean & ~getattr(answers, model)
    return {
        f"success_{model}": share(fooled[clean].tolist()),
        # A sample that was not fooled counts too, with all its queries.
        f"queries_{model}": _mean(getattr(answers, f"queries_{model}")[clean]),
        f"l2_{model}": _mean(getattr(answers, f"l2_{model}")[fooled]),
    }


def _mean(values: Array) -> float | None:
    """The mean of values that are not null; None without any."""
    return float(values.mean()) if np.ma.count(values) else None


def rlab_name(eps: str) -> str:
    """Name of the change by RLAB."""
    return f"RLAB, {QUERIES} queries, {distance('l2')} {eps}"


def pgd_name(norm: str, eps: str) -> str:
    """Name of the change by PGD."""
    return f"PGD, {STEPS} steps, {distance(norm)} {eps}"


def sentences(result: HardenResult) -> list[str]:
    """The gain at the training budget, its cost in clean accuracy, its generalisation, and the
    losses by class.
    """
    classes = class_sentence(result.after.statements)
    texts = [
        *map(sentence, result.statements),
        changes_sentence(result.generalisation) if result.generalisation else "",
        losses_sentence(result.losses) if result.losses else "",
        f"After the training, {classes[0].lower()}{classes[1:]}",
    ]
    return [text for text in texts if text]


def statements_of(comparison: CompareResult, facts: HardenFacts, norm: str) -> list[Statement]:
    """The change at the budget that was trained for, and on clean inputs."""
    family = 1 + len(comparison.robust)
    trained = _trained_pair(comparison, facts)
    clean = comparison.clean
    quantity = f"robust accuracy ({distance(norm)})"
    return [
        change(trained, quantity, facts.eps_text, family=family, p=trained.p_joint),
        change(clean, "accuracy on clean inputs", family=family, p=clean.p_joint),
    ]


def _trained_pair(comparison: CompareResult, facts: HardenFacts) -> PairedRate:
    """The pair at the budget that was trained for, or at the nearest that both models have."""
    return min(comparison.robust, key=lambda rate: abs(rate.eps - facts.eps))


def weaker_audit(result: HardenResult) -> Iterator[str]:
    """A warning if PGD alone finds a lower robust accuracy than the audit on the same samples."""
    pair = _trained_pair(result.comparison, result.facts)
    name = pgd_name(result.request.norm, result.facts.eps_text)
    for row in result.unseen:
        same = row.name == name and row.pair.n == pair.n and pair.eps == result.facts.eps
        if same and row.pair.value_a < pair.value_a - 1e-9:
            yield (
                f"PGD with {STEPS} steps leaves {percent(row.pair.value_a)} at "
                f"{result.facts.eps_text}, less than the attacks of "
                "the audit. The robust accuracy is at most that: audit the model "
                "with stronger attacks."
            )


def unseen_statements(changes: Sequence[Unseen]) -> list[Statement]:
    """How accuracy changed under each change outside the training, corrected for all changes."""
    return [
        change(row.pair, row.name, family=len(changes), p=row.pair.p)
        for row in changes
        if not row.seen
    ]


def class_losses(per_class: Sequence[ClassComparison]) -> list[Statement]:
    """How the accuracy on clean inputs changed in each class, corrected for all of them."""
    return [
        change(entry.clean, entry.label, family=len(per_class), p=entry.p_clean)
        for entry in per_class
    ]
