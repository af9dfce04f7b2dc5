"""What each verb prints with --json, as models; docs/schema holds their JSON Schemas."""

from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from brinell.analysis.results import AuditResult, CompareResult, GateResult, ModelResult
from brinell.auditing.verify import VerifyResult


class Answer(BaseModel):
    """Base: nothing beyond the fields, and none may be missing."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PlannedCell(Answer):
    """One attack on one model, over all budgets."""

    model: str
    """Name of the model."""
    stage: str
    """Name of the attack."""
    forwards_at_most: int
    """Forward evaluations if every budget is fought to the end on every sample."""
    backwards_at_most: int
    """Backward evaluations, likewise."""
    skipped: str | None
    """Why the attack cannot run on this model; null where it can."""


class PlanAnswer(Answer):
    """`brinell audit --dry-run --json`."""

    data: str
    """Name of the data."""
    n: int
    """Samples that would be used."""
    total: int
    """Samples that the data holds."""
    norm: str
    """Distance in which eps is measured."""
    eps: tuple[str, ...]
    """Budgets, as they are written."""
    group_size: int
    """Samples that one unit of work holds."""
    cells: tuple[PlannedCell, ...]
    """Every attack on every model."""


class ReportAnswer(Answer):
    """`brinell report --json`."""

    run: str
    """The run folder."""
    report: str
    """The page."""


class PluginAnswer(Answer):
    """One plugin."""

    kind: str
    """attack, distance, filter, dataset or target."""
    name: str
    """What to write on the command line."""
    summary: str
    """One sentence."""
    settings: dict[str, str]
    """Settings and their defaults, as Python writes them."""


class PluginsAnswer(Answer):
    """`brinell plugins --json`."""

    plugins: tuple[PluginAnswer, ...]
    """All of the kind asked for."""


class LevelAnswer(Answer):
    """The inputs of a benchmark set at one level."""

    level: float
    """Multiple of the L2 distance at the flip; 0 is the clean input, 1 the flip."""
    inputs: int
    """How many the set holds."""
    unreached: int
    """Samples whose bounds do not allow this multiple."""
    accuracy: float | None
    """Share of the inputs that the model gets right; null where there are none."""
    accuracy_stored: float | None
    """The same of the pictures in 8 bits; null where nothing is rounded."""
    at_goal: float | None
    """Share at which the goal holds."""
    median_l2: float | None
    """Median L2 distance from the clean input."""


class BenchmarkAnswer(Answer):
    """`brinell benchmark --json`."""

    folder: str
    """The set's folder."""
    samples: int
    """Samples that were looked at."""
    outcomes: dict[str, int]
    """What became of them: reached, not_reached, misclassified, already, own_class."""
    queries: int
    """Every forward of the model."""
    training_queries: int | None
    """Forwards that the policy was trained with; null where its file does not say."""
    median_queries_to_goal: float | None
    """Of the samples with a flip: forwards until the goal was first reached."""
    median_queries_to_flip: float | None
    """The same until the flip was settled, refinement and clean-up included."""
    median_l2: float | None
    """Median L2 distance of the flips."""
    median_patches: float | None
    """Median number of patches that have something on them at the flip."""
    levels: tuple[LevelAnswer, ...]
    """Every level, the clean inputs first."""


SCHEMAS: dict[str, Any] = {
    "audit": ModelResult | AuditResult,
    "benchmark": BenchmarkAnswer,
    "compare": CompareResult,
    "gate": GateResult,
    "plan": PlanAnswer,
    "plugins": PluginsAnswer,
    "report": ReportAnswer,
    "verify": VerifyResult,
}
"""Verb to what it prints; `plan` is `audit --dry-run`."""


def schema(verb: str) -> dict[str, Any]:
    """The JSON Schema of what a verb prints."""
    return TypeAdapter(SCHEMAS[verb]).json_schema(by_alias=True, mode="serialization")
