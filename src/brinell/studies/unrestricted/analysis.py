"""What the records of an unrestricted attack say: two kinds of failure, who sees the intended class, how far the data are.

Each rate states its denominator. `clear` attempts are those in whose plain sample the auxiliary classifier and every judge see
the intended class; the others say something of the generator and nothing of the model.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brinell.analysis.results import FolderResult, Result, Share
from brinell.analysis.robust_accuracy import share
from brinell.core.record import Array
from brinell.studies.unrestricted.records import CLEAR, NORMS, SEARCHED, Outcome

Row = dict[str, Any]
NAMES = {"l2": "L2", "linf": "Linf"}
FRACTION = 0.5
"""Of the distance from a training sample to the nearest of another class: what is closer cannot be as close to both."""


class Tally(Result):
    """Outcomes of some attempts of one model and variant, as two columns of failure."""

    attempts: int
    """Inputs that the generator was asked for."""
    clear: Share
    """Plain samples in which the auxiliary classifier and every judge see the intended class, among all attempts."""
    plain_accuracy: Share
    """Plain samples that the model gets right, among the clear ones."""
    generalisation: Share
    """Plain samples that the model gets wrong, among the clear ones: no search was needed."""
    adversarial: Share
    """Searches that ended at an input on which the model errs while the auxiliary classifier and every judge see the intended
    class, among the clear attempts."""
    contested: Share
    """Searches that ended at an error of the model where a judge sees another class, among the clear attempts."""
    searched_accuracy: Share
    """Clear attempts that the model got right on the plain sample and to the end of the search."""
    success: Share
    """Adversarial examples among the searches: adversarial failure with generalisation failure taken out."""
    success_by_auxiliary: Share
    """The same with the auxiliary classifier's word alone, as the paper's search has it."""


class ClassTally(Tally):
    """One intended class."""

    class_name: str
    """Name of the class."""


class Witness(Result):
    """Somebody who says which class he sees."""

    name: str
    """The auxiliary classifier, a judge, or the nearest training sample in a norm."""
    plain: Share
    """Plain samples in which he sees the intended class, among all attempts."""
    found: Share
    """The same of the inputs on which the model errs, as the auxiliary classifier's word has it."""


class Conditions(Result):
    """How near some inputs are to the training data, in one norm; medians, and the conditions that a sound eps has to meet.

    An input is taken as a change of the training sample of its intended class that is nearest to it.
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
    """Inputs that meet the last two."""


class Cost(Result):
    """What the searches of one model and variant cost."""

    forwards: int
    """Forward evaluations of the model by the searches."""
    backwards: int
    """Backward evaluations."""
    judge_forwards: int
    """Forwards of the model for the verdicts."""
    median_queries: float | None
    """Median of the queries of a search that ended with an error of the model."""
    median_latent_l2: float | None
    """Median L2 distance between the latents where such a search began and ended."""
    median_moved_l2: float | None
    """Median L2 distance between the inputs."""
    median_moved_linf: float | None
    """Median of the largest change of a value."""


class VariantResult(Result):
    """One model under one variant of the search."""

    model: str
    """Name of the model."""
    variant: str
    """latent or noise."""
    noise: float
    """The largest change of a value beyond what the generator draws."""
    total: Tally
    """All attempts."""
    classes: list[ClassTally]
    """By intended class."""
    witnesses: list[Witness]
    """Who sees the intended class."""
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
    """Whether the run is finished."""
    towards: str | None
    """The class that the models were to see; null where any wrong one would do."""
    judges: list[str]
    """Names of the judges; without any, the auxiliary classifier's word alone counts."""
    warnings: list[str]
    """What a reader should know."""
    results: list[VariantResult]
    """Every model under every variant."""


def summarise(manifest: dict[str, Any], rows: Sequence[Row], run: str) -> UnrestrictedResult:
    """Every figure of the page, from manifest and records alone."""
    classes, judges = list(manifest["data"]["classes"]), [judge["name"] for judge in manifest["judges"]]
    results = []
    for model in manifest["models"]:
        for variant, settings in manifest["variants"].items():
            own = [row for row in rows if row["model"] == model["name"] and row["variant"] == variant]
            results.append(_variant(own, model["name"], variant, settings["noise"], classes, judges))
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
    by_class = [(number, [row for row in rows if row["intended"] == number]) for number in range(len(classes))]
    clear = [row for row in rows if row["outcome"] in CLEAR]
    found = [row for row in rows if row["outcome"] == Outcome.FOOLED]
    return VariantResult(
        model=model,
        variant=variant,
        noise=noise,
        total=Tally(**_tally(rows)),
        classes=[ClassTally(class_name=classes[number], **_tally(own)) for number, own in by_class if own],
        witnesses=_witnesses(rows, judges),
        plain=[_conditions(clear, norm, "plain_") for norm in NORMS],
        found=[_conditions(found, norm, "") for norm in NORMS],
        cost=_cost(rows),
    )


def _tally(rows: list[Row]) -> dict[str, Any]:
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
    said = [row for row in rows if row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED)]

    def witness(name: str, sees: Callable[[Row, str], bool]) -> Witness:
        plain, found = ([sees(row, prefix) for row in some] for some, prefix in ((rows, "plain_"), (said, "")))
        return Witness(name=name, plain=share(plain), found=share(found))

    def judge(number: int) -> Callable[[Row, str], bool]:
        return lambda row, prefix: row[f"{prefix}judges"][number] == row["intended"]

    def neighbour(norm: str) -> Callable[[Row, str], bool]:
        return lambda row, prefix: row[f"{prefix}{norm}_same"] < row[f"{prefix}{norm}_other"]

    return [
        witness("auxiliary classifier", lambda row, prefix: row[f"{prefix}aux"] == row["intended"]),
        *(witness(name, judge(number)) for number, name in enumerate(judges)),
        *(witness(f"nearest training sample, {NAMES[norm]}", neighbour(norm)) for norm in NORMS),
    ]


def _conditions(rows: list[Row], norm: str, prefix: str) -> Conditions:
    names = ("same", "other", "anchor_same", "anchor_other")
    same, other, next_same, next_other = (np.array([row[f"{prefix}{norm}_{name}"] for row in rows], float) for name in names)
    constant, alone = same < FRACTION * next_other, same < next_same
    return Conditions(
        norm=norm,
        n=len(rows),
        same=_median(same),
        other=_median(other),
        training_same=_median(next_same),
        training_other=_median(next_other),
        nearer_to_own=share((same < other).tolist()),
        label_constant=share(constant.tolist()),
        no_interpolation=share(alone.tolist()),
        both=share((constant & alone).tolist()),
    )


def _cost(rows: list[Row]) -> Cost:
    ended = [row for row in rows if row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED)]
    columns = {"queries": "forwards"} | {name: name for name in ("latent_l2", "moved_l2", "moved_linf")}
    medians = {f"median_{name}": _median(np.array([row[of] for row in ended], float)) for name, of in columns.items()}
    return Cost(
        forwards=sum(row["forwards"] for row in rows),
        backwards=sum(row["backwards"] for row in rows),
        judge_forwards=sum(row["judge_forwards"] for row in rows),
        **medians,
    )


def _median(values: Array) -> float | None:
    """The median of those that are finite, a class of one sample having no neighbour; None where there is none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def _warnings(manifest: dict[str, Any], results: list[VariantResult]) -> list[str]:
    said = ["Nobody was asked which class the inputs show: that they show the intended one is the word of classifiers."]
    if not manifest["judges"]:
        said.append(
            "There is no judge: the auxiliary classifier, which the search itself satisfies, is the only witness of the class. "
            "Name models with --judge."
        )
    if not manifest["generator"]["same_data"]:
        said.append("The generator was not trained on this data, or it has changed since: distances are not to what was learned.")
    worst = min((result.total.clear.value for result in results if result.total.clear.value is not None), default=None)
    if worst is not None and worst < 0.8:
        said.append(f"Only {100 * worst:.0f} % of the plain samples are clear: a better generator would say more.")
    return said
