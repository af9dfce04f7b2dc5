"""Figures of an unrestricted attack: two kinds of failure, the witnesses of the class, and distances to the data.

Each rate states its denominator. An attempt is `clear` if the auxiliary classifier and every judge see the intended class
in its plain sample. The other attempts say something about the generator, not about the model.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import Share
from brinell.analysis.robust_accuracy import share
from brinell.core.record import Array
from brinell.studies.unrestricted.records import CLEAR, NORMS, SEARCHED, Outcome

Row = dict[str, Any]
NAMES = {"l2": "L2", "linf": "Linf"}
FRACTION = 0.5
"""Fraction of the distance to the nearest sample of another class within which the class must stay constant."""


class Tally(Result):
    """Outcomes of some attempts on one model with one variant of the search."""

    attempts: int
    """Inputs that the generator drew."""
    clear: Share
    """Plain samples in which the auxiliary classifier and every judge see the intended class, among all attempts."""
    plain_accuracy: Share
    """Plain samples that the model classifies correctly, among the clear ones."""
    generalisation: Share
    """Plain samples that the model misclassifies, among the clear ones, without any search."""
    adversarial: Share
    """Searches that end with an adversarial example, among the clear attempts: the model errs, and the auxiliary classifier
    and every judge see the intended class."""
    contested: Share
    """Searches that end with an error of the model while a judge sees another class, among the clear attempts."""
    searched_accuracy: Share
    """Clear attempts on which the model is correct on the plain sample and throughout the search."""
    success: Share
    """Adversarial examples among the searches, which leave out generalisation failures."""
    success_by_auxiliary: Share
    """Success rate if only the auxiliary classifier decides on the class, as in the paper."""


class ClassTally(Tally):
    """Outcomes for one intended class."""

    class_name: str
    """Name of the class."""


class Witness(Result):
    """A classifier or nearest-neighbour rule that predicts the class of an input."""

    name: str
    """The auxiliary classifier, a judge, or the nearest training sample in a norm."""
    neighbour: bool
    """True for a nearest training sample, whose answer decides no outcome."""
    plain: Share
    """Plain samples in which the witness sees the intended class, among all attempts."""
    found: Share
    """The same rate among the inputs on which the model errs and the auxiliary classifier sees the intended class."""


class Conditions(Result):
    """Median distances of some inputs to the training data in one norm, and conditions for a sound eps.

    Each input counts as a change of the nearest training sample of its intended class.
    """

    norm: str
    """l2 or linf."""
    n: int
    """Inputs."""
    same: float | None
    """Median distance to the nearest training sample of the intended class: the size of the change."""
    other: float | None
    """Median distance to the nearest training sample of another class."""
    training_same: float | None
    """Median distance from that nearest training sample of the intended class to the next one of its class."""
    training_other: float | None
    """Median distance from it to the nearest training sample of another class."""
    nearer_to_own: Share
    """Inputs whose nearest training sample is of the intended class."""
    label_constant: Share
    """Inputs whose change is less than half the distance from the changed sample to the nearest one of another class."""
    no_interpolation: Share
    """Inputs whose change is less than the distance from the changed sample to the nearest one of its class."""
    both: Share
    """Inputs that meet both conditions."""


class Cost(Result):
    """Cost of the searches of one model and variant."""

    forwards: int
    """Forward evaluations of the model by the searches."""
    backwards: int
    """Backward evaluations."""
    judge_forwards: int
    """Forward evaluations of the model for the verdicts."""
    median_queries: float | None
    """Median number of queries of a search that ended with an error of the model."""
    median_latent_l2: float | None
    """Median L2 distance between the first and the last latent of such a search."""
    median_moved_l2: float | None
    """Median L2 length of the change of its input."""
    median_moved_linf: float | None
    """Median of the largest change of a value."""


class VariantResult(Result):
    """One model under one variant of the search."""

    model: str
    """Name of the model."""
    variant: str
    """latent or noise."""
    noise: float
    """Largest change of a value by the noise that is added to the generated input."""
    total: Tally
    """All attempts."""
    classes: list[ClassTally]
    """By intended class."""
    witnesses: list[Witness]
    """The witnesses of the intended class."""
    plain: list[Conditions]
    """Clear plain samples."""
    found: list[Conditions]
    """Adversarial examples."""
    cost: Cost
    """Queries and sizes."""


class UnrestrictedResult(FolderResult):
    """`brinell unrestricted --json`: an unrestricted attack on one or more models."""

    data: str
    """The training data that distances are measured to."""
    attempts: int
    """Inputs that the generator was asked for."""
    complete: bool
    """True if the run is finished."""
    towards: str | None
    """The target class; null for an untargeted attack."""
    judges: list[str]
    """Names of the judges. Without judges, only the auxiliary classifier decides on the class."""
    warnings: list[str]
    """Warnings for the reader."""
    results: list[VariantResult]
    """Every model under every variant."""


def summarise(manifest: dict[str, Any], rows: Sequence[Row], run: str) -> UnrestrictedResult:
    """Compute every figure of the page from the manifest and the records."""
    classes, judges = list(manifest["data"]["classes"]), [judge["name"] for judge in manifest["judges"]]
    results = []
    for model in manifest["models"]:
        for variant, settings in manifest["variants"].items():
            selected = [row for row in rows if row["model"] == model["name"] and row["variant"] == variant]
            results.append(_variant(selected, model["name"], variant, settings["noise"], classes, judges))
    return UnrestrictedResult(
        folder=run,
        data=manifest["data"]["name"],
        attempts=manifest["attempts"],
        complete=manifest["state"] == "finished",
        towards=None if manifest["target"] is None else classes[manifest["target"]],
        judges=judges,
        warnings=_warnings(manifest, results),
        results=results,
    )


def _variant(rows: list[Row], model: str, variant: str, noise: float, classes: list[str], judges: list[str]) -> VariantResult:
    """Figures of one model and search."""
    by_class = [(number, [row for row in rows if row["intended"] == number]) for number in range(len(classes))]
    clear = [row for row in rows if row["outcome"] in CLEAR]
    adversarial = [row for row in rows if row["outcome"] == Outcome.FOOLED]
    return VariantResult(
        model=model,
        variant=variant,
        noise=noise,
        total=Tally(**_tally(rows)),
        classes=[ClassTally(class_name=classes[number], **_tally(class_rows)) for number, class_rows in by_class if class_rows],
        witnesses=_witnesses(rows, judges),
        plain=[_conditions(clear, norm, "plain_") for norm in NORMS],
        found=[_conditions(adversarial, norm, "") for norm in NORMS],
        cost=_cost(rows),
    )


def _tally(rows: list[Row]) -> dict[str, Any]:
    """Shares of the outcomes."""
    outcomes = [row["outcome"] for row in rows]
    clear = [outcome for outcome in outcomes if outcome in CLEAR]
    searched = [outcome for outcome in outcomes if outcome in SEARCHED]
    return {
        "attempts": len(rows),
        "clear": share(outcome in CLEAR for outcome in outcomes),
        "plain_accuracy": share(outcome != Outcome.GENERALISATION for outcome in clear),
        "generalisation": share(outcome == Outcome.GENERALISATION for outcome in clear),
        "adversarial": share(outcome == Outcome.FOOLED for outcome in clear),
        "contested": share(outcome == Outcome.CONTESTED for outcome in clear),
        "searched_accuracy": share(outcome == Outcome.SURVIVED for outcome in clear),
        "success": share(outcome == Outcome.FOOLED for outcome in searched),
        "success_by_auxiliary": share(outcome != Outcome.SURVIVED for outcome in searched),
    }


def _witnesses(rows: list[Row], judges: list[str]) -> list[Witness]:
    """Agreement of judges and neighbours with the intended class."""
    errors = [row for row in rows if row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED)]

    def witness(name: str, sees: Callable[[Row, str], bool], *, neighbour: bool = False) -> Witness:
        """Figures of one witness."""
        plain, adversarial = ([sees(row, prefix) for row in group] for group, prefix in ((rows, "plain_"), (errors, "")))
        return Witness(name=name, neighbour=neighbour, plain=share(plain), found=share(adversarial))

    def judge(number: int) -> Callable[[Row, str], bool]:
        """A test whether a judge sees the intended class."""
        return lambda row, prefix: row[f"{prefix}judges"][number] == row["intended"]

    def neighbour(norm: str) -> Callable[[Row, str], bool]:
        """A test whether the nearest training sample is of the intended class."""
        return lambda row, prefix: row[f"{prefix}{norm}_same"] < row[f"{prefix}{norm}_other"]

    return [
        witness("auxiliary classifier", lambda row, prefix: row[f"{prefix}aux"] == row["intended"]),
        *(witness(name, judge(number)) for number, name in enumerate(judges)),
        *(witness(f"nearest training sample, {NAMES[norm]}", neighbour(norm), neighbour=True) for norm in NORMS),
    ]


def _conditions(rows: list[Row], norm: str, prefix: str) -> Conditions:
    """Shares of inputs that meet the conditions on eps in one norm."""
    names = ("same", "other", "anchor_same", "anchor_other")
    to_class, to_others, next_same, next_other = (
        np.array([row[f"{prefix}{norm}_{name}"] for row in rows], float) for name in names
    )
    constant, isolated = to_class < FRACTION * next_other, to_class < next_same
    return Conditions(
        norm=norm,
        n=len(rows),
        same=_median(to_class),
        other=_median(to_others),
        training_same=_median(next_same),
        training_other=_median(next_other),
        nearer_to_own=share((to_class < to_others).tolist()),
        label_constant=share(constant.tolist()),
        no_interpolation=share(isolated.tolist()),
        both=share((constant & isolated).tolist()),
    )


def _cost(rows: list[Row]) -> Cost:
    """Queries and distances of the search."""
    errors = [row for row in rows if row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED)]
    columns = {"queries": "forwards"} | {name: name for name in ("latent_l2", "moved_l2", "moved_linf")}
    medians = {f"median_{name}": _median(np.array([row[column] for row in errors], float)) for name, column in columns.items()}
    return Cost(
        forwards=sum(row["forwards"] for row in rows),
        backwards=sum(row["backwards"] for row in rows),
        judge_forwards=sum(row["judge_forwards"] for row in rows),
        **medians,
    )


def _median(values: Array) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def _warnings(manifest: dict[str, Any], results: list[VariantResult]) -> list[str]:
    """Warnings about what the run cannot show."""
    warnings = ["No person checked the class of the inputs: only classifiers say that they show the intended class."]
    if not manifest["judges"]:
        warnings.append(
            "There is no judge: only the auxiliary classifier, which the search optimises for, confirms the class. "
            "Add models with --judge."
        )
    if not manifest["generator"]["same_data"]:
        warnings.append("The generator was not trained on this data, so distances are not to its training samples.")
    worst = min((result.total.clear.value for result in results if result.total.clear.value is not None), default=None)
    if worst is not None and worst < 0.8:
        warnings.append(
            f"Only {100 * worst:.0f} % of the plain samples are clear: train a better generator for more meaningful results."
        )
    return warnings
