"""What each verb prints with --json, as models; docs/schema holds their JSON Schemas."""

from typing import Any

from pydantic import TypeAdapter

from brinell.analysis.gate import GateResult
from brinell.analysis.results import AuditResult, BenchmarkResult, CompareResult, ModelResult, Result
from brinell.studies.corruption.results import CorruptResult
from brinell.studies.detection.analysis import DetectionResult
from brinell.studies.epsilon.analysis import EpsilonResult
from brinell.studies.explain.analysis import ExplainResult
from brinell.studies.export.answer import ExportAnswer
from brinell.studies.harden.analysis import HardenResult
from brinell.studies.metric.run import MetricAnswer
from brinell.studies.per_class.results import StudyResult
from brinell.studies.review.analysis import ReviewResult
from brinell.studies.transfer.results import TransferResult
from brinell.studies.unrestricted.analysis import UnrestrictedResult
from brinell.studies.verification.result import VerifyResult
from brinell.watching import RunProgress


class PlannedCell(Result):
    """One attack on one model, over all budgets."""

    model: str
    """Name of the model."""
    stage: str
    """The attack with its exact settings, as it was asked for."""
    title: str
    """Its name for people, the samples that it is kept to included."""
    short: str
    """What it does and no more."""
    forwards_at_most: int
    """Forward evaluations if every budget is fought to the end on every sample."""
    backwards_at_most: int
    """Backward evaluations, likewise."""
    waits: bool
    """Whether it waits for an alarm, which the calibration did not raise."""
    passes: int | None
    """Forwards and backwards that are expected; null without a calibration, and while the attack waits."""
    seconds: float | None
    """Time that is expected, likewise."""
    skipped: str | None
    """Why the attack cannot run on this model; null where it can."""


class EstimateAnswer(Result):
    """What the audit of one model is expected to cost."""

    model: str
    """Name of the model."""
    passes: int
    """Forwards and backwards of all attacks."""
    seconds: float
    """Time, the checks included."""
    low: float
    """Lower end of the 95 % interval of the time, for what another few samples may say."""
    high: float
    """Upper end."""
    memory: int
    """Bytes that the process needs at most."""
    alarmed: float
    """Seconds that the stages for masked gradients cost besides, if a check raises that alarm."""
    samples: int
    """Samples of the calibration."""
    spent: float
    """Seconds that it took."""


class WorkersAnswer(Result):
    """The audit of all models, divided among several processes (`--shard 1/N --dry-run`)."""

    number: int
    """Processes, and shards."""
    seconds: float
    """The time of one process, divided by their number; waits for the last group of a stage are left out."""
    memory: int
    """Bytes that each of them needs at most."""


class PlanAnswer(Result):
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
    """Samples that one shard holds."""
    cells: tuple[PlannedCell, ...]
    """Every attack on every model."""
    estimates: tuple[EstimateAnswer, ...]
    """One for each model; empty without a calibration, and for models on other machines, which are asked nothing."""
    workers: WorkersAnswer | None = None
    """The same on several processes; None without --shard, or where a model has no estimate."""


class AgentValidation(Result):
    """What an agent is worth on inputs that it did not learn from. An input that it did not fool counts with the budget."""

    inputs: int
    """How many."""
    budget: int
    """Queries of one input at most."""
    queries: dict[str, float]
    """Mean queries of an input: of the policy, of greedy, of the default where it is another, and of the policy's own prior."""
    ratios: dict[str, tuple[float, float, float]]
    """Mean queries of the policy over those of each other, with the ends of the 95 % bootstrap interval over inputs."""
    verdict: str
    """The same in a sentence."""
    warning: str | None
    """What to do where the policy needs more queries than greedy; null where it does not."""


class AgentAnswer(Result):
    """`brinell train-agent --json`."""

    policy: str
    """The policy file."""
    inputs: int
    """Inputs that it learned on."""
    training_queries: dict[str, int]
    """Forward evaluations by what they were for: first looks, probes, steps and validation."""
    validation: AgentValidation | None
    """What it is worth on inputs that it did not learn from; null where there was none to hold out."""


class GeneratorAnswer(Result):
    """`brinell train-generator --json`."""

    generator: str
    """The file."""
    bytes: int
    """Its size."""
    steps: int
    """Updates of both networks."""
    samples: int
    """Inputs that it learned from."""
    digest: str
    """Hash of all that its drawings depend on."""


class SignAnswer(Result):
    """`brinell sign --json`."""

    run: str
    """The run folder."""
    signature: str
    """The file of the signature."""
    key: str
    """SHA-256 of the public key, as ssh-keygen shows it."""


class ReportAnswer(Result):
    """`brinell report --json`."""

    run: str
    """The run folder."""
    report: str
    """The page."""


class PluginAnswer(Result):
    """One plugin."""

    kind: str
    """attack, distance, distortion, defence, detector, explainer, dataset or model."""
    name: str
    """What to write on the command line."""
    summary: str
    """One sentence."""
    settings: dict[str, str]
    """Settings and their defaults, as Python writes them."""


class CascadeAnswer(Result):
    """Attacks in an order, under one name."""

    name: str
    """What to write after --attack."""
    also: tuple[str, ...]
    """Other names that mean the same."""
    summary: str
    """What it is for."""
    stages: tuple[str, ...]
    """The attacks with their exact settings, in order."""


class PluginsAnswer(Result):
    """`brinell plugins --json`."""

    plugins: tuple[PluginAnswer, ...]
    """All of the kind asked for."""
    cascades: tuple[CascadeAnswer, ...]
    """The cascades, where they or all kinds were asked for."""


SCHEMAS: dict[str, Any] = {
    "audit": ModelResult | AuditResult,
    "benchmark": BenchmarkResult,
    "compare": CompareResult,
    "corrupt": CorruptResult,
    "detect": DetectionResult,
    "epsilon": EpsilonResult,
    "explain": ExplainResult,
    "export": ExportAnswer,
    "gate": GateResult,
    "harden": HardenResult,
    "train-agent": AgentAnswer,
    "train-metric": MetricAnswer,
    "plan": PlanAnswer,
    "plugins": PluginsAnswer,
    "progress": RunProgress,
    "report": ReportAnswer,
    "review": ReviewResult,
    "sign": SignAnswer,
    "study": StudyResult,
    "transfer": TransferResult,
    "train-generator": GeneratorAnswer,
    "unrestricted": UnrestrictedResult,
    "verify": VerifyResult,
}
"""Verb to what it prints; `plan` is `audit --dry-run`, `review` is `epsilon --review`."""


def schema(verb: str) -> dict[str, Any]:
    """The JSON Schema of what a verb prints."""
    return TypeAdapter(SCHEMAS[verb]).json_schema(by_alias=True, mode="serialization")
