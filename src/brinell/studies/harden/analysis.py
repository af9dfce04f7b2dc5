"""What a hardening came to: the audits before and after, sample by sample, and how the training went."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from brinell.analysis.compare import compare
from brinell.analysis.results import CompareResult, FolderResult, ModelResult, Result, Share
from brinell.analysis.robust_accuracy import share, summarise_model
from brinell.analysis.stats import holm, mcnemar, paired_difference
from brinell.studies.harden.records import AFTER, BEFORE, LAYOUT, hardened_of, side


class Point(Result):
    """One check of a training, on validation samples, which are no part of the training."""

    step: int
    """Updates of the weights so far."""
    seconds: float
    """Time of the training so far."""
    recipe: str
    """What was trained with."""
    eps: float
    """The budget of the training at that moment."""
    loss: float | None
    """Of the batch before; null at the check before the first step."""
    clean: Share
    """Right on untouched inputs."""
    seen: Share
    """Right on what the recipe crafts at this eps."""
    pgd: Share
    """Right after PGD of ten steps at this eps."""
    robust: Share
    """Right after PGD at the full eps, of the averaged weights: by this the weights that are kept were chosen."""
    good: bool
    """Whether the network held against PGD about as well as against the training attack."""


class Unseen(Result):
    """Both models under one change of the inputs, on the same samples."""

    name: str
    """The change: a distortion, or an attack in a norm."""
    distortion: str | None
    """The distortion by its public name; null for an attack."""
    seen: bool
    """Whether the training used it: then it is here for comparison."""
    n: int
    """Samples."""
    before: Share
    """Right before the training."""
    after: Share
    """Right after it."""
    difference: float
    """After minus before."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    """Upper end."""
    p: float
    """McNemar's exact test, corrected for the number of changes (Holm)."""


class HardenResult(FolderResult):
    """`brinell harden --json`."""

    weights: str
    """The hardened weights: a state dict in a safetensors file."""
    spec: str | None
    """What --model takes to load the hardened model; null for a model that was given in memory."""
    model: str
    """Name of the model."""
    recipe: str
    """How it was trained, as it was asked for."""
    ended_with: str
    """The recipe at the end: another one where the training went back from catastrophic overfitting."""
    norm: str
    """The distance of eps."""
    eps: float
    """The budget that was trained for."""
    trained_on: int
    """Training samples."""
    validation: int
    """Of the training data, samples by which the weights were chosen."""
    steps: int
    """Updates of the weights."""
    seconds: float
    """Time of the training: processor time on a CPU."""
    forwards: int
    """Forward evaluations of single inputs by the training, without its checks."""
    backwards: int
    """Backward evaluations, likewise."""
    events: list[str]
    """What happened that a reader should know: an overfitting that was noticed, an early end."""
    curve: list[Point] = Field(repr=False)
    """The checks, in order."""
    unseen: list[Unseen] = Field(repr=False)
    """Whether robustness carries over: distortions, and attacks in both norms."""
    before: ModelResult
    """The audit before, as `brinell audit --json` prints it."""
    after: ModelResult
    """The audit after, likewise."""
    comparison: CompareResult
    """A is the model after, B before: differences on the same samples, with McNemar's test."""


def summarise(folder: Path) -> HardenResult:
    """What the folder of a hardening says.

    Raises:
        RequestError: no finished hardening there, or a damaged file in it.
    """
    held = LAYOUT.open(folder)
    training: dict[str, Any] = held["training"]
    before, after = side(folder, BEFORE), side(folder, AFTER)
    weights, spec = hardened_of(folder, held)
    return HardenResult(
        folder=str(folder),
        weights=str(weights),
        spec=spec,
        model=held["model"]["name"],
        recipe=held["request"]["recipe"],
        ended_with=training["recipe"],
        norm=held["request"]["norm"],
        eps=held["eps"],
        trained_on=held["trained_on"],
        validation=held["validation"],
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
    """Both models under each change; p-values hold with all changes read together."""
    tested = holm([mcnemar(int(row["only_after"]), int(row["only_before"])) for row in rows])
    return [_pair(row, p) for row, p in zip(rows, tested, strict=True)]


def _pair(row: Mapping[str, Any], p: float) -> Unseen:
    both, gained, lost, neither = (int(row[key]) for key in ("both", "only_after", "only_before", "neither"))
    n = both + gained + lost + neither
    interval = paired_difference(both, gained, lost, neither)
    assert interval is not None, "there is at least one sample"
    sides = (share([True] * k + [False] * (n - k)) for k in (both + lost, both + gained))
    return Unseen(
        name=row["name"],
        distortion=row.get("distortion"),
        seen=row["seen"],
        n=n,
        **dict(zip(("before", "after"), sides, strict=True)),
        difference=(gained - lost) / n,
        low=interval.low,
        high=interval.high,
        p=p,
    )


def _point(row: dict[str, Any]) -> Point:
    n = int(row["n"])
    rates: dict[str, Any] = {
        name: share([True] * row[name] + [False] * (n - row[name])) for name in ("clean", "seen", "pgd", "robust")
    }
    return Point(**{name: row[name] for name in ("step", "seconds", "recipe", "eps", "loss", "good")}, **rates)
