"""One shard of an audit: one attack on one group of samples, each at its own eps, from the oracle to the rows."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.contracts import Extras, Remark, reach_of
from brinell.core.criterion import MISCLASSIFIED, Criterion, NotRejected, Targeted
from brinell.core.domain import Domain
from brinell.core.eot import EOT, Precision
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.oracle import Batch
from brinell.core.quantise import quantise
from brinell.core.record import Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, size, tolerance
from brinell.engine.cascade import Stage
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.watch import Counted, Watch
from brinell.store import rows


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all shards of a stage share."""

    name: str
    """Name of the model, as the records have it."""
    model: Model
    stage: Stage
    distance: Distance
    domain: Domain
    levels: Array
    """(levels,) float64: the positive budgets, ascending; in units of the data, or multiples of each sample's own."""
    seed: int
    batch_size: int
    queries: int | None
    precision: Precision = "float32"
    reject: int | None = None
    """The class by which the model rejects inputs."""
    on_pass: Callable[[int, int], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Group:
    """The samples of a shard; arrays and tensors are aligned."""

    sample_id: Array
    label: Array
    target: Array | None
    """(n,) target classes; None where any wrong class counts."""
    clean_pred: Array
    clean_confidence: Array
    level: Array
    """(n,) int64: index into the setting's levels of the budget to attack at."""
    x: Tensor
    """(n, *shape): clean inputs on the model's device."""
    unit: Array
    """(n,) float64: what the setting's levels are multiples of."""

    def radius(self, levels: Array, at: Array, level: Array) -> Array:
        """(len(at),) float64: the budget of some samples in the units of the data."""
        return np.asarray(levels[level] * self.unit[at])

    def select(self, at: Array) -> "Group":
        """The samples at some positions."""
        rest: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "x"}
        rest = {name: None if column is None else column[at] for name, column in rest.items()}
        return Group(x=self.x[torch.as_tensor(at, device=self.x.device)], **rest)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a shard found."""

    records: Records
    arrays: dict[int, Array]
    """Adversarial inputs by sample id."""
    remarks: tuple[Remark, ...]
    """What the attack says of how it went."""
    extras: dict[int, dict[str, Array]] = field(default_factory=dict)
    """What it says of each sample, by sample id and name."""
    legend: Mapping[str, Any] = field(default_factory=dict)
    """What the numbers in the extras mean."""


def joined(parts: Sequence[Result]) -> Result:
    """What several parts of a shard found, as one."""
    return Result(
        records=rows.concatenate([part.records for part in parts]),
        arrays={sample: array for part in parts for sample, array in part.arrays.items()},
        remarks=tuple(one for part in parts for one in part.remarks),
        extras={sample: named for part in parts for sample, named in part.extras.items()},
        legend=next((part.legend for part in parts if part.legend), {}),
    )


def run_shard(setting: Setting, group: Group) -> Result:
    """Attack a group, shrink what was found to the smallest budgets it fits, judge it, and write it down."""
    started = time.perf_counter()
    device = group.x.device
    levels = torch.as_tensor(group.unit[:, None] * setting.levels, dtype=torch.float32, device=device)
    batch = Batch(ids=torch.arange(len(group.x), device=device), x=group.x, y=torch.as_tensor(group.label, device=device).long())
    threat = Threat(
        distance=setting.distance,
        eps=_at(levels, torch.as_tensor(group.level, device=device)),
        domain=setting.domain,
        criterion=criterion_of(group.target, device, setting.reject),
    )
    minimal = setting.stage.attack.family == "minimal"
    names = ("sample_id", "label", "target", "clean_pred", "clean_confidence", "level", "unit")
    watch = Watch(setting.model, group.x, {name: getattr(group, name) for name in names} | {"budgets": setting.levels})
    counted = Counted(setting.model)
    ledger = Ledger(
        cast(Model, counted),
        batch,
        threat,
        access=setting.stage.attack.access,
        queries=setting.queries,
        batch_size=setting.batch_size,
        minimal=minimal,
        reach=reach_of(setting.stage.attack, setting.distance.name),
        eot=setting.stage.eot,
        precision=setting.precision,
        on_pass=setting.on_pass,
    )
    rng = Streams.of(setting.seed, torch.as_tensor(group.sample_id, device=device)).fold(setting.stage.name)
    told = setting.stage.attack(ledger.oracle(), ledger.batch, ledger.threat, rng) or Extras()
    judge = criterion_of(group.target, device, setting.reject)
    watch.check(
        setting.stage.name,
        ledger,
        counted,
        lambda at, logits, x: judge.select(at).margin(logits, torch.as_tensor(group.label, device=device).long()[at], x),
    )
    if not minimal:
        _shrink(ledger, levels)
    broken = _level_of(ledger.best.distance, levels, threat).cpu().numpy()
    fooled = broken < levels.shape[1]
    at = np.flatnonzero(fooled)
    found = _judge(setting, group, ledger, at, group.radius(setting.levels, at, broken[fooled]))
    forwards, backwards = ledger.costs.forwards.cpu().numpy(), ledger.costs.backwards.cpu().numpy()
    seconds = (time.perf_counter() - started) * (forwards + backwards) / max(1, (forwards + backwards).sum())
    costs = {"forwards": forwards, "backwards": backwards, "seconds": seconds}
    survived = ~fooled | (np.full(len(fooled), minimal) & (broken > 0))
    margin = ledger.best.margin.cpu().numpy()
    records = _write(setting, group, broken, survived, found, costs, margin)
    closest = ledger.best.closest.cpu().numpy()
    arrays = {int(group.sample_id[row]): closest[row] for row in at}
    return Result(records=records, arrays=arrays, remarks=tuple(told.remarks), extras=_by_sample(group, told), legend=told.legend)


def _by_sample(group: Group, told: Extras) -> dict[int, dict[str, Array]]:
    """The rows of the extras, each with its sample."""
    if told.arrays and not told.legend:
        raise ContractError("the attack's extras have no legend, so that nobody could read them")
    for name, rows_ in told.arrays.items():
        if len(rows_) != len(group.x):
            raise ContractError(f"the attack's extras {name!r} have {len(rows_)} rows for {len(group.x)} samples")
    arrays = {name: column.cpu().numpy() for name, column in told.arrays.items()}
    return {int(sample): {name: column[row] for name, column in arrays.items()} for row, sample in enumerate(group.sample_id)}


def _at(levels: Tensor, level: Tensor) -> Tensor:
    return levels.gather(1, level[:, None])[:, 0]


def _level_of(reach: Tensor, levels: Tensor, threat: Threat) -> Tensor:
    """(n,) index of the smallest of its levels (n, levels) that each distance fits into; the number of levels where none does."""
    return (reach[:, None] > levels + tolerance(levels, threat.distance, threat.domain)).sum(1)


def _shrink(ledger: Ledger, levels: Tensor) -> None:
    """Move each find towards its clean input, bisecting the levels below it; one forward a step, counted as the attack's."""
    oracle, batch, threat = ledger.oracle(), ledger.batch, ledger.threat
    reached = _level_of(ledger.best.distance, levels, threat)
    failed = torch.full_like(reached, -1)
    while True:
        open_ = ledger.fooled & (reached - failed > 1) & ledger.affordable(batch.ids)
        if not open_.any():
            return
        ids = batch.ids[open_]
        middle = (reached[ids] + failed[ids]) // 2
        smaller = replace(threat, eps=_at(levels[ids], middle))
        oracle.labels(ids, smaller.project(ledger.movable(ledger.best.closest[ids]), batch.x[ids]))
        now = _level_of(ledger.best.distance[ids], levels[ids], threat)
        reached[ids] = now
        failed[ids] = torch.where(now > middle, middle, failed[ids])


def _judge(setting: Setting, group: Group, ledger: Ledger, fooled: Array, eps: Array) -> dict[str, Array]:
    """Columns of the finds: the prediction as found, which the ledger kept, another look at what is stored, and all norms."""
    at = torch.as_tensor(fooled, device=group.x.device)
    x, x0 = ledger.best.closest[at], group.x[at]
    y = torch.as_tensor(group.label, device=x.device).long()[at]
    eot, criterion = setting.stage.eot, criterion_of(group.target, group.x.device, setting.reject).select(at)
    limit = torch.as_tensor(eps, dtype=torch.float32, device=x.device)
    limit = limit + tolerance(limit, setting.distance, setting.domain)
    # Inside eps where that is adversarial, else on the nearest levels, which may be within the next larger eps.
    near, stored = setting.domain.round(x), quantise(x, x0, limit, setting.distance, setting.domain)
    seen = predict(setting.model, stored, setting.batch_size, eot)
    moved = (near != stored).flatten(1).any(1)
    moved &= criterion.margin(seen, y, stored) <= 0 if len(y) else moved
    if bool(moved.any()):
        beyond = predict(setting.model, near[moved], setting.batch_size, eot)
        stored[moved], seen[moved] = near[moved], beyond
    # Where the model draws random numbers, a second mean of the input as found shows what was luck.
    again = eot > 1 and setting.domain.levels is not None
    if again:
        logits = predict(setting.model, x, setting.batch_size, eot)
    else:
        logits = ledger.best.answer[at] if eot == 1 else seen
    (confidence, pred), quantised_pred = logits.softmax(1).max(1), seen.argmax(1)
    columns = {
        "adv_pred": pred,
        "adv_confidence": confidence,
        "adv_margin": criterion.margin(logits, y, x) if len(y) else confidence,
        "linf": norms.linf(x - x0) if len(y) else confidence,
        "l2": norms.l2(x - x0),
        "l1": norms.l1(x - x0),
        "l0": norms.l0(x - x0),
        "quantised_pred": quantised_pred,
        "quantised_within": size(setting.distance, stored, x0) <= limit if len(y) else pred > 0,
        "best_margin": ledger.best.margin[at],
        "queries_to_success": ledger.best.first_success[at],
    }
    return {name: value.cpu().numpy() for name, value in columns.items()} | {
        "judge_forwards": (1 + again + moved.cpu().numpy().astype(np.int64)) * eot
    }


def criterion_of(target: Array | None, device: torch.device, reject: int | None = None) -> Criterion:
    """The criterion of samples with these target classes (n,), or without any, of a model that may have a reject class."""
    if target is not None:
        return Targeted(torch.as_tensor(target, device=device).long())
    return MISCLASSIFIED if reject is None else NotRejected(reject)


def null_or(column: Array | None, at: Array) -> Array:
    """Rows of a column that may be null throughout."""
    return np.ma.MaskedArray(np.zeros(len(at), np.int32), mask=True) if column is None else np.asarray(column)[at]


def rows_of(setting: Setting, group: Group, at: Array, level: Array, outcome: Outcome, **columns: Any) -> Records:
    """One row of this outcome for each of the samples `at` (m,) of a group, at the budgets `level` (m,)."""
    return rows.build(
        Records,
        len(at),
        model=setting.name,
        sample_id=group.sample_id[at],
        label=group.label[at],
        target=null_or(group.target, at),
        clean_pred=group.clean_pred[at],
        clean_confidence=group.clean_confidence[at],
        attack=setting.stage.name,
        distance=setting.distance.name,
        eps=setting.levels[level],
        radius=group.radius(setting.levels, at, level),
        outcome=str(outcome),
        **columns,
    )


def setting_of(plan: Plan, source: ModelSource, model: Model, stage: Stage, on_pass: Callable[[int, int], None]) -> Setting:
    """What all shards of a stage share; `model` is the one whose gradients it follows."""
    return Setting(
        name=source.name,
        model=model,
        stage=stage,
        distance=plan.distance,
        domain=plan.dataset.domain,
        levels=plan.levels,
        seed=plan.request.seed,
        batch_size=plan.request.batch_size,
        queries=plan.request.queries,
        precision=plan.request.precision,
        reject=source.reject,
        on_pass=on_pass,
    )


def session(model: Model, device: torch.device) -> AbstractContextManager[None]:
    """The model's own session (evaluation mode, device) where it has one."""
    return model.info.session(device)


def predict(model: Model, x: Tensor, batch_size: int, eot: int = 1) -> Tensor:
    """(n, classes) logits in batches, outside any ledger: the auditor's own look, or the mean of several."""
    asked = EOT(model, eot, batch_size)
    with torch.no_grad():
        answers = [asked.mean(part) for part in torch.split(x, batch_size)] if len(x) else []
    return torch.cat(answers) if answers else torch.zeros(0, model.classes, device=x.device)


def _write(
    setting: Setting,
    group: Group,
    broken: Array,
    survived: Array,
    found: dict[str, Array],
    costs: dict[str, Array],
    margin: Array,
) -> Records:
    """The rows that this shard settles."""
    fooled = np.flatnonzero(broken < len(setting.levels))

    put = partial(rows_of, setting, group)
    finds = put(fooled, broken[fooled], Outcome.FOOLED, **found, **{name: cost[fooled] for name, cost in costs.items()})
    spans = [(row, level) for row in fooled for level in range(broken[row] + 1, group.level[row] + 1)]
    above = np.array(spans, dtype=np.int64).reshape(-1, 2)
    failed = np.flatnonzero(survived)
    free = np.isin(failed, fooled)  # a minimal attack's find has paid already
    failures = put(
        failed,
        np.minimum(broken[failed] - 1, group.level[failed]),
        Outcome.SURVIVED,
        best_margin=np.ma.masked_where(free, margin[failed]),
        **{name: np.where(free, 0, cost[failed]) for name, cost in costs.items()},
    )
    return rows.concatenate([finds, put(above[:, 0], above[:, 1], Outcome.FOOLED_BELOW), failures])
