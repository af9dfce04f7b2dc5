"""One attack on one group of samples, each at its own eps, from the oracle to the rows."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.attack import attack
from brinell.core.contracts import Extras, Remark, follows_surrogates
from brinell.core.criterion import MISCLASSIFIED, Criterion, NotRejected, Targeted, WrittenCriterion
from brinell.core.domain import Domain
from brinell.core.eot import EOT
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
    """The settings that all groups of a stage share."""

    plan: Plan
    source: ModelSource
    model: Model
    """The model that the attack asks."""
    stage: Stage
    surrogates: tuple[Model, ...] = ()
    """The networks of the run that have gradients to follow."""
    on_pass: Callable[[int, int], None] | None = None

    def criterion(self, target: Array | None) -> Criterion:
        """The criterion of samples with these target classes (n,), or without any."""
        return make_criterion(target, self.plan.device, self.source.reject, self.plan.threshold)


@dataclass(frozen=True, kw_only=True)
class GroupTask:
    """A group of samples to attack; arrays (n,) are aligned."""

    model: str
    stage: str
    index: Array
    """Positions of the samples in the run."""
    level: Array
    """Index into the levels of the plan: the budget at which each is attacked."""
    target: Array | None
    """Target classes; None where any wrong class counts."""
    clean_pred: Array
    clean_confidence: Array
    answers: Mapping[str, Any]
    """The kinds of the models' answers, as the driver found them."""

    def select(self, rows: Array) -> "GroupTask":
        """The samples at some places in the group."""
        columns = {
            name: getattr(self, name)[rows]
            for name in ("index", "level", "clean_pred", "clean_confidence")
        }
        return replace(self, target=None if self.target is None else self.target[rows], **columns)


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """Results of a group."""

    records: Records
    arrays: dict[int, Array]
    """Adversarial inputs by sample id."""
    remarks: tuple[Remark, ...]
    extras: dict[int, dict[str, Array]] = field(default_factory=dict)
    """Extra arrays of the attack, by sample id and name."""
    legend: Mapping[str, Any] = field(default_factory=dict)
    """Meaning of the numbers in the extras."""


def merge_results(parts: Sequence[GroupResult]) -> GroupResult:
    """Merge the results of several parts of a group."""
    return GroupResult(
        records=rows.concatenate([part.records for part in parts]),
        arrays={sample: array for part in parts for sample, array in part.arrays.items()},
        remarks=tuple(remark for part in parts for remark in part.remarks),
        extras={sample: arrays for part in parts for sample, arrays in part.extras.items()},
        legend=next((part.legend for part in parts if part.legend), {}),
    )


def run_attack(setting: AttackSetting, task: GroupTask, batch_size: int) -> GroupResult:
    """Attack a group, shrink its adversarial examples to the smallest budgets that they fit, judge
    them, and build the rows.
    """
    plan, stage, device = setting.plan, setting.stage, setting.plan.device
    samples, unit = plan.ids[task.index], plan.units[task.index]
    x = plan.dataset.load(samples.tolist()).to(device)
    start = time.perf_counter()
    levels = torch.as_tensor(unit[:, None] * plan.levels, dtype=torch.float32, device=device)
    labels = torch.as_tensor(plan.labels[task.index], device=device).long()
    threat = Threat(
        distance=plan.distance,
        eps=_gather_levels(levels, torch.as_tensor(task.level, device=device)),
        domain=plan.dataset.domain,
        criterion=setting.criterion(task.target),
    )
    rng = Streams.of(plan.request.seed, torch.as_tensor(samples, device=device)).fold(stage.name)

    ledger, extras = attack(
        setting.model,
        Batch.of(x, labels),
        threat,
        stage.attack,
        rng,
        queries=plan.request.queries,
        batch_size=batch_size,
        eot=stage.eot,
        precision=plan.request.precision,
        surrogates=setting.surrogates if follows_surrogates(stage.attack) else (),
        on_pass=setting.on_pass,
    )
    if stage.attack.family != "minimal":
        _shrink(ledger, levels)
    broken = level_of(ledger.best.distance, levels, threat.distance, threat.domain).cpu().numpy()
    fooled = broken < levels.shape[1]
    index = np.flatnonzero(fooled)
    columns = _judge(
        setting, task, x, ledger, index, plan.levels[broken[fooled]] * unit[index], batch_size
    )
    forwards, backwards = ledger.costs.forwards.cpu().numpy(), ledger.costs.backwards.cpu().numpy()
    seconds = (
        (time.perf_counter() - start)
        * (forwards + backwards)
        / max(1, (forwards + backwards).sum())
    )
    passes, judging = (
        ledger.costs.surrogate_passes.cpu().numpy(),
        ledger.confirmations.cpu().numpy(),
    )
    judging[index] += columns.pop("judge_forwards")
    costs = {"forwards": forwards, "backwards": backwards, "judge_forwards": judging}
    costs |= {"surrogate_passes": passes, "seconds": seconds}
    margins = np.ma.masked_where(
        fooled | ~np.isfinite(margin := ledger.best.margin.cpu().numpy()), margin
    )
    masked = {
        name: np.ma.MaskedArray(np.zeros(len(fooled), values.dtype), mask=True)
        for name, values in columns.items()
    }
    for name, values in columns.items():
        masked[name][index] = values
    outcome = np.where(fooled, str(Outcome.BROKEN), str(Outcome.SURVIVED))
    lowest = np.ma.masked_where(~fooled, np.append(plan.levels, np.inf)[broken])
    attacked = plan.levels[task.level]
    records = make_rows(
        setting, task, outcome, attacked=attacked, broken=lowest, margin=margins, **masked, **costs
    )
    closest = ledger.best.closest.cpu().numpy()
    arrays = {int(samples[row]): closest[row] for row in index}
    return GroupResult(
        records=records,
        arrays=arrays,
        remarks=tuple(extras.remarks),
        extras=_by_sample(samples, extras),
        legend=extras.legend,
    )


def _by_sample(samples: Array, extras: Extras) -> dict[int, dict[str, Array]]:
    if extras.arrays and not extras.legend:
        raise ContractError("the attack's extras have no legend, so that nobody could read them")
    for name, column in extras.arrays.items():
        if not column.ndim or len(column) != len(samples):
            raise ContractError(
                f"the attack's extras {name!r} have shape {tuple(column.shape)} "
                f"for {len(samples)} samples"
            )
    arrays = {name: column.cpu().numpy() for name, column in extras.arrays.items()}
    return {
        int(sample): {name: column[row] for name, column in arrays.items()}
        for row, sample in enumerate(samples)
    }


def _gather_levels(levels: Tensor, level: Tensor) -> Tensor:
    return levels.gather(1, level[:, None])[:, 0]


def level_of(distances: Tensor, levels: Tensor, distance: Distance, domain: Domain) -> Tensor:
    """(n,) index of the smallest of its levels (n, levels) that each distance fits into; the number
    of levels where none does.
    """
    return (distances[:, None] > levels + tolerance(levels, distance, domain)).sum(1)


def _shrink(ledger: Ledger, levels: Tensor) -> None:
    """Shrink each adversarial example by bisection over the lower levels; the ledger counts one
    forward per step.
    """
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


def _judge(
    setting: AttackSetting,
    task: GroupTask,
    clean: Tensor,
    ledger: Ledger,
    fooled: Array,
    eps: Array,
    batch_size: int,
) -> dict[str, Array]:
    """Columns of the adversarial examples: the prediction that the ledger recorded, that of the
    stored input, and all norms.
    """
    distance, domain, eot = setting.plan.distance, setting.plan.dataset.domain, setting.stage.eot
    index = torch.as_tensor(fooled, device=clean.device)
    x, x0 = ledger.best.closest[index], clean[index]
    y = torch.as_tensor(setting.plan.labels[task.index[fooled]], device=clean.device).long()
    criterion = setting.criterion(task.target).select(index)
    limit = torch.as_tensor(eps, dtype=torch.float32, device=x.device)
    limit = limit + tolerance(limit, distance, domain)
    # Inside eps where that is adversarial, else on the nearest levels, which may be within the next
    # larger eps.
    rounded, stored = domain.round(x), quantise(x, x0, limit, distance, domain)
    model = setting.model.model if isinstance(setting.model, DecidingModel) else setting.model
    stored_logits = predict(model, stored, batch_size, eot)
    needs_rounding = (rounded != stored).flatten(1).any(1)
    needs_rounding &= criterion.margin(stored_logits, y, stored) <= 0 if len(y) else needs_rounding
    if bool(needs_rounding.any()):
        rounded_logits = predict(model, rounded[needs_rounding], batch_size, eot)
        stored[needs_rounding], stored_logits[needs_rounding] = (
            rounded[needs_rounding],
            rounded_logits,
        )
    # Where the model draws random numbers, a second mean of the input as found shows what was luck.
    repeat = model is not setting.model or (eot > 1 and domain.levels is not None)
    if repeat:
        logits = predict(model, x, batch_size, eot)
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
        "quantised_within": size(distance, stored, x0) <= limit if len(y) else pred > 0,
        "queries_to_success": ledger.best.first_success[index],
    }
    return {name: value.cpu().numpy() for name, value in columns.items()} | {
        "judge_forwards": (1 + repeat + needs_rounding.cpu().numpy().astype(np.int64)) * eot
    }


def make_criterion(
    target: Array | None,
    device: torch.device,
    reject: int | None = None,
    threshold: WrittenCriterion | None = None,
) -> Criterion:
    """The criterion of samples: the `threshold` of the run, their target classes (n,), or any class
    but the `reject` class.
    """
    if threshold is not None:
        return threshold
    if target is not None:
        return Targeted(torch.as_tensor(target, device=device).long())
    return MISCLASSIFIED if reject is None else NotRejected(reject)


def column_or_null(column: Array | None, n: int) -> Array:
    """A column (n,), null throughout if there is none."""
    return np.ma.MaskedArray(np.zeros(n, np.int32), mask=True) if column is None else column


def make_rows(
    setting: AttackSetting, task: GroupTask, outcome: Array | str, **columns: Any
) -> Records:
    """One row for each sample of a group, with what came of its attack."""
    plan, index = setting.plan, task.index
    return rows.build(
        Records,
        len(index),
        model=setting.source.name,
        sample_id=plan.ids[index],
        label=plan.labels[index],
        target=column_or_null(task.target, len(index)),
        clean_pred=task.clean_pred,
        clean_confidence=task.clean_confidence,
        attack=setting.stage.name,
        distance=plan.distance.name,
        unit=plan.units[index],
        outcome=outcome,
        **columns,
    )


def predict(model: Model, x: Tensor, batch_size: int, eot: int = 1) -> Tensor:
    """(n, classes) logits in batches, outside any ledger; with eot above 1, the mean of several
    answers.
    """
    averaged = EOT(model, eot)
    with torch.no_grad():
        answers = [averaged.mean(part) for part in torch.split(x, batch_size)] if len(x) else []
    return torch.cat(answers) if answers else torch.zeros(0, model.classes, device=x.device)
