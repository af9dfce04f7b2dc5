"""The result of a hardening: the audits before and after, paired by sample, and the training curve."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from brinell.analysis.compare import compare
from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.inference import holm
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.results import CompareResult, ModelResult, Share
from brinell.analysis.robust_accuracy import share, summarise_model
from brinell.studies.harden.records import AFTER, BEFORE, LAYOUT, load_audit, locate_hardened


class Point(Result):
    """One check of the network on validation samples during training."""

    step: int
    """Updates of the weights so far."""
    seconds: float
    """Time of the training so far."""
    recipe: str
    """The recipe in use."""
    eps: float
    """The training budget at this step, in input units."""
    loss: float | None
    """Loss of the preceding batch; null at the check before the first step."""
    clean: Share
    """Correct on clean inputs."""
    seen: Share
    """Correct on the adversarial inputs that the recipe crafts at this eps."""
    pgd: Share
    """Correct after PGD (10 steps) at this eps."""
    robust: Share
    """Correct after PGD at the full eps, with the averaged weights. The final weights maximise this rate."""
    good: bool
    """True if the network withstands PGD about as well as the training attack."""


class Unseen(Result):
    """Accuracy of both models under one change of the inputs, on the same samples."""

    name: str
    """The change: a distortion, or an attack in a norm."""
    distortion: str | None
    """Public name of the distortion; null for an attack."""
    seen: bool
    """True if the training used this change."""
    n: int
    """Samples."""
    before: Share
    """Correct before the training."""
    after: Share
    """Correct after the training."""
    difference: float
    """After minus before."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    """Upper end of its 95 % interval."""
    p: float
    """p-value of McNemar's exact test, with Holm's correction over all changes."""


class HardenResult(FolderResult):
    """`brinell harden --json`."""

    words: ClassVar[frozenset[str]] = FolderResult.words | {"curve", "ended_with", "events", "forwards", "backwards", "steps"}
    weights: str
    """The hardened weights: a state dict in a safetensors file."""
    spec: str | None
    """The value of --model that loads the hardened model; null if the model was passed in memory."""
    model: str
    """Name of the model."""
    recipe: str
    """The requested training recipe."""
    ended_with: str
    """The recipe at the end. It differs from `recipe` if the training recovered from catastrophic overfitting."""
    norm: str
    """The distance that eps is measured in."""
    eps: float
    """The training budget, in input units."""
    trained_on: int
    """Training samples."""
    validation: int
    """Number of training samples set aside for validation."""
    steps: int
    """Number of weight updates."""
    seconds: float
    """Duration of the training in seconds: processor time on a CPU, wall time on a GPU."""
    forwards: int
    """Forward evaluations of single inputs by the training, without its checks."""
    backwards: int
    """Backward evaluations of single inputs by the training, without its checks."""
    events: list[str]
    """Events of the training that a reader should know, such as overfitting or an early stop."""
    curve: list[Point] = Field(repr=False)
    """The checks, in order of their steps."""
    unseen: list[Unseen] = Field(repr=False)
    """Accuracy under distortions and under attacks in both norms."""
    before: ModelResult
    """The audit before the training, in the form of `brinell audit --json`."""
    after: ModelResult
    """The audit after the training, in the form of `brinell audit --json`."""
    comparison: CompareResult
    """Model A is the hardened model and B the original: differences on the same samples, with McNemar's test."""


def summarise(folder: Path) -> HardenResult:
    """Summarise the folder of a finished hardening.

    Raises:
        RequestError: the folder holds no finished hardening, or one of its files is damaged.
    """
    manifest = LAYOUT.open(folder)
    training: dict[str, Any] = manifest["training"]
    before, after = load_audit(folder, BEFORE), load_audit(folder, AFTER)
    weights, spec = locate_hardened(folder, manifest)
    return HardenResult(
        folder=str(folder),
        weights=str(weights),
        spec=spec,
        model=manifest["model"]["name"],
        recipe=manifest["request"]["recipe"],
        ended_with=training["recipe"],
        norm=manifest["request"]["norm"],
        eps=manifest["eps"],
        trained_on=manifest["trained_on"],
        validation=manifest["validation"],
        steps=training["step"],
        seconds=training["seconds"],
        forwards=training["forwards"],
        backwards=training["backwards"],
        events=training["events"],
        curve=[_point(row) for row in training["curve"]],
        unseen=_unseen(training["unseen"]),
        before=summarise_model(before.manifest, before.records, before.run, before.model),
        after=summarise_model(after.manifest, after.records, after.run, after.model),
        comparison=compare(after, before),
    )


def _unseen(rows: Sequence[Mapping[str, Any]]) -> list[Unseen]:
    """Both models under each change, with p-values corrected over all changes."""
    p_values = holm([mcnemar(int(row["only_after"]), int(row["only_before"])) for row in rows])
    return [_unseen_row(row, p) for row, p in zip(rows, p_values, strict=True)]


def _unseen_row(row: Mapping[str, Any], p: float) -> Unseen:
    """Change of accuracy on one unseen corruption or attack."""
    both_right, only_after, only_before, both_wrong = (int(row[key]) for key in ("both", "only_after", "only_before", "neither"))
    n = both_right + only_after + only_before + both_wrong
    interval = paired_difference(both_right, only_after, only_before, both_wrong)
    assert interval is not None, "there is at least one sample"
    sides = (share([True] * k + [False] * (n - k)) for k in (both_right + only_before, both_right + only_after))
    return Unseen(
        name=row["name"],
        distortion=row.get("distortion"),
        seen=row["seen"],
        n=n,
        **dict(zip(("before", "after"), sides, strict=True)),
        difference=(only_after - only_before) / n,
        low=interval.low,
        high=interval.high,
        p=p,
    )


def _point(row: dict[str, Any]) -> Point:
    """Figures of one check during the training."""
    n = int(row["n"])
    rates: dict[str, Any] = {
        name: share([True] * row[name] + [False] * (n - row[name])) for name in ("clean", "seen", "pgd", "robust")
    }
    return Point(**{name: row[name] for name in ("step", "seconds", "recipe", "eps", "loss", "good")}, **rates)
