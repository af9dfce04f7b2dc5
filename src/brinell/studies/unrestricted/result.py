"""Rows of an unrestricted attack, two kinds of failure that are counted from them, and the report.

Each rate states its denominator. An attempt is clear if the auxiliary classifier and every judge
see the intended class in its plain sample. The other attempts say something about the generator,
not about the model.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.results import OfClass, Share
from brinell.analysis.robust_accuracy import class_name, share
from brinell.core.record import Array, Columns, column
from brinell.manifest import Facts, Listing
from brinell.reports.numbers import counted, listed, percent, short
from brinell.reports.pictures import picture
from brinell.reports.values import (
    Block,
    Cell,
    Code,
    Example,
    Gallery,
    Note,
    Picture,
    Report,
    Step,
    Table,
)
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.store.table import ROWS, Folder
from brinell.studies.result import FolderResult
from brinell.studies.unrestricted import UnrestrictedRequest

PLAIN = "plain"
"""The variant of rows of plain samples."""
PIECE = 128
"""Attempts of a piece."""
SHOWN, OPEN = 80, 3
"""Examples on the page, and those that are shown before anything is unfolded."""
FEW_CLEAR = 0.8
"""Share of clear plain samples below which the result warns about the generator."""
SHARES = (
    "clear",
    "plain_errors",
    "adversarial",
    "contested",
    "searched_accuracy",
)  # figures of a tally


class AttemptOutcome(StrEnum):
    """Outcome of a plain sample, or of the search that began at it."""

    UNCLEAR = "unclear"
    """Plain: the auxiliary classifier or a judge does not see the intended class. No search
    follows."""
    GENERALISATION = "generalisation"
    """Plain: they see the intended class, and the model errs. No search follows."""
    CLEAR = "clear"
    """Plain: they see the intended class, and so does the model."""
    FOOLED = "fooled"
    """Search: the model errs on the last input, and the auxiliary classifier and every judge see
    the intended class."""
    CONTESTED = "contested"
    """Search: the model errs and the auxiliary classifier sees the intended class, but a judge
    does not: it may have changed."""
    SURVIVED = "survived"
    """Search: no input was found on which the model errs while the auxiliary classifier sees the
    intended class."""


ERRORS = (AttemptOutcome.FOOLED, AttemptOutcome.CONTESTED)


@dataclass(frozen=True, kw_only=True)
class AttemptRows(Columns):
    """Rows as columns, each a (rows,) array.

    Each model has one row for each plain sample, and one for each search from it.

    Inputs are as they are stored: rounded to the levels of the data.
    """

    attempt: Array = column(
        "int64", "number of the attempt: its latent is the same for every model and variant"
    )
    model: Array = column("string", "name of the model")
    variant: Array = column(
        "string",
        "plain: no search; latent: the latent alone is searched; noise: noise on each value too",
    )
    intended: Array = column("int32", "class that the generator was asked for")
    outcome: Array = column("string", "one of Outcome")
    pred: Array = column(
        "int32", "the model's answer to the plain sample, or to the input that the search ended at"
    )
    confidence: Array = column("float64", "its probability")
    aux: Array = column("int32", "the auxiliary classifier's answer")
    aux_probability: Array = column(
        "float64", "the auxiliary classifier's probability of the intended class"
    )
    judges: Array = column(
        "string", "the judges' answers, with spaces between them, in the order of the facts"
    )
    l2_same: Array = column(
        "float64", "l2 distance to the nearest training sample of the intended class"
    )
    l2_same_at: Array = column("int64", "position of this training sample")
    l2_other: Array = column(
        "float64", "l2 distance to the nearest training sample of another class"
    )
    l2_other_at: Array = column("int64", "position of this training sample")
    forwards: Array = column("int64", "forward evaluations of the model by the search", zero=True)
    backwards: Array = column("int64", "backward evaluations", zero=True)


def variants(request: UnrestrictedRequest) -> dict[str, float]:
    """The largest change of a value by added noise, by variant of the search."""
    return {"latent": 0.0} | ({"noise": request.noise} if request.noise else {})


def example_file(attempt: int) -> str:
    """Path of the inputs of an attempt, relative to the folder."""
    return f"examples/{attempt // PIECE:05d}.safetensors"


def example_name(attempt: int, *search: str) -> str:
    """Name of an array in this file: the plain sample of an attempt, or the last input of a search
    (model, variant).
    """
    return "/".join((str(attempt), *(search or (PLAIN,))))


class UnrestrictedFacts(Facts):
    """Facts that the request leaves open."""

    judges: Listing[str]
    """Names of the judges. Without judges, only the auxiliary classifier decides on the class."""
    generator: str
    """Hash of all that the generator's drawings depend on."""
    same_data: bool
    """True if the generator was trained on this data."""


class Tally(Result):
    """Outcomes of some attempts on one model with one search: the clear ones of all, and what
    became of the clear ones.
    """

    attempts: int
    """Inputs that the generator drew."""
    clear: Share
    """Plain samples in which the auxiliary classifier and every judge see the intended class,
    among all attempts."""
    plain_errors: Share
    """Plain samples that the model misclassifies without any search: failures to generalise."""
    adversarial: Share
    """Searches that end with an error of the model while the auxiliary classifier and every
    judge see the intended class."""
    contested: Share
    """Searches that end with an error while the auxiliary classifier sees the intended class,
    but a judge does not."""
    searched_accuracy: Share
    """Attempts on which the model is correct on the plain sample and throughout the search."""


class ClassTally(OfClass, Tally):
    """Outcomes for one intended class."""


class Witness(Result):
    """How often a classifier or the nearest training sample says that an input is of the intended
    class.
    """

    name: str
    """The auxiliary classifier, a judge, or the nearest training sample, which decides no
    outcome."""
    plain: Share
    """Among all plain samples."""
    found: Share
    """Among the inputs on which the model errs and the auxiliary classifier sees the intended
    class."""


class VariantResult(Result):
    """One model under one search."""

    model: str
    """Name of the model."""
    variant: str
    """latent or noise."""
    total: Tally
    """All attempts."""
    per_class: list[ClassTally]
    """By intended class."""
    witnesses: list[Witness]
    """The witnesses of the intended class."""


class UnrestrictedResult(FolderResult):
    """What `brinell unrestricted --json` prints."""

    request: UnrestrictedRequest
    facts: UnrestrictedFacts
    attempts: int
    """Inputs that the generator drew."""
    warnings: list[str]
    """Limits of the figures."""
    results: list[VariantResult]
    """Every model under every variant."""

    def class_columns(self, model: str) -> Mapping[str, Mapping[str, Cell]]:
        """Share of the generated inputs that are adversarial, of the first variant."""
        figures = next(entry for entry in self.results if entry.model == model)
        return {"generated, adversarial": {c.name: c.adversarial for c in figures.per_class}}

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        return Report(
            verb="unrestricted",
            title=f"Generated inputs against {listed(self.names)}",
            subject=f"{counted(self.attempts, 'attempt')}; distances to {self.data}; judges: "
            f"{', '.join(self.facts.judges) or 'none'}",
            sentences=list(sentences(self)),
            blocks=list(_blocks(self)),
            notes=[Note("class", "warn", text) for text in self.warnings],
            provenance=[("generator", Code(self.facts.generator))],
            steps=[
                Step(
                    "Have the figures made again before you pass them on.", "brinell verify FOLDER"
                )
            ],
        )


def summarise(folder: Folder[AttemptRows]) -> UnrestrictedResult:
    """Figures of a folder from its rows."""
    head = folder.head()
    table = folder.rows
    judges = np.array([text.split() for text in table.judges], np.int64).reshape(
        len(table), len(folder.facts.judges)
    )

    witnesses = {
        "auxiliary classifier": table.aux == table.intended,
        **{
            name: judges[:, number] == table.intended
            for number, name in enumerate(folder.facts.judges)
        },
        "nearest training sample": table.l2_same < table.l2_other,
    }

    results = [
        _variant(table, witnesses, head["classes"], model, variant)
        for model in folder.models
        for variant in variants(folder.request)
    ]
    warnings = list(_warnings(folder.facts, results))
    return UnrestrictedResult(
        **head, attempts=results[0].total.attempts, warnings=warnings, results=results
    )


def _variant(
    table: AttemptRows, witnesses: Mapping[str, Array], classes: list[str], model: str, variant: str
) -> VariantResult:
    """Figures of one model and search."""
    own = table.model == model
    plain = own & (table.variant == PLAIN)
    searched = own & (table.variant == variant)
    errors = searched & np.isin(table.outcome, ERRORS)
    ends = dict(zip(table.attempt[searched].tolist(), table.outcome[searched], strict=True))
    starts = zip(table.attempt[plain].tolist(), table.outcome[plain], strict=True)
    # An attempt without a search keeps the outcome of its plain sample.
    outcome = np.array([ends.get(attempt, start) for attempt, start in starts])
    intended = table.intended[plain]

    return VariantResult(
        model=model,
        variant=variant,
        total=Tally(**_tally(outcome)),
        per_class=[
            ClassTally(
                class_=number,
                name=class_name(classes, number),
                **_tally(outcome[intended == number]),
            )
            for number in np.unique(intended).tolist()
        ],
        witnesses=[
            Witness(name=name, plain=share(sees[plain]), found=share(sees[errors]))
            for name, sees in witnesses.items()
        ],
    )


def _tally(outcome: Array) -> dict[str, Any]:
    """Shares of the outcomes."""
    clear = outcome[outcome != AttemptOutcome.UNCLEAR]
    return {
        "attempts": len(outcome),
        "clear": share(outcome != AttemptOutcome.UNCLEAR),
        "plain_errors": share(clear == AttemptOutcome.GENERALISATION),
        "adversarial": share(clear == AttemptOutcome.FOOLED),
        "contested": share(clear == AttemptOutcome.CONTESTED),
        "searched_accuracy": share(clear == AttemptOutcome.SURVIVED),
    }


def _warnings(facts: UnrestrictedFacts, results: list[VariantResult]) -> Iterator[str]:
    """Limits of the figures."""
    if not facts.judges:
        yield (
            "There is no judge: only the auxiliary classifier, which the search "
            "optimises for, confirms the class. "
            "Add models with --judge."
        )
    if not facts.same_data:
        yield (
            "The generator was not trained on this data, so distances are not to its "
            "training samples."
        )

    clear = min(result.total.clear.value or 0.0 for result in results)
    if clear < FEW_CLEAR:
        which = f"Only {percent(clear)} of the plain samples are" if clear else "No plain sample is"
        yield f"{which} clear: train the generator longer for more meaningful results."


def _witnesses(result: UnrestrictedResult) -> str:
    return (
        "the auxiliary classifier and every judge see"
        if result.facts.judges
        else "the auxiliary classifier sees"
    )


def sentences(result: UnrestrictedResult) -> Iterator[str]:
    """The success of the searches, for each model and variant with a clear attempt."""
    clear = [entry for entry in result.results if entry.total.clear.k]
    if not clear:
        others = " and for every judge" if result.facts.judges else ""
        yield (
            "No plain sample is clear: none has its intended class for the auxiliary classifier, at a "
            f"probability of at least {percent(result.request.class_probability)}{others}, so nothing "
            "can be said about the models."
        )

    for entry in clear:
        total = entry.total
        contested = (
            f", and on {total.contested.k} while a judge sees another class"
            if total.contested.k
            else ""
        )
        plain = (
            f"; on {total.plain_errors.k} it errs without a search" if total.plain_errors.k else ""
        )
        noise = (
            f"noise up to {result.request.noise:g}" if entry.variant == "noise" else "latent alone"
        )
        yield (
            f"{entry.model} ({noise}): after the search it errs on {total.adversarial.k} of "
            f"{counted(total.clear.k, 'clear plain sample')} while "
            f"{_witnesses(result)} the intended class{contested}{plain}."
        )

    if any(entry.total.adversarial.k + entry.total.contested.k for entry in clear):
        yield (
            "Whether these inputs still show their class is for a person to judge: "
            "look at the examples."
        )


def _blocks(result: UnrestrictedResult) -> Iterator[Block]:
    """Tables and pictures of a result."""

    def table(
        title: str,
        items: Callable[[VariantResult], Iterable[Result]],
        fields: Iterable[str],
        **more: Any,
    ) -> Table:
        """A table with a row for each item of each model and search, whose columns are fields of
        the items.
        """
        names = list(fields)
        body = [
            (e.model, e.variant, *(getattr(item, name) for name in names))
            for e in result.results
            for item in items(e)
        ]

        return Table(
            title=title,
            columns=("model", "search", *(name.replace("_", " ") for name in names)),
            rows=body,
            **more,
        )

    witnesses = _witnesses(result)
    noise = (
        f"; noise: a noise of at most {result.request.noise:g} on each value too"
        if result.request.noise
        else ""
    )
    yield table(
        "Before and after the search",
        lambda entry: [entry.total],
        SHARES,
        text="The generator draws an input of an intended class. It is clear if "
        f"{witnesses} that class; the other shares are of "
        "the clear inputs. Plain errors: the model errs without a search, which "
        "is a failure to generalise. Adversarial: it errs "
        f"after a search (latent: the latent alone moves{noise}) while "
        f"{witnesses} the intended class. Contested: it errs after "
        "a search while a judge sees another class. Searched accuracy: it never errs.",
        name="outcomes",
        terminal=True,
    )
    yield _gallery(result)
    yield table(
        "Class by class",
        lambda entry: entry.per_class,
        ("name", *SHARES),
        name="classes",
        folded=True,
    )
    yield table(
        "Who still sees the intended class",
        lambda entry: entry.witnesses,
        Witness.model_fields,
        text="Plain: shares of all plain samples. Found: of the inputs on which the "
        "model errs and the auxiliary classifier sees "
        "the intended class; the search optimises the answer of the auxiliary "
        "classifier, the other witnesses answer afterwards. "
        "A judge that errs does not prove that the class has changed; a correct "
        "judge does not prove that a person would agree.",
        name="witnesses",
        folded=True,
    )


def _gallery(result: UnrestrictedResult) -> Gallery:
    """Errors of the models, with their plain samples and the nearest training samples.

    Of each class, model and variant one comes before a second of any, adversarial examples first.
    """
    table, turns = (
        parquet.load_rows(AttemptRows, Path(result.folder) / ROWS),
        Counter[tuple[str, str, int]](),
    )
    errors = [
        row for outcome in ERRORS for row in np.flatnonzero(table.outcome == outcome).tolist()
    ]

    def turn(row: int) -> int:
        group = str(table.model[row]), str(table.variant[row]), int(table.intended[row])
        turns[group] += 1
        return turns[group]

    shown = sorted(errors, key=turn)[:SHOWN]
    text = (
        "From left to right: the plain sample, the last input with the model's "
        "answer, and the nearest training samples (L2) of "
        "the intended class and of another class. "
        f"{counted(len(shown), 'example')} of {counted(len(errors), 'error')} "
        "after "
        "a search. Check for yourself whether the second picture still shows the class."
    )
    return Gallery(
        title="Examples",
        examples=[_example(result, table, row) for row in shown],
        text=text if shown else "No search ended with an error of the model.",
        open_examples=OPEN,
    )


def _example(result: UnrestrictedResult, table: AttemptRows, row: int) -> Example:
    """The pictures of a row beside each other, by the names of their arrays in the file."""
    attempt = table.attempt[row]
    model = table.model[row]
    variant = table.variant[row]
    intended = int(table.intended[row])
    name = class_name(result.classes, intended)
    pred = class_name(result.classes, int(table.pred[row]))
    judges = {*map(int, table.judges[row].split())} - {intended}
    dissenting = [class_name(result.classes, k) for k in sorted(judges)]
    captions = {
        example_name(attempt): "plain",
        example_name(attempt, model, variant): f"{pred}, {percent(table.confidence[row], 0)}",
        f"reference/{table.l2_same_at[row]}": f"nearest of {name}: {short(table.l2_same[row])}",
        f"reference/{table.l2_other_at[row]}": f"nearest other: {short(table.l2_other[row])}",
    }

    domain = result.manifest["data"]["domain"]
    bounds = float(np.min(domain["low"])), float(np.max(domain["high"]))
    # The file holds the inputs of many attempts, and these are read alone.
    arrays = read_arrays(Path(result.folder) / example_file(attempt), captions.__contains__)

    judges_text = f"; a judge sees {listed(dissenting)}" if dissenting else ""
    return Example(
        pictures=[
            Picture(
                picture(
                    arrays[key], domain["kind"], *bounds, title=f"attempt {attempt}, {caption}"
                ),
                caption,
            )
            for key, caption in captions.items()
        ],
        caption=f"class {name}, {model}, {variant}{judges_text}",
    )
