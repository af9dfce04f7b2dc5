"""Rows of a hardening, the audits before and after, paired by sample, what else changed, and the report.

<model>-hardened.safetensors    the hardened weights, a state dict
checkpoints/last.safetensors    the state from which a training resumes
changes/answers.parquet         answers of both models under changes that the training did or did not use
before/  after/                 the audits, each a run folder of `brinell audit`
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from brinell.analysis.compare import compare, paired, side
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import holm, significant
from brinell.analysis.proportions import mcnemar
from brinell.analysis.results import ClassComparison, CompareResult, ModelResult, PairedRate, Rate, Share
from brinell.analysis.robust_accuracy import minus, share, summarise_model
from brinell.core.record import Array, column
from brinell.manifest import Amount, Count, DataFacts, Facts
from brinell.reports.numbers import counted, distance, listed, percent, points, seconds, whole
from brinell.reports.phrases import class_label, weakest_classes
from brinell.reports.values import Code, Curve, Link, Note, Percent, Points, PValue, Report, Seconds, Series, Table
from brinell.store import parquet, rows
from brinell.studies.harden import HardenRequest
from brinell.studies.result import Folder, FolderResult

BEFORE, AFTER, CHANGES, CHECKPOINT = "before", "after", "changes/answers.parquet", "checkpoints/last.safetensors"
STEPS, SEVERITY = 20, 3
"""Steps of PGD, and severity of the distortions, among the changes of the inputs."""
MAX_NAMED = 4
"""Most changes or classes that a sentence names."""
LINES = {
    "clean": "clean inputs",
    "seen": "training attack, at the current budget",
    "pgd": "PGD, at the current budget",
    "robust": "PGD at the full budget, averaged weights",
}
"""Legend of the training curve, by field of `Check`."""
NUMBERS = ("step", "seconds", "eps", "loss", "good", "forwards", "backwards")
"""Its other fields but the recipe."""


@dataclass(frozen=True, kw_only=True)
class Checks:
    """The checks on validation samples during the training as columns, each a (checks,) array."""

    step: Array = column("int64", "updates of the weights so far")
    seconds: Array = column("float64", "time of the training so far")
    recipe: Array = column("string", "the recipe in use")
    eps: Array = column("float64", "the training budget at this step, in input units")
    loss: Array = column("float64", "loss of the preceding batch; null before the first step", null=True)
    samples: Array = column("int64", "validation samples evaluated")
    clean: Array = column("int64", "samples classified correctly")
    seen: Array = column("int64", "samples that the training attack leaves right")
    pgd: Array = column("int64", "samples that PGD leaves right at this eps")
    robust: Array = column("int64", "samples that PGD leaves right at the full eps, with the averaged weights")
    good: Array = column("bool", "false if the check found overfitting to the attack, or a collapse")
    forwards: Array = column("int64", "forward evaluations of single inputs by the training so far, without the checks")
    backwards: Array = column("int64", "backward evaluations, likewise")
    events: Array = column("string", "what happened at this check, a line for each event")

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers of both models to changed inputs as columns, each a (rows,) array."""

    change: Array = column("string", "the change of the inputs: a distortion, or an attack in a norm")
    distortion: Array = column("string", "name of the distortion; empty for an attack")
    seen: Array = column("bool", "true if the training used this change")
    sample_id: Array = column("int64", "position of the sample in the data")
    before: Array = column("bool", "true if the model before the training is right")
    after: Array = column("bool", "true if the hardened model is right")

    def __len__(self) -> int:
        return len(self.sample_id)


class HardenFacts(Facts):
    """Facts that the request leaves open."""

    eps: Amount
    """The training budget, in input units."""
    eps_text: str
    """The same as it was written."""
    train: DataFacts
    """The data of the training."""
    trained_on: Count
    """Number of training samples."""
    validation: Count
    """Number of training samples set aside for validation."""
    weights: str
    """File name of the hardened weights."""
    spec: str | None
    """Model spec with these weights, for use in the folder; null for a model in memory."""


class Check(Result):
    """One check of the network on validation samples during training, as the columns of the rows say; counts are shares."""

    step: int
    seconds: float
    """Time of the training so far: processor time on a CPU, wall time on a GPU."""
    recipe: str
    """The recipe in use. It differs from that of the request after catastrophic overfitting."""
    forwards: int
    backwards: int
    eps: float
    loss: float | None
    clean: Share
    seen: Share
    pgd: Share
    robust: Share
    """The final weights maximise this rate."""
    good: bool


class Unseen(Result):
    """Accuracy of both models under one change of the inputs, on the same samples."""

    name: str
    """The change: a distortion, or an attack in a norm."""
    distortion: str | None
    """Public name of the distortion; null for an attack."""
    seen: bool
    """True if the training used this change."""
    before: Share
    after: Share
    pair: PairedRate
    """After (A) minus before (B)."""
    p: float
    """The p-value of `pair` with Holm's correction over all changes."""


class HardenResult(FolderResult):
    """What `brinell harden --json` prints."""

    words: ClassVar[frozenset[str]] = FolderResult.words | {"curve", "events"}
    request: HardenRequest
    facts: HardenFacts
    weights: str
    """The hardened weights: a state dict in a safetensors file."""
    spec: str | None
    """The value of --model that loads the hardened model; null if the model was passed in memory."""
    events: list[str]
    """Events of the training that a reader should know, such as overfitting or an early stop."""
    curve: list[Check] = Field(repr=False)
    """The checks, in order of their steps."""
    unseen: list[Unseen] = Field(repr=False)
    """Accuracy under distortions and under attacks in both norms."""
    before: ModelResult
    after: ModelResult
    """The audits, in the form of `brinell audit --json`."""
    comparison: CompareResult
    """Model A is the hardened model and B the original: differences on the same samples, with McNemar's test."""

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The report as a terminal shows it, and how to name the hardened model."""
        yield from super().lines(verbose=verbose)
        yield f"weights: {self.weights}"
        if self.spec is not None:
            yield f"model: --model {shlex.quote(self.spec)}"

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        (model,), facts, train = self.models, self.facts, self.facts.train
        return Report(
            verb="harden",
            title=f"{model}, hardened by {self.curve[-1].recipe}",
            subject=f"trained for {distance(self.request.norm)} {facts.eps_text} on {counted(facts.trained_on, 'sample')} of "
            f"{train.name}; audited on {counted(self.comparison.n, 'sample')} of {self.data}",
            sentences=sentences(self),
            blocks=[
                Curve(
                    title="Robust accuracy over eps, before and after",
                    series=[
                        Series(name=name, points=[(rate.eps, rate) for rate in _rates(model)])
                        for name, model in ((BEFORE, self.before), (AFTER, self.after))
                    ],
                    ticks=list(zip(self.after.eps, self.after.eps_text, strict=True)),
                    axis=f"budget eps ({distance(self.request.norm)})",
                ),
                _comparison(self),
                _generalisation(self.unseen),
                _classes(self),
                *_training(self),
            ],
            notes=[
                *(Note("training", "warn", event) for event in self.events),
                *(Note("weaker-audit", "warn", text) for text in weaker_audit(self)),
                *(Note("comparison", "note", text) for text in self.comparison.notes),
            ],
            links=[Link("the audit before", f"{BEFORE}/report.html"), Link("the audit after", f"{AFTER}/report.html")],
            provenance=[
                ("hardened weights", facts.weights),
                *([("model, in this folder", Code(facts.spec))] if facts.spec else []),
                ("training data", f"{train.spec}, {whole(facts.validation)} of its {counted(train.n, 'sample')} for validation"),
                ("digest of the training data", Code(train.digest)),
            ],
        )


def _rates(model: ModelResult) -> list[Rate]:
    """Rates over the budgets, from the clean accuracy."""
    rates = model.robust_accuracy
    return rates if rates and rates[0].eps == 0 else [model.clean_accuracy, *rates]


def _comparison(result: HardenResult) -> Table:
    texts = dict(zip(result.after.eps, result.after.eps_text, strict=True))
    pairs = [("clean", result.comparison.clean)]
    pairs += [(texts[pair.eps], pair) for pair in result.comparison.robust if pair.eps > 0]
    return Table(
        title="Before and after",
        columns=("eps", "before", "after", "difference, points", "lost", "won", "McNemar's p"),
        rows=[
            (text, Percent(pair.value_b), Percent(pair.value_a), _points(pair), pair.only_b, pair.only_a, PValue(pair.p))
            for text, pair in pairs
        ],
        text=f"Before: {result.before.verdict} After: {result.after.verdict} Lost samples are right before the training only, "
        "won ones after it only.",
        name="comparison",
        terminal=True,
    )


def _points(pair: PairedRate) -> Points:
    return Points(pair.difference, pair.low, pair.high)


def _generalisation(unseen: Sequence[Unseen]) -> Table:
    return Table(
        title="Generalisation",
        columns=("change", "trained on", "before", "after", "difference, points", "McNemar's p"),
        rows=[(row.name, row.seen, row.before, row.after, _points(row.pair), PValue(row.p)) for row in unseen],
        text=f"Accuracy on the same samples: every applicable distortion at severity {SEVERITY} of 5, and PGD in both norms, at "
        "budgets of about the same difficulty. P-values are corrected for the number of rows (Holm).",
        name="unseen",
    )


def _classes(result: HardenResult) -> Table:
    return Table(
        title="Costs by class",
        columns=("class", "samples", "clean, before", "clean, after", "robust, before", "robust, after"),
        rows=[
            (before.name, before.n, before.clean, after.clean, before.robust[-1], after.robust[-1])
            for before, after in zip(result.before.per_class, result.after.per_class, strict=True)
        ],
        text=f"Accuracy of each class on clean inputs and under attack at {result.after.eps_text[-1]}.",
        name="per_class",
        folded=True,
    )


def _training(result: HardenResult) -> Iterator[Curve | Table]:
    """The checks, as a figure and as a table."""
    last = result.curve[-1]
    yield Curve(
        title="Accuracy on validation samples over the training",
        series=[
            Series(name=text, points=[(float(one.step), getattr(one, name)) for one in result.curve], band=name == "robust")
            for name, text in LINES.items()
        ],
        ticks=[(float(check.step), str(check.step)) for check in result.curve],
        axis="step",
    )
    yield Table(
        title="The training",
        columns=("step", "time", "recipe", "eps", "loss", "good", "clean", "training attack", "PGD", "PGD, full budget"),
        rows=[
            (one.step, Seconds(one.seconds), one.recipe, one.eps, one.loss, one.good, *(getattr(one, name) for name in LINES))
            for one in result.curve
        ],
        text=f"{counted(last.step, 'step')} in {seconds(last.seconds)}, {whole(last.forwards)} forward and "
        f"{whole(last.backwards)} backward evaluations of single inputs, without the checks. Each check evaluates the network on "
        "validation samples, which the training does not use. A network that withstands the training attack but not PGD has "
        "overfitted to it; the training then returns to an earlier state and continues with a safer recipe. The stored weights "
        "have the highest value of the last column; the last weights win if they are as robust on all validation samples.",
        name="curve",
        folded=True,
    )


def summarise(folder: Folder[Checks]) -> HardenResult:
    """Figures of a folder from its rows and its audits."""
    checks, facts = folder.rows, folder.facts
    before, after = side(folder.path / BEFORE, None), side(folder.path / AFTER, None)
    return HardenResult(
        **folder.head(),
        weights=str(folder.path / facts.weights),
        spec=spec_in(folder.path, facts),
        events=[event for text in checks.events for event in text.splitlines()],
        curve=[_check(checks, index) for index in range(len(checks))],
        unseen=unseen_of(parquet.load_rows(Answers, folder.path / CHANGES)),
        before=summarise_model(before.manifest, before.records, before.run, before.model),
        after=summarise_model(after.manifest, after.records, after.run, after.model),
        comparison=compare(after, before),
    )


def spec_in(folder: Path, facts: HardenFacts) -> str | None:
    """The spec that loads the hardened model from outside its folder."""
    name = f"weights={facts.weights}"
    return None if facts.spec is None else facts.spec.replace(name, f"weights={folder / facts.weights}", 1)


def _check(checks: Checks, index: int) -> Check:
    row = {name: np.ma.getdata(getattr(checks, name))[index] for name in (*NUMBERS, *LINES, "samples")}
    values: dict[str, Any] = {name: row[name].item() for name in NUMBERS}
    if np.ma.getmaskarray(checks.loss)[index]:
        values["loss"] = None
    shares: dict[str, Any] = {name: share((np.arange(row["samples"]) < row[name]).tolist()) for name in LINES}
    return Check(recipe=checks.recipe[index], **values, **shares)


def unseen_of(answers: Answers) -> list[Unseen]:
    """Both models under each change, with p-values corrected over all changes."""
    parts = [rows.take(answers, answers.change == name) for name in dict.fromkeys(answers.change)]
    pairs = [paired(part.after, part.before, 0.0) for part in parts]
    corrected = holm([mcnemar(pair.only_a, pair.only_b) for pair in pairs])
    return [
        Unseen(
            name=part.change[0],
            distortion=part.distortion[0] or None,
            seen=bool(part.seen[0]),
            before=share(part.before.tolist()),
            after=share(part.after.tolist()),
            pair=pair,
            p=p,
        )
        for part, pair, p in zip(parts, pairs, corrected, strict=True)
    ]


def pgd_name(norm: str, eps: str) -> str:
    """Name of the change by PGD."""
    return f"PGD, {STEPS} steps, {norm} {eps}"


def sentences(result: HardenResult) -> list[str]:
    """The gain at the training budget, its cost in clean accuracy, its generalisation, and the losses by class."""
    pair = _trained(result)
    weakest = weakest_classes(result.after, result.after.eps.index(pair.eps))
    texts = [
        f"At {result.facts.eps_text} ({distance(result.request.norm)}) {_change_text('robust accuracy', pair)}",
        f"On clean inputs {_change_text('accuracy', result.comparison.clean)}",
        generalisation(result.unseen),
        class_losses(result.comparison.per_class),
        f"After the training, {weakest[0].lower()}{weakest[1:]}",
    ]
    return [text for text in texts if text]


def _trained(result: HardenResult) -> PairedRate:
    return min(result.comparison.robust, key=lambda rate: abs(rate.eps - result.facts.eps))


def _change_text(quantity: str, pair: PairedRate) -> str:
    if pair.difference == 0:
        return (
            f"the {quantity} was {percent(pair.value_a)} before and after; with {counted(pair.n, 'sample')}, a change of "
            f"{100 * max(pair.high, -pair.low):.1f} points cannot be excluded."
        )
    word = "rose" if pair.difference > 0 else "fell"
    chance = "" if pair.low > 0 or pair.high < 0 else "; this may be chance"
    return (
        f"the {quantity} {word} from {percent(pair.value_b)} to {percent(pair.value_a)}, by {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}){chance}."
    )


def weaker_audit(result: HardenResult) -> Iterator[str]:
    """A warning if PGD alone finds a lower robust accuracy than the audit on the same samples."""
    pair, name = _trained(result), pgd_name(result.request.norm, result.facts.eps_text)
    for row in result.unseen:
        lower = (minus(pair.value_a, row.after.value) or 0.0) > 0
        if row.name == name and row.pair.n == pair.n and pair.eps == result.facts.eps and lower:
            yield (
                f"PGD with {STEPS} steps leaves {percent(row.after.value)} at {result.facts.eps_text}, less than the attacks of "
                "the audit. The robust accuracy is at most that: audit the model with stronger attacks."
            )


def generalisation(rows: Sequence[Unseen]) -> str:
    """A sentence on the changes outside the training under which the hardened model is significantly better or worse."""
    unseen = [row for row in rows if not row.seen]
    if not unseen:
        return ""
    telling = [row for row in unseen if significant(row.p)]
    gains, losses = ([row for row in telling if sign * row.pair.difference > 0] for sign in (1, -1))
    text = f"Under {counted(len(unseen), 'change')} that the training did not use, the model is "
    if not telling:
        return f"{text}not shown to be better or worse."
    text += f"significantly better in {len(gains)} and worse in {len(losses)}"
    names = listed([row.distortion or row.name for row in losses or gains], MAX_NAMED)
    verb = "does not generalise" if losses else "generalises"
    return f"{text}: robustness {verb} to {names}."


def class_losses(per_class: Sequence[ClassComparison]) -> str:
    """A sentence on the classes whose clean accuracy fell significantly, or on their absence."""
    lost = [one for one in per_class if significant(one.p_clean) and one.clean.difference < 0]
    if not lost:
        return "No class is shown to have lost accuracy on clean inputs." if per_class else ""
    largest, *others = sorted(lost, key=lambda one: one.clean.difference)
    pair, names = largest.clean, [one.name for one in others]
    more = f" Class{'es' if len(names) > 1 else ''} {listed(names, MAX_NAMED)} also lost significantly." if names else ""
    return (
        f"On clean inputs {class_label(largest)} lost most: from {percent(pair.value_b)} to {percent(pair.value_a)}, by "
        f"{points(pair.difference)} points ({points(pair.low)} to {points(pair.high)}, {counted(pair.n, 'sample')}).{more}"
    )
