"""Schema of the manifest of an audit."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from brinell.core.record import CLEAN
from brinell.manifest import (
    MOST,
    TIMES,
    Amount,
    Claimed,
    Content,
    Count,
    GrowingManifest,
    Listing,
    ModelFacts,
    Number,
    Passes,
    Share,
    TableOf,
    abbreviate,
    misfit,
)
from brinell.store.table import ROWS

REMARKS = Claimed("remarks of attacks, which may be about samples that were not drawn")
ARRAYS = re.compile(r"arrays/(.+)-(inputs|\d{4,})\.safetensors")
"""Files of arrays: the clean inputs of a model, and the inputs and extras of a stage."""


class FindingFacts(Content):
    """Result of a check of the model. Pages and JSON show it as it is, so it has no other keys."""

    model_config = ConfigDict(extra="forbid")

    code: str
    """The code of the check."""
    passed: bool | None
    """True if the check passed; null if it was not made."""
    text: str
    """The sentence about it."""
    figure: Number | None = None
    """The measured figure."""
    limit: Number | None = None
    """The limit of the figure."""
    error_rate: Number = 0.0
    """Largest probability that a healthy model fails the check."""
    cause: str | None = None
    """Cause of the failure."""
    reason: str | None = None
    """Why the check was not made, or could not decide."""


class RepairFacts(Passes):
    """The way around a gradient or a reject class that failed its check."""

    way: str = ""
    """Name of the repair."""
    disagreement: float | None = None
    """How far finite differences disagree with its gradients."""
    from_start: bool = False
    """True if every attack follows it, False if only those that wait for a repair do."""


class StageTurn(Content):
    """The samples that a stage attacks among those that are still robust."""

    within: Number | None = None
    """Only samples of whose clean margin earlier stages left at most this share."""
    last: Number | None = None
    """Only samples of whose clean margin the stage just before left at most this share."""
    share: Share = 1.0
    """Only this share of the samples."""
    alone: bool = False
    """Every sample, as if no stage had run before."""
    when: str | None = None
    """Only under this condition."""


class StageFacts(Content):
    """A stage of the cascade."""

    name: str
    """Its name in the rows."""
    label: str = ""
    """Its name for people without the samples that it is kept to."""
    kept_to: str = ""
    """The samples that it is kept to, for people."""
    attack: str = ""
    """The plug-in."""
    settings: dict[str, Any]
    """The settings of the attack."""
    turn: StageTurn = Field(default_factory=StageTurn)
    """The samples that the stage attacks."""
    eot: Annotated[int, Field(ge=1, le=MOST)] = 1
    """Number of averaged answers of a random model (EOT)."""
    gradient: str | None = None
    """Source of the gradients, if it is not the model."""
    family: str
    """`minimal` if one run of the attack gives the whole curve, `budgeted` if it gives one
    budget."""
    access: str
    """Access to the model that the attack needs."""


class RunModel(ModelFacts):
    """A model of a run."""

    spec: str
    """Spec of the model, as on the command line."""
    reject_class: Count | None = None
    """The class by which it rejects inputs."""


class CriterionFacts(Content):
    """Criterion of success."""

    name: str
    """The name of the criterion."""
    towards: str = ""
    """The target class, as it was asked for."""
    text: str = ""
    """The criterion of probability, as it was asked for."""
    true_below: Number | None = None
    """The probability below which the true class must fall; the class must be wrong, too."""
    wrong_class: Count | None = None
    """The class of a false positive, for inputs of other classes."""
    wrong_above: Number | None = None
    """The probability that the wrong class must exceed."""


class RecommendedFacts(Content):
    """Method that recommended the budget of each sample."""

    by: str
    """Source of the recommendation."""
    conditions: Listing[str]
    """The conditions under which it is sound."""
    folder: str | None = None
    """The folder of `brinell epsilon` that it comes from."""
    manifest: str | None = None
    """The digest of its manifest."""
    median: Amount
    """The median over samples."""
    least: Amount
    """The smallest."""
    most: Amount
    """The largest."""
    without: Count
    """Samples without a recommendation."""
    digest: str = ""
    """The hash of all of them."""


class SkippedStage(Content):
    """A stage that does not fit a model."""

    model: str
    """The name of the model."""
    stage: str
    """The name of the stage."""
    reason: str
    """Why it does not fit."""


class RunWarning(Content):
    """A warning to read before the figures."""

    code: str
    """The code of the warning."""
    model: str | None = None
    """The model that it is about; null where it is about all."""
    text: str
    """The sentence."""


class RunManifest(GrowingManifest):
    """Manifest of an audit."""

    seed: Count
    """The seed of every random number."""
    models: Listing[RunModel]
    """The models."""
    surrogates: Listing[ModelFacts] = []
    """The networks whose gradients attacks followed."""
    criterion: CriterionFacts = Field(default_factory=lambda: CriterionFacts(name="misclassified"))
    """Criterion of success."""
    distance: str
    """The distance in which eps is measured."""
    eps: Listing[Amount]
    """The budgets, ascending."""
    eps_text: Listing[str]
    """The budgets as they were written."""
    recommended: RecommendedFacts | None = None
    """Method that recommended the budget of each sample; null if budgets are numbers."""
    stages: Listing[StageFacts]
    """The stages of the cascade, in order."""
    skipped: Listing[SkippedStage] = []
    """Stages that do not fit a model."""
    warnings: Listing[RunWarning] = []
    """Warnings to read before the figures."""
    checks: TableOf[Listing[FindingFacts]] = {}
    """Results of the checks, by model."""
    remarks: Annotated[TableOf[TableOf[TableOf[str]]], REMARKS] = {}
    """Remarks of attacks, by model, stage and code."""
    extras: TableOf[TableOf[dict[str, Any]]] = {}
    """Meaning of the numbers that an attack stores for a sample, by model and stage."""
    left: TableOf[Listing[str]] = {}
    """Stages for which the time of the run was too short, by model."""
    waves: Count = 0
    """Number of waves in which the samples were attacked; 0 for a run without waves. The intervals
    of its rates hold at each look."""
    failed: TableOf[TableOf[TableOf[str]]] = {}
    """Samples that could not be judged and why, by model and stage."""
    repairs: TableOf[RepairFacts] = {}
    """The way around a gradient that failed its check, by model."""
    probes: Annotated[
        TableOf[Passes], Claimed("the cost of checks, which a resumed run pays more than once")
    ] = {}
    """Cost of the checks before the attacks, by model."""
    traffic: Annotated[TableOf[TableOf[Count]], Claimed("requests to a server")] = {}
    """Counters of a model on a remote machine, by model."""
    seconds: Annotated[TableOf[Amount], TIMES] = {}
    """Wall time, by model."""

    @model_validator(mode="after")
    def _fits(self) -> "RunManifest":
        """Refuse fields that contradict each other."""
        is_ascending = sorted(set(self.eps)) == self.eps
        names = [model.name for model in self.models]
        stages = [stage.name for stage in self.stages]
        attacks = self.request.get("attack")
        is_listed = isinstance(attacks, list) and all(isinstance(spec, str) for spec in attacks)
        samples = [
            sample
            for stages_of_model in self.failed.values()
            for reasons in stages_of_model.values()
            for sample in reasons
        ]
        faults = {
            "does not list the same budgets, ascending, in eps and eps_text": not self.eps
            or not is_ascending
            or len(self.eps_text) != len(self.eps),
            "does not list models and stages once each": not names
            or len({*names}) < len(names)
            or len({*stages}) < len(stages),
            "does not list its attacks in request": not is_listed,
            "names a sample by something else than its number in failed": not all(
                map(str.isdecimal, samples)
            ),
            **{
                f"lists {abbreviate(name)} in files, or lacks it, and its models and stages say "
                "otherwise": True
                for name in self._wrong_files(names, stages)
            },
        }
        # The first fault is said: later ones often follow from it.
        for text, is_fault in faults.items():
            if is_fault:
                raise misfit(text)
        return self

    def _wrong_files(self, models: list[str], stages: list[str]) -> list[str]:
        """Files that are neither the rows nor the arrays of a stage; the rows, where they are not
        listed.
        """
        # As much of a manifest as `stage_files` reads.
        names = {"models": models, "stages": stages}
        facts = {key: [{"name": name} for name in values] for key, values in names.items()}
        known = set(stage_files(facts).values())
        matches = {name: ARRAYS.fullmatch(name) for name in self.files}
        arrays = {name for name, match in matches.items() if match and match[1] in known}
        # Either a file too many, or the missing one.
        return sorted((self.files.keys() - arrays) ^ {ROWS})


def stages_of(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The models and stages of a run by name, in the order of their rows: model by model, the first
    check and the stages.
    """
    names = [CLEAN, *(str(stage["name"]) for stage in manifest["stages"])]
    return [(str(model["name"]), name) for model in manifest["models"] for name in names]


def stage_files(manifest: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """By model and stage the name of its files."""
    stages = len(manifest["stages"]) + 1
    return {
        (model, stage): file_name(number // stages, number % stages, stage)
        for number, (model, stage) in enumerate(stages_of(manifest))
    }


def file_name(model: int, number: int, stage: str) -> str:
    """The name of the files of a stage: the place of the model, from 1, that of the stage, after
    the first check, and the attack, as in `1-02-apgd-ce`.
    """
    return f"{model + 1}-{number:02d}-{_slug(stage)}"


def _slug(stage: str) -> str:
    """The name of an attack as a part of a file's name: without settings, folder and odd characters."""
    return re.sub(r"[^a-z0-9]+", "-", stage.partition("?")[0].rpartition("/")[2].lower()).strip(
        "-"
    )[:40]
