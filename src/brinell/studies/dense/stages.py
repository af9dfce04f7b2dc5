"""One attack on one group of inputs: from the ledger to the strongest input of each, whatever the task."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from brinell.core.contracts import Attack, reach_of
from brinell.core.criterion import Criterion
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat
from brinell.studies.kit import Plan


@dataclass(frozen=True, kw_only=True)
class Stage:
    """An attack under the name that the rows give it."""

    name: str
    attack: Attack


@dataclass(frozen=True)
class Setting:
    """Settings that all groups share."""

    levels: tuple[float, ...]
    """Budgets above 0, ascending."""
    texts: tuple[str, ...] = ()
    """Budgets as they were written."""
    stages: tuple[Stage, ...] = ()
    """The attacks, in order."""


@dataclass(frozen=True, kw_only=True)
class DensePlan(Plan):
    """The plan of a study of dense outputs."""

    setting: Setting
    on_pass: Callable[[int, int], None] | None = None
    """Called with (forwards, backwards) after each batch."""


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """Result of a stage on n inputs."""

    x: Tensor
    """(n, *shape): the strongest input within the budget."""
    margin: Tensor
    """(n,): its margin."""
    successes: Tensor
    """(n,) bool: whether it meets the criterion."""
    first_success: Tensor
    """(n,) int64: the forward at which that was first so; 0 for never."""
    forwards: Tensor
    backwards: Tensor
    seconds: float
    """Wall time of each input."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Inputs that are attacked together."""

    model: Model
    domain: Domain
    distance: Distance
    ids: Tensor
    """(n,) int64: positions in the data, which decide random numbers."""
    x: Tensor
    """(n, *shape): clean inputs."""
    criterion: Criterion
    seed: int
    batch_size: int
    queries: int | None
    on_pass: Callable[[int, int], None] | None = None

    @cached_property
    def rng(self) -> Streams:
        """Streams of the inputs."""
        return Streams.of(self.seed, self.ids)

    def run(self, stage: Stage, eps: float, rows: Tensor, start: Tensor | None) -> StageResult:
        """Run a stage on some inputs.

        Args:
            stage: the attack.
            eps: the budget of each.
            rows: (k,) int64: the inputs.
            start: (k, *shape) inputs within the budget to begin with; None for none.
        """
        begin, device = time.perf_counter(), self.x.device
        attack, x = stage.attack, self.x[rows]
        batch = Batch(
            ids=torch.arange(len(rows), device=device),
            x=x,
            y=torch.zeros(len(rows), dtype=torch.int64, device=device),
            start=start,
        )
        budget = torch.full((len(rows),), eps, device=device)
        threat = Threat(distance=self.distance, eps=budget, domain=self.domain, criterion=self.criterion.select(rows))
        ledger = Ledger(
            self.model,
            batch,
            threat,
            access=attack.access,
            queries=self.queries,
            batch_size=self.batch_size,
            minimal=attack.family == "minimal",
            reach=reach_of(attack, self.distance.name),
            strongest=True,
            on_pass=self.on_pass,
        )
        attack(ledger.oracle(), ledger.batch, ledger.threat, self.rng.select(rows).fold(f"{stage.name} {eps!r}"))
        fooled = ledger.fooled
        return StageResult(
            x=torch.where(fooled[:, None, None, None], ledger.best.closest, ledger.best.strongest),
            margin=ledger.best.margin,
            successes=fooled,
            first_success=ledger.best.first_success,
            forwards=ledger.costs.forwards,
            backwards=ledger.costs.backwards,
            seconds=(time.perf_counter() - begin) / len(rows),
        )
