"""Rows of a corruption study, corruption errors by kind and severity, their means relative to a
reference, and the report.

Hendrycks & Dietterich 2019, section 4.2: CE is the sum of a model's errors over the severities
divided by that of the reference, mCE its mean over the fifteen kinds.

examples/NNN.safetensors  for each kind of the facts, by position: a sample as it is and corrupted
at the largest severity; its
                          class, and the answers of the first model to both
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from brinell.analysis.attainable import pairs, shortfall, smallest_mean
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import Order, order
from brinell.analysis.judgements import extreme_means
from brinell.analysis.means import mean_difference, pseudo_values
from brinell.analysis.results import OfClass, Rate
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.analysis.statements import Statement
from brinell.core.record import Array, Columns, column
from brinell.manifest import Facts, Listing
from brinell.reports.numbers import counted, percent
from brinell.reports.pictures import picture
from brinell.reports.statements import sentence
from brinell.reports.values import (
    Cell,
    Detail,
    Example,
    Gallery,
    Measure,
    Note,
    Percent,
    Picture,
    Report,
    Step,
    Table,
)
from brinell.store.files import read_arrays
from brinell.store.table import Folder
from brinell.studies.corruption import CorruptRequest
from brinell.studies.result import FolderResult, NamedModel

CLEAN = "clean"
PUBLISHED = "published-"
FIFTEEN = tuple(
    f"{PUBLISHED}{name}"
    for name in (
        *(
            "gaussian-noise",
            "shot-noise",
            "impulse-noise",
            "defocus-blur",
            "glass-blur",
            "motion-blur",
            "zoom-blur",
        ),
        *(
            "snow",
            "frost",
            "fog",
            "brightness",
            "contrast",
            "elastic-transform",
            "pixelate",
            "jpeg-compression",
        ),
    )
)
"""The kinds over which the mean corruption error is taken."""
MCE = (
    "The mean corruption error (mCE) is that of Hendrycks and Dietterich: errors "
    "summed over the severities, divided by those of "
    "the reference, averaged over the published kinds. The reference has 100 %."
)
UNCHANGED = 1e-6
"""Euclidean length up to which a sample counts as unchanged."""


@dataclass(frozen=True, kw_only=True)
class CorruptionRows(Columns):
    """Rows as columns, each a (rows,) array."""

    model: Array = column("string", "name of the model")
    kind: Array = column("string", "name of the corruption; `clean` for the clean input")
    severity: Array = column("int32", "1 to 5; 0 for the clean input")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    pred: Array = column("int32", "the model's answer")
    l2: Array = column(
        "float32", "Euclidean length of the change, in the units of the data", zero=True
    )


def example_path(number: int) -> str:
    """Path of the example of a kind, by its position in the facts, relative to the folder."""
    return f"examples/{number:03d}.safetensors"


class CorruptFacts(Facts):
    """Facts that the request leaves open."""

    kinds: Listing[str]
    """The names of the corruptions."""
    severities: Listing[Annotated[int, Field(ge=1, le=5)]]
    """The severities of each, ascending."""


class Error(Result):
    """A corruption error with its 95 % interval over the samples."""

    value: float | None = None
    """1 if the model errs as often as the reference; null if undefined, or if a severity or kind
    is missing."""
    low: float | None = None
    """Lower end; null if unknown: fewer than six samples, or nearly all alike."""
    high: float | None = None
    """Upper end."""


class KindResult(Result):
    """One corruption over all severities on one model."""

    kind: str
    """Name."""
    active: bool
    """False if it changes no sample at any severity: no mean over corruptions includes it."""
    levels: list[Rate]
    """Accuracy on the corrupted inputs at each severity, ascending."""
    accuracy: float
    """Mean over the severities."""
    ce: Error
    """Corruption error: errors summed over the severities, divided by those of the reference."""


class ClassLoss(OfClass):
    """One class of one model over all corruptions and severities."""

    n: int
    """Samples."""
    clean: Rate
    """Accuracy on the clean inputs."""
    accuracy: float | None
    """Mean accuracy over severities of the corruptions that change a sample."""


class CorruptModel(NamedModel):
    """One model."""

    clean: Rate
    """Accuracy on the clean inputs."""
    accuracy: float | None
    """Mean accuracy over all severities of the corruptions of this run that change a sample."""
    statements: list[Statement]
    """The corruptions with the lowest and the highest mean accuracy; empty if all are equal."""
    mce: Error
    """Mean corruption error over the published kinds of this run that belong to the fifteen."""
    kinds: list[KindResult]
    """By corruption."""
    per_class: list[ClassLoss]
    """By class."""


class CorruptResult(FolderResult):
    """What `brinell corrupt --json` prints."""

    request: CorruptRequest
    facts: CorruptFacts
    n: int
    """Number of samples."""
    models: Sequence[CorruptModel]
    """The models."""
    notes: list[str]
    """Notes on undefined figures and limits of comparisons."""

    def class_columns(self, model: str) -> Mapping[str, Mapping[str, Cell]]:
        """Mean accuracy over the corruptions."""
        figures = next(entry for entry in self.models if entry.name == model)
        return {"corrupted": {c.name: Percent(c.accuracy) for c in figures.per_class}}

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        reference = self.request.reference
        severities = [str(severity) for severity in self.facts.severities]
        first = self.models[0]
        several = len(self.models) > 1
        subject = f"{counted(self.n, 'sample')}, {counted(len(self.models), 'model')}"

        models = Table(
            title="The models",
            columns=("model", "clean", "corrupted, mean", *(["mCE"] if reference else [])),
            rows=[
                (
                    m.name,
                    m.clean,
                    Percent(m.accuracy),
                    *([_in_percent(m.mce)] if reference else []),
                )
                for m in self.models
            ],
            text=MCE if reference else "",
            name="models",
            terminal=True,
            page=several,
        )
        classes = [
            (m.name, c.name, c.n, c.clean, Percent(c.accuracy))
            for m in self.models
            for c in m.per_class
        ]

        return Report(
            verb="corrupt",
            title=f"What corruptions cost on {self.data}",
            subject=subject + (f", reference {reference}" if reference else ""),
            sentences=[sentence for model in self.models for sentence in self._sentences(model)],
            blocks=[
                models,
                self._gallery(first, severities[-1]),
                *(self._kinds(number, severities) for number in range(len(self.models))),
                Table(
                    title="Class by class",
                    columns=("model", "class", "samples", "clean", "corrupted, mean"),
                    rows=classes,
                    name="classes",
                    folded=True,
                ),
            ],
            notes=[Note("corruptions", "note", note) for note in self.notes],
            steps=[
                Step(
                    "Put it next to the attacks on the same model, class by class.",
                    "brinell report FOLDER RUN",
                )
            ],
        )

    def _sentences(self, model: CorruptModel) -> Iterator[str]:
        """Accuracy under corruption with the mean corruption error, and the kinds that cost most
        and least.
        """
        clean = percent(model.clean.value)
        corrupted = percent(model.accuracy)
        mce = model.mce
        text = f"{model.name}: {clean} on clean inputs, {corrupted} under corruption on average"
        if mce.value is not None and model.name != self.request.reference:
            ends = (
                "no interval"
                if mce.low is None or mce.high is None
                else f"{100 * mce.low:.1f} to {100 * mce.high:.1f}"
            )
            text += (
                f"; mean corruption error {100 * mce.value:.1f} % ({ends}), where "
                f"{self.request.reference} has 100 %"
            )

        yield f"{text}."
        for entry in model.statements:
            yield f"{model.name}: {sentence(entry)}"

    def label(self, kind: str) -> str:
        """The name of a corruption on the page: without its suite, where all are published ones."""
        return short_name(kind, self.facts.kinds)

    def _kinds(self, number: int, severities: Sequence[str]) -> Table:
        """Accuracy of a model by kind and severity."""
        model = self.models[number]
        with_ce = self.request.reference is not None
        rows = [
            (
                self.label(kind.kind)
                if kind.active
                else Detail(self.label(kind.kind), "changes no sample: in no mean"),
                *kind.levels,
                Percent(kind.accuracy),
                *([_in_percent(kind.ce)] if with_ce else []),
            )
            for kind in model.kinds
        ]

        return Table(
            title=f"{model.name}: accuracy, kind by severity",
            columns=("kind", *severities, "mean", *(["CE"] if with_ce else [])),
            rows=rows,
            name=f"kinds-{number + 1}",
            heat=True,
            folded=number > 0,
            terminal=number == 0 and len(rows) <= 20,
        )

    def _gallery(self, model: CorruptModel, severity: str) -> Gallery:
        """A sample of each kind, the kinds that cost a model most first."""
        examples = []
        domain = None
        for kind in sorted(
            (kind for kind in model.kinds if kind.active), key=lambda kind: kind.accuracy
        ):
            file = Path(self.folder) / example_path(self.facts.kinds.index(kind.kind))
            if file.exists():
                domain = domain or self.manifest["data"]["domain"]
                examples.append(
                    _example(self.label(kind.kind), read_arrays(file), domain, self.classes)
                )

        text = (
            f"One sample of each kind at severity {severity}, the kinds that cost "
            f"{model.name} most first: where there is one, "
            "a sample that it gets right only without the corruption."
        )
        return Gallery(
            title="What the corruptions look like", examples=examples, text=text, open_examples=3
        )


def _example(
    kind: str, arrays: Mapping[str, Array], domain: Mapping[str, Any], names: Sequence[str]
) -> Example:
    """Clean and corrupted pictures of a sample, with the answers to them."""
    bounds = float(np.min(domain["low"])), float(np.max(domain["high"]))
    labels = [class_name(names, int(index)) for index in arrays["classes"]]
    # The true class, then the answers to the clean and to the corrupted picture.
    label = labels[0]
    title = f"sample {int(arrays['sample'][0])}, {label}"

    pictures = [
        Picture(
            picture(arrays[name], domain["kind"], *bounds, title=f"{title}, {name}"),
            f"{name}: {answer}",
        )
        for name, answer in zip(("clean", "corrupted"), labels[1:], strict=True)
    ]
    return Example(pictures=pictures, caption=f"{kind}, class {label}")


def _in_percent(error: Error) -> Measure:
    """A corruption error where the reference has 100."""
    value = None if error.value is None else 100 * error.value
    low = None if error.low is None else 100 * error.low
    high = None if error.high is None else 100 * error.high
    return Measure(value, low, high, "%")


class _Errors:
    """Errors of every model as arrays: (models, n) on clean inputs, and (models, kinds, severities,
    n).
    """

    def __init__(self, models: list[str], facts: CorruptFacts, answers: CorruptionRows) -> None:
        self.models, self.kinds, self.severities = models, facts.kinds, facts.severities
        # Rows come in any order; sorted they form a cube of models, corruptions and samples.
        of_model = _positions(models, answers.model)
        of_kind = _positions([CLEAN, *facts.kinds], answers.kind)
        order = np.lexsort((answers.sample_id, answers.severity, of_kind, of_model))
        shape = len(models), 1 + len(self.kinds) * len(self.severities), -1
        label = answers.label[order].reshape(shape)
        wrong = answers.pred[order].reshape(shape) != label
        self.labels = label[0, 0]
        self.clean: Array = wrong[:, 0]
        self.wrong: Array = wrong[:, 1:].reshape(
            len(models), len(self.kinds), len(self.severities), -1
        )
        # The inputs are the same for all models, so the first one's distances say it.
        changes = answers.l2[order].reshape(shape)[0, 1:].reshape(len(self.kinds), -1).max(1)
        self.active = np.flatnonzero(changes > UNCHANGED).tolist()
        """The kinds that change any sample."""


def _positions(names: Sequence[str], column: Array) -> Array:
    """(rows,) the position of each name of a column."""
    unique, inverse = np.unique(column.astype(str), return_inverse=True)
    return np.array([names.index(str(name)) for name in unique])[inverse]


def summarise(folder: Folder[CorruptionRows]) -> CorruptResult:
    """Figures of a folder from its rows."""
    head, facts, reference = folder.head(), folder.facts, folder.request.reference
    errors = _Errors(folder.models, facts, folder.rows)
    base = None if reference is None else errors.models.index(reference)
    models = [_model(errors, number, base, head["classes"]) for number in range(len(errors.models))]
    claim, n = "corruption can be shown to cost more than another", errors.clean.shape[1]
    short = shortfall(claim, pairs(len(errors.active)), "samples", n, smallest_mean)
    return CorruptResult(
        **{**head, "models": models},
        n=n,
        notes=[*_notes(errors, base), *([short] if short else [])],
    )


def _notes(errors: _Errors, base: int | None) -> Iterator[str]:
    """Notes on what no mean includes, on the reference, and on the scope of the mean corruption
    error.
    """
    active = [errors.kinds[number] for number in errors.active]
    if inert := [kind for kind in errors.kinds if kind not in active]:
        yield (
            f"{', '.join(inert)} changes none of these samples at any severity: "
            "the means are over the other "
            f"{len(active)} of {len(errors.kinds)} corruptions"
        )

    if base is None:
        return
    # A share of no error is not a number.
    if perfect := [
        errors.kinds[number] for number in errors.active if not errors.wrong[base, number].any()
    ]:
        yield (
            f"{errors.models[base]} makes no error under {', '.join(perfect)}: "
            "the corruption error and its mean are undefined; "
            "choose another reference, or take more samples"
        )
        return

    missing = [kind for kind in FIFTEEN if kind not in active]
    if missing or len(errors.severities) < 5:
        scope = (
            f"{len(FIFTEEN) - len(missing)} of the {len(FIFTEEN)} published kinds at "
            f"severities {errors.severities}"
        )
        yield f"the mean corruption error is over {scope}, and does not compare with published ones"


def short_name(kind: str, kinds: Sequence[str]) -> str:
    """The name of a corruption without its suite, where all are published ones."""
    is_suite = all(name.startswith(PUBLISHED) for name in kinds)
    return kind.removeprefix(PUBLISHED) if is_suite else kind


def _model(errors: _Errors, number: int, base: int | None, names: list[str]) -> CorruptModel:
    clean = errors.clean[number]
    ces: Array | None = None
    if base is not None:
        # Errors of each kind, summed over its levels, against those of the base.
        own = errors.wrong[number].sum(1).astype(np.float64)
        reference = errors.wrong[base].sum(1).astype(np.float64)
        ces = np.stack([pseudo_values(*pair) for pair in zip(own, reference, strict=True)])

    # The published mean is over fifteen kinds; further ones are in no mean error.
    members = [i for i in errors.active if errors.kinds[i] in FIFTEEN]
    ordered = _order(errors, number)
    active = [short_name(errors.kinds[i], errors.kinds) for i in errors.active]

    # The highest accuracy comes first in the order, and what costs most first on the page.
    statements = extreme_means(ordered, active, "accuracy under corruption", len(clean))[::-1]
    return CorruptModel(
        name=errors.models[number],
        clean=rate(int((~clean).sum()), len(clean)),
        accuracy=float(1 - errors.wrong[number, errors.active].mean()) if errors.active else None,
        statements=statements,
        mce=_error(None if ces is None or not members else ces[members].mean(0)),
        kinds=[
            KindResult(
                kind=kind,
                active=i in errors.active,
                levels=[rate(int((~wrong).sum()), len(wrong)) for wrong in errors.wrong[number, i]],
                accuracy=float(1 - errors.wrong[number, i].mean()),
                ce=_error(None if ces is None else ces[i]),
            )
            for i, kind in enumerate(errors.kinds)
        ],
        per_class=[_class(errors, number, int(index), names) for index in np.unique(errors.labels)],
    )


def _order(errors: _Errors, number: int) -> Order:
    """The corruptions that change a sample, in order of the accuracy of a model, compared on the
    same samples.
    """
    accuracies = 1 - errors.wrong[number, errors.active].mean(1)

    def compare(i: int, j: int) -> float:
        difference = mean_difference(accuracies[i] - accuracies[j])
        return 1.0 if difference is None else difference.p

    return order(accuracies.mean(1), compare)


def _error(values: Array | None) -> Error:
    """A ratio of errors with its interval, from the pseudo-values (n,) of the samples."""
    estimate = None if values is None or not np.isfinite(values).all() else mean_difference(values)
    if estimate is None:
        return Error()
    low, high = estimate.interval or (None, None)
    return Error(value=estimate.value, low=low, high=high)


def _class(errors: _Errors, model: int, label: int, names: list[str]) -> ClassLoss:
    """The accuracy of a model on a class, clean and in the mean of the corruptions that change
    anything.
    """
    members = errors.labels == label
    n = int(members.sum())

    accuracy = None
    if errors.active:
        accuracy = float(1 - errors.wrong[model, errors.active][..., members].mean())
    return ClassLoss(
        class_=label,
        name=class_name(names, label),
        n=n,
        clean=rate(int((~errors.clean[model, members]).sum()), n),
        accuracy=accuracy,
    )
