"""One attack on one group of samples, each at its own eps, from the oracle to the rows."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.contracts import Extras, Remark, follows_surrogates, reach_of
from brinell.core.criterion import MISCLASSIFIED, Criterion, NotRejected, Targeted, Threshold
from brinell.core.domain import Domain
from brinell.core.eot import EOT, Precision
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.oracle import Batch
from brinell.core.record import Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, size, tolerance
from brinell.engine.cascade import Stage
from brinell.engine.deciding import DecidingModel
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.quantise import quantise
from brinell.store import rows


@dataclass(frozen=True, kw_only=True)
class AttackSetting:
    """Settings that all groups of a stage share."""

    name: str
    """Name of the model, as the records have it."""
    model: Model
    """The model that the attack asks."""
    judge: Model | None = None
    """The model under test where the attack asks one that shows other scores (`engine.deciding`); None if both are one."""
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
    threshold: Threshold | None = None
    """The criterion of probability of the run."""
    on_pass: Callable[[int, int], None] | None = None
    surrogates: tuple[Model, ...] = ()
    """The networks whose gradients the attack follows."""

    def criterion(self, target: Array | None, device: torch.device) -> Criterion:
        """The criterion of samples with these target classes (n,), or without any."""
        return make_criterion(target, device, self.reject, self.threshold)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The samples of a group; arrays and tensors are aligned."""

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
    """(n,) float64: unit of the setting's levels."""

    def radius(self, levels: Array, index: Array, level: Array) -> Array:
        """(m,) float64: the budgets of the samples at `index` (m,) in the units of the data."""
        return np.asarray(levels[level] * self.unit[index])

    def select(self, index: Array) -> "Group":
        """The samples at some positions."""
        columns: dict[str, Any] = {field_.name: getattr(self, field_.name) for field_ in fields(self) if field_.name != "x"}
        columns = {name: None if column is None else column[index] for name, column in columns.items()}
        return Group(x=self.x[torch.as_tensor(index, device=self.x.device)], **columns)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Results of a group."""

    records: Records
    arrays: dict[int, Array]
    """Adversarial inputs by sample id."""
    remarks: tuple[Remark, ...]
    """Remarks of the attack."""
    extras: dict[int, dict[str, Array]] = field(default_factory=dict)
    """Extra arrays of the attack, by sample id and name."""
    legend: Mapping[str, Any] = field(default_factory=dict)
    """Meaning of the numbers in the extras."""


def merge_results(parts: Sequence[Result]) -> Result:
    """Merge the results of several parts of a group."""
    return Result(
        records=rows.concatenate([part.records for part in parts]),
        arrays={sample: array for part in parts for sample, array in part.arrays.items()},
        remarks=tuple(remark for part in parts for remark in part.remarks),
        extras={sample: arrays for part in parts for sample, arrays in part.extras.items()},
        legend=next((part.legend for part in parts if part.legend), {}),
    )


def run_attack(setting: AttackSetting, group: Group) -> Result:
    """Attack a group, shrink its adversarial examples to the smallest budgets that they fit, judge them, and build the rows."""
    start = time.perf_counter()
    device = group.x.device
    levels = torch.as_tensor(group.unit[:, None] * setting.levels, dtype=torch.float32, device=device)
    batch = Batch(ids=torch.arange(len(group.x), device=device), x=group.x, y=torch.as_tensor(group.label, device=device).long())
    threat = Threat(
        distance=setting.distance,
        eps=_gather_levels(levels, torch.as_tensor(group.level, device=device)),
        domain=setting.domain,
        criterion=setting.criterion(group.target, device),
    )
    minimal = setting.stage.attack.family == "minimal"
    ledger = Ledger(
        setting.model,
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
        surrogates=setting.surrogates,
    )
    rng = Streams.of(setting.seed, torch.as_tensor(group.sample_id, device=device)).fold(setting.stage.name)
    extras = setting.stage.attack(ledger.oracle(), ledger.batch, ledger.threat, rng) or Extras()
    if not minimal:
        _shrink(ledger, levels)
    broken = level_of(ledger.best.distance, levels, threat.distance, threat.domain).cpu().numpy()
    fooled = broken < levels.shape[1]
    index = np.flatnonzero(fooled)
    columns = _judge(setting, group, ledger, index, group.radius(setting.levels, index, broken[fooled]))
    forwards, backwards = ledger.costs.forwards.cpu().numpy(), ledger.costs.backwards.cpu().numpy()
    seconds = (time.perf_counter() - start) * (forwards + backwards) / max(1, (forwards + backwards).sum())
    passes, judging = ledger.costs.surrogate_passes.cpu().numpy(), ledger.confirmations.cpu().numpy()
    judging[index] += columns.pop("judge_forwards")
    costs = {"forwards": forwards, "backwards": backwards, "judge_forwards": judging}
    costs |= {"surrogate_passes": passes, "seconds": seconds}
    left = np.ma.masked_where(fooled | ~np.isfinite(margin := ledger.best.margin.cpu().numpy()), margin)
    found = {name: _scatter(len(fooled), index, values) for name, values in columns.items()}
    outcome = np.where(fooled, str(Outcome.BROKEN), str(Outcome.SURVIVED))
    lowest = np.ma.masked_where(~fooled, np.append(setting.levels, np.inf)[broken])
    records = make_rows(setting, group, np.arange(len(fooled)), outcome, broken=lowest, margin=left, **found, **costs)
    closest = ledger.best.closest.cpu().numpy()
    arrays = {int(group.sample_id[row]): closest[row] for row in index}
    return Result(
        records=records, arrays=arrays, remarks=tuple(extras.remarks), extras=_by_sample(group, extras), legend=extras.legend
    )


def _by_sample(group: Group, extras: Extras) -> dict[int, dict[str, Array]]:
    if extras.arrays and not extras.legend:
        raise ContractError("the attack's extras have no legend, so that nobody could read them")
    for name, rows_ in extras.arrays.items():
        if not rows_.ndim or len(rows_) != len(group.x):
            raise ContractError(f"the attack's extras {name!r} have shape {tuple(rows_.shape)} for {len(group.x)} samples")
    arrays = {name: column.cpu().numpy() for name, column in extras.arrays.items()}
    return {int(sample): {name: column[row] for name, column in arrays.items()} for row, sample in enumerate(group.sample_id)}


def _gather_levels(levels: Tensor, level: Tensor) -> Tensor:
    """(n,): the budget of each sample at its level."""
    return levels.gather(1, level[:, None])[:, 0]


def level_of(distances: Tensor, levels: Tensor, distance: Distance, domain: Domain) -> Tensor:
    """(n,) index of the smallest of its levels (n, levels) that each distance fits into; the number of levels where none does."""
    return (distances[:, None] > levels + tolerance(levels, distance, domain)).sum(1)


def _shrink(ledger: Ledger, levels: Tensor) -> None:
    """Shrink each adversarial example by bisection over the lower levels; the ledger counts one forward per step."""
    oracle, batch, threat = ledger.oracle(), ledger.batch, ledger.threat
    succeeded = level_of(ledger.best.distance, levels, threat.distance, threat.domain)
    failed = torch.full_like(succeeded, -1)
    while True:
        open_ = ledger.fooled & (succeeded - failed > 1) & ledger.affordable(batch.ids)
        if not open_.any():
            return
        ids = batch.ids[open_]
        middle = (succeeded[ids] + failed[ids]) // 2
        smaller = replace(threat, eps=_gather_levels(levels[ids], middle))
        oracle.labels(ids, smaller.project(ledger.movable(ledger.best.closest[ids]), batch.x[ids]))
        current = level_of(ledger.best.distance[ids], levels[ids], threat.distance, threat.domain)
        succeeded[ids] = current
        failed[ids] = torch.where(current > middle, middle, failed[ids])


def _judge(setting: AttackSetting, group: Group, ledger: Ledger, fooled: Array, eps: Array) -> dict[str, Array]:
    """Columns of the adversarial examples: the prediction that the ledger recorded, that of the stored input, and all norms."""
    index = torch.as_tensor(fooled, device=group.x.device)
    x, x0 = ledger.best.closest[index], group.x[index]
    y = torch.as_tensor(group.label, device=x.device).long()[index]
    eot, criterion = setting.stage.eot, setting.criterion(group.target, group.x.device).select(index)
    limit = torch.as_tensor(eps, dtype=torch.float32, device=x.device)
    limit = limit + tolerance(limit, setting.distance, setting.domain)
    # Inside eps where that is adversarial, else on the nearest levels, which may be within the next larger eps.
    rounded, stored = setting.domain.round(x), quantise(x, x0, limit, setting.distance, setting.domain)
    model = setting.judge or setting.model
    stored_logits = predict(model, stored, setting.batch_size, eot)
    needs_rounding = (rounded != stored).flatten(1).any(1)
    needs_rounding &= criterion.margin(stored_logits, y, stored) <= 0 if len(y) else needs_rounding
    if bool(needs_rounding.any()):
        rounded_logits = predict(model, rounded[needs_rounding], setting.batch_size, eot)
        stored[needs_rounding], stored_logits[needs_rounding] = rounded[needs_rounding], rounded_logits
    # Where the model draws random numbers, a second mean of the input as found shows what was luck.
    repeat = setting.judge is not None or (eot > 1 and setting.domain.levels is not None)
    if repeat:
        logits = predict(model, x, setting.batch_size, eot)
    else:
        logits = ledger.best.answer[index] if eot == 1 else stored_logits
    (confidence, pred), quantised_pred = losses.decision(logits), stored_logits.argmax(1)
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
        "queries_to_success": ledger.best.first_success[index],
    }
    return {name: value.cpu().numpy() for name, value in columns.items()} | {
        "judge_forwards": (1 + repeat + needs_rounding.cpu().numpy().astype(np.int64)) * eot
    }


def make_criterion(
    target: Array | None, device: torch.device, reject: int | None = None, threshold: Threshold | None = None
) -> Criterion:
    """The criterion of samples: the `threshold` of the run, their target classes (n,), or any class but the `reject` class."""
    if threshold is not None:
        return threshold
    if target is not None:
        return Targeted(torch.as_tensor(target, device=device).long())
    return MISCLASSIFIED if reject is None else NotRejected(reject)


def column_or_null(column: Array | None, index: Array) -> Array:
    """Rows of a column that may be null throughout."""
    return np.ma.MaskedArray(np.zeros(len(index), np.int32), mask=True) if column is None else np.asarray(column)[index]


def _scatter(n: int, index: Array, values: Array) -> Array:
    """(n,): values (m,) at the positions `index`, masked elsewhere."""
    column, missing = np.zeros(n, values.dtype), np.ones(n, bool)
    column[index], missing[index] = values, False
    return np.ma.MaskedArray(column, missing)


def make_rows(setting: AttackSetting, group: Group, index: Array, outcome: Array | str, **columns: Any) -> Records:
    """One row for each of the samples at `index` (m,) of a group, with what came of its attack at their levels."""
    return rows.build(
        Records,
        len(index),
        model=setting.name,
        sample_id=group.sample_id[index],
        label=group.label[index],
        target=column_or_null(group.target, index),
        clean_pred=group.clean_pred[index],
        clean_confidence=group.clean_confidence[index],
        attack=setting.stage.name,
        distance=setting.distance.name,
        unit=group.unit[index],
        attacked=setting.levels[group.level[index]],
        outcome=outcome,
        **columns,
    )


def make_setting(
    plan: Plan,
    source: ModelSource,
    model: Model,
    stage: Stage,
    on_pass: Callable[[int, int], None] | None,
    surrogates: tuple[Model, ...] = (),
) -> AttackSetting:
    """Settings that all groups of a stage share; `model` is the one that it asks, `surrogates` are all of the run."""
    return AttackSetting(
        name=source.name,
        model=model,
        judge=model.judge if isinstance(model, DecidingModel) else None,
        stage=stage,
        distance=plan.distance,
        domain=plan.dataset.domain,
        levels=plan.levels,
        seed=plan.request.seed,
        batch_size=plan.request.batch_size,
        queries=plan.request.queries,
        precision=plan.request.precision,
        reject=source.reject,
        threshold=plan.threshold,
        on_pass=on_pass,
        surrogates=surrogates if follows_surrogates(stage.attack) else (),
    )


def session(model: Model, device: torch.device) -> AbstractContextManager[None]:
    """Open the model's session (evaluation mode, device)."""
    return model.info.session(device)


def predict(model: Model, x: Tensor, batch_size: int, eot: int = 1) -> Tensor:
    """(n, classes) logits in batches, outside any ledger; with eot above 1, the mean of several answers."""
    averaged = EOT(model, eot)
    with torch.no_grad():
        answers = [averaged.mean(part) for part in torch.split(x, batch_size)] if len(x) else []
    return torch.cat(answers) if answers else torch.zeros(0, model.classes, device=x.device)
