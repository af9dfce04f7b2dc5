"""What the manifest of an audit says."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from brinell.manifest import (
    MOST,
    Amount,
    Content,
    Count,
    DataFacts,
    GrowingManifest,
    Listing,
    ModelFacts,
    Named,
    Number,
    Passes,
    Share,
    misfit,
)


class Finding(Content):
    """What a check of the model found."""

    code: str
    """The code of the check."""
    passed: bool | None
    """Whether it passed; null where it was not made."""
    text: str
    """The sentence about it."""
    figure: float | None = None
    """What was measured."""
    limit: float | None = None
    """What the figure was compared with."""
    cause: str | None = None
    """What the failure is due to."""
    reason: str | None = None
    """Why the check was not made."""


class Repair(Passes):
    """The way around a gradient or a reject class that failed its check."""

    way: str = ""
    """What it is."""
    disagreement: float | None = None
    """How far finite differences disagree with its gradients."""


class StageTurn(Content):
    """Which of the samples that are still robust a stage attacks."""

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
    """Which samples it attacks."""
    eot: Annotated[int, Field(ge=1, le=MOST)] = 1
    """How many answers of a random model are averaged."""
    gradient: str | None = None
    """Whose gradients it follows, where they are not the model's own."""
    family: str = ""
    """Whether one run of the attack gives the whole curve (minimal) or one budget (budgeted)."""
    access: str = ""
    """What the attack needs of a model."""
    cells: Named[str]
    """By model, the hash of all that its rows depend on."""


class RunModel(ModelFacts):
    """A model of a run."""

    spec: str
    """How the model is named, as on the command line."""
    cells: Named[str]
    """The hash of all that the rows of the first check depend on."""
    reject_class: Count | None = None
    """The class by which it rejects inputs."""


class CriterionFacts(Content):
    """What counts as adversarial."""

    name: str
    """The name of the criterion."""
    towards: str = ""
    """The target class, as it was asked for."""


class RecommendedFacts(Content):
    """How each sample's own budget was recommended."""

    by: str
    """What recommended it."""
    conditions: Listing[str]
    """The conditions under which it is sound."""
    folder: str | None = None
    """The folder of `brinell epsilon` that it comes from."""
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
    why: str
    """Why it does not fit."""


class RunWarning(Content):
    """What a reader must know before the figures."""

    code: str
    """The code of the warning."""
    model: str | None = None
    """The model that it is about; null where it is about all."""
    text: str
    """The sentence."""


class RunManifest(GrowingManifest):
    """What the manifest of an audit says."""

    seed: Count
    """The seed of every random number."""
    data: DataFacts
    """The data."""
    models: Listing[RunModel]
    """The models."""
    criterion: CriterionFacts = Field(default_factory=lambda: CriterionFacts(name="misclassified"))
    """What counts as adversarial."""
    distance: str
    """The distance in which eps is measured."""
    eps: Listing[Amount]
    """The budgets, ascending."""
    eps_text: Listing[str]
    """The budgets as they were written."""
    recommended: RecommendedFacts | None = None
    """How each sample's own budget was recommended; null where budgets are numbers."""
    stages: Listing[StageFacts]
    """The stages of the cascade, in order."""
    skipped: Listing[SkippedStage] = []
    """Stages that do not fit a model."""
    warnings: Listing[RunWarning] = []
    """What a reader must know before the figures."""
    files: Named[str] = {}
    """The hash of every file of rows and arrays, once the run is finished."""
    checks: Named[Listing[Finding]] = {}
    """What the checks found, by model."""
    remarks: Named[Named[Named[str]]] = {}
    """What attacks remarked, by model, stage and code."""
    extras: Named[Named[dict[str, Any]]] = {}
    """What the numbers that an attack keeps of a sample mean, by model and stage."""
    failed: Named[Named[Named[str]]] = {}
    """Samples that could not be judged and why, by model and stage."""
    repairs: Named[Repair] = {}
    """The way around a gradient that failed its check, by model."""
    traffic: Named[Named[Count]] = {}
    """What a model on another machine counted, by model."""
    seconds: Named[Amount] = {}
    """Wall time, by model."""

    @model_validator(mode="after")
    def _fits(self) -> "RunManifest":
        if not self.eps or sorted(set(self.eps)) != self.eps or len(self.eps_text) != len(self.eps):
            raise misfit("does not list the same budgets, ascending, in eps and eps_text")
        names, stages = [model.name for model in self.models], [stage.name for stage in self.stages]
        if not names or len({*names}) < len(names) or len({*stages}) < len(stages):
            raise misfit("does not list models and stages once each")
        samples = (sample for stages in self.failed.values() for failed in stages.values() for sample in failed)
        if not all(sample.isdecimal() for sample in samples):
            raise misfit("names a sample by something else than its number in failed")
        return self
