"""Figures of a run with a criterion of probability: the share of inputs that do not meet it, which is not robust accuracy."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, Field

from brinell.analysis.folder_result import ClaimingResult, Result
from brinell.analysis.indicators import not_made
from brinell.analysis.results import (
    AuditResult,
    CheckResult,
    ModelResult,
    OfClass,
    Rate,
    RemarkResult,
    StageResult,
    WarningResult,
)
from brinell.analysis.robust_accuracy import class_name, class_names, model_figures, warnings_of
from brinell.core.errors import RequestError, option
from brinell.core.record import Records


class ThresholdClass(OfClass):
    """One class of one model."""

    n: int
    """Samples of the class in the run."""
    clean_unmet: Rate
    """Share of untouched inputs that do not meet the criterion."""
    unmet: list[Rate]
    """Share of inputs that do not meet the criterion at each eps, ascending."""


class ThresholdStage(Result):
    """One attack of the cascade, with what was left once it and all attacks before it had run."""

    attack: str
    """Name of the stage: the attack with its exact settings."""
    title: str
    """Its name for people."""
    unmet: list[Rate]
    """Share of inputs that do not meet the criterion after this stage at each eps; empty for want of a finished stage."""
    broken: list[int]
    """Samples that this stage was the first to bring over the threshold, at each eps."""
    forwards: int
    """Forward evaluations of single inputs by the attack, over all eps."""
    backwards: int
    """Backward evaluations of single inputs by the attack, over all eps."""
    judge_forwards: int
    """Forward evaluations spent on re-checking what the attack found."""
    surrogate_passes: int
    """Passes of the surrogates whose gradients the attack followed, which are no queries of the model."""
    seconds: float
    """Wall time."""
    finished: bool
    """True if every sample that was left to this stage has its rows."""
    skipped: str | None
    """Why the stage did not run on this model; null where it ran."""


class ThresholdModel(ClaimingResult):
    """All figures of one model in a run with a criterion of probability."""

    model_config = ConfigDict(populate_by_name=True)

    folder: str = Field(alias="run")
    """The run folder."""
    model: str
    """Name of the model in the run."""
    distance: str
    """Norm in which eps is measured."""
    criterion: str
    """The criterion of probability, such as true<0.1 or class=cat>0.9."""
    meaning: str
    """The same in words."""
    eps: list[float]
    """Budgets, ascending."""
    eps_text: list[str]
    """The same as they were written."""
    n: int
    """Samples in the run; those of the class of the criterion are left out."""
    complete: bool
    """True if every stage that can run judged every sample; otherwise the figures are those of the finished stages."""
    clean_unmet: Rate
    """Share of untouched inputs that do not meet the criterion, whatever class is predicted. This is not an accuracy."""
    unmet: list[Rate]
    """Share of inputs that no finished attack made meet the criterion, at each eps. This is not robust accuracy."""
    per_class: list[ThresholdClass]
    """Classes with at least one sample, by index."""
    classes_without_samples: int
    """Classes of the data that no sample of the run belongs to, the class of the criterion left out."""
    stages: list[ThresholdStage]
    """The attacks, in order."""
    remarks: list[RemarkResult]
    """Remarks of attacks on their own run; they do not affect a gate."""
    seconds: float | None
    """Wall time of this model's part of the run."""
    warnings: list[WarningResult]
    """Warnings about this model and the whole run."""
    checks: list[CheckResult]
    """Every check that was made, passed ones included, and those that could not be made."""
    weak: str | None
    """The attacks, where they are weaker than `fast`, so that a stronger cascade may find more; null otherwise."""
    attacks: str
    """The attacks as they were asked for: a cascade, or their settings."""
    statement: str
    """One sentence: the share at the largest eps."""
    notes: list[str]
    """Sentences that qualify the statement: what failed, what could not run, and what to do."""


class ThresholdResult(ClaimingResult):
    """All models of one run with a criterion of probability, side by side."""

    model_config = ConfigDict(populate_by_name=True)

    folder: str = Field(alias="run")
    """The run folder."""
    criterion: str
    """The criterion of probability, such as true<0.1 or class=cat>0.9."""
    n: int
    """Samples in the run."""
    complete: bool
    """True if the figures of every model are complete."""
    models: list[ThresholdModel]
    """One entry per model, in the order of the request."""
    warnings: list[WarningResult]
    """All warnings of the run."""

    @property
    def reported(self) -> "ThresholdModel | ThresholdResult":
        """What `brinell audit --json` prints: the result of the model where there is one, else of all of them."""
        return self.models[0] if len(self.models) == 1 else self

    def payload(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return self.reported.model_dump(mode="json", by_alias=True)


PrintedAudit = ModelResult | AuditResult | ThresholdModel | ThresholdResult
"""What `brinell audit --json` prints."""


def summarise(manifest: Mapping[str, Any], records: Records, run: str) -> ThresholdResult:
    """All figures of a run with a criterion of probability, which may still be going on: one result per model.

    The `records` hold the rows of all models; `run` is the folder, as it is to be named.
    """
    models = [summarise_model(manifest, records, run, str(model["name"])) for model in manifest["models"]]
    own = warnings_of(manifest)
    return ThresholdResult(
        run=run,
        criterion=models[0].criterion,
        n=int(manifest["data"]["n"]),
        complete=all(model.complete for model in models),
        models=models,
        warnings=[*own, *(warning for model in models for warning in model.warnings if warning not in own)],
    )


def summarise_model(manifest: Mapping[str, Any], records: Records, run: str, model: str) -> ThresholdModel:
    """All figures of one model; arguments as for `summarise`."""
    figures = model_figures(manifest, records, run, model)
    going = manifest["state"] != "finished"
    is_left_out = manifest["criterion"].get("wrong_class") is not None
    return ThresholdModel(
        run=run,
        model=model,
        distance=figures.distance,
        criterion=figures.criterion,
        meaning=meaning(manifest),
        eps=figures.eps,
        eps_text=figures.eps_text,
        n=figures.n,
        complete=figures.complete,
        clean_unmet=figures.clean_accuracy,
        unmet=figures.robust_accuracy,
        per_class=[
            ThresholdClass(class_=entry.class_, name=entry.name, n=entry.n, clean_unmet=entry.clean, unmet=entry.robust)
            for entry in figures.per_class
        ],
        classes_without_samples=max(figures.classes_without_samples - is_left_out, 0),
        stages=[_stage(stage) for stage in figures.stages],
        remarks=figures.remarks,
        seconds=figures.seconds,
        warnings=figures.warnings,
        checks=figures.checks,
        weak=figures.weak,
        attacks=figures.attacks,
        statement=_statement(figures, going),
        notes=[] if going or not figures.clean_accuracy.k else list(_notes(figures)),
    )


def check_metrics(metrics: Collection[str], criterion: str | None, run: str = "") -> None:
    """Refuse thresholds that are about another criterion than the run's.

    Args:
        metrics: what is demanded.
        criterion: the run's criterion of probability; None if classes decide.
        run: the run folder, if there is one already.

    Raises:
        RequestError: robust accuracy of a run with a criterion of probability, or the reverse.
    """
    subject = run or "the audit"
    if criterion is None and "unmet" in metrics:
        raise RequestError(
            f"{option('unmet')} is about a criterion of probability, and {subject} has none: audit with {option('criterion')}"
        )
    others = [metric for metric in metrics if metric != "unmet"]
    if criterion is not None and others:
        raise RequestError(
            f"{subject} states the share of inputs that do not meet {criterion}, which is not robust accuracy: demand "
            f"{option('unmet')} in place of {option(others[0])}"
        )


def meaning(manifest: Mapping[str, Any]) -> str:
    """The criterion of probability of a run in words."""
    criterion = manifest["criterion"]
    if criterion.get("wrong_class") is None:
        return f"the predicted class is wrong, and the true class has a probability below {criterion['true_below']:g}"
    name = class_name(class_names(manifest), int(criterion["wrong_class"]))
    return f"an input of another class has a probability above {criterion['wrong_above']:g} for {name}"


def _stage(stage: StageResult) -> ThresholdStage:
    names = set(ThresholdStage.model_fields) - {"unmet"}
    return ThresholdStage(unmet=stage.curve, **{name: getattr(stage, name) for name in names})


def _statement(figures: ModelResult, going: bool) -> str:
    """One sentence on the share at the largest eps."""
    clean, last, budget = figures.clean_accuracy, figures.robust_accuracy[-1], figures.eps_text[-1]
    if last.value is None:
        return f"No attack is finished, so nothing is known about {figures.criterion}."
    share = f"{100 * last.value:.1f} % of the inputs do not meet {figures.criterion}"
    if going:
        return f"At most {share} at {budget} so far: the run is not finished."
    if not clean.k:
        return f"Every clean input meets {figures.criterion}, so nothing was attacked."
    if last.eps == 0:
        return f"{share}; nothing was attacked, since no budget is above 0."
    if not last.k:
        return f"Every input meets {figures.criterion} at {budget}."
    untouched = f"{clean.n - clean.k} of {clean.n} meet it untouched"
    return f"At most {share} at {budget}: {untouched}, and attacks made {clean.k - last.k} more meet it."


def _notes(figures: ModelResult) -> Iterator[str]:
    """Sentences on failed and missing checks, and on weak attacks."""
    if failed := [check.code for check in figures.checks if check.passed is False]:
        yield f"{_join(failed)} failed, so attacks may have missed inputs that meet the criterion."
    if missing := not_made(figures.checks):
        yield f"{_join([check.code for check in missing])} could not be checked."
    if figures.weak and figures.robust_accuracy[-1].k:
        yield f"The attacks ({figures.weak}) are weaker than fast, which may find more: run --attack fast."
    if figures.robust_accuracy[-1].missing:
        yield f"{figures.robust_accuracy[-1].n} of {figures.n} samples could be judged; the figure is of these."


def _join(codes: Sequence[str]) -> str:
    """The first three codes, and the number of others."""
    return ", ".join(codes[:3]) + (f" and {len(codes) - 3} more" if len(codes) > 3 else "")
