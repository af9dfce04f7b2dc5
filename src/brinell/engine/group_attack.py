"""One attack on one group of samples, each at its own eps, from the oracle to the rows."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.attack import attack
from brinell.core.contracts import Extras, follows_surrogates
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
from brinell.engine.audited_model import AuditedModel
from brinell.engine.cascade import Stage
from brinell.engine.deciding import DecidingModel
from brinell.engine.plan import Plan
from brinell.engine.quantise import quantise
from brinell.store import rows


@dataclass(frozen=True, kw_only=True)
class AttackSetting:
    """The settings that all groups of a stage share."""

    audited: AuditedModel
    stage: Stage
    model: Model
    """The model that the attack asks: that under audit, or one that a check built around it."""

    @property
    def plan(self) -> Plan:
        """The plan of the audit."""
        return self.audited.plan

    def criterion(self, target: Array | None) -> Criterion:
        """The criterion of samples with these target classes (n,), or without any."""
        return make_criterion(
            target, self.plan.device, self.audited.source.reject, self.plan.threshold
        )


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
        names = ("index", "level", "clean_pred", "clean_confidence")
        columns = {name: getattr(self, name)[rows] for name in names}
        return replace(self, target=None if self.target is None else self.target[rows], **columns)


def run_attack(
    setting: AttackSetting, task: GroupTask
) -> tuple[Records, dict[str, Array], Extras | None]:
    """Attack a group, shrink its adversarial examples to the smallest budgets that they fit, judge
    them, and build the rows.

    Returns:
        The rows; arrays by name, of which `7` is the closest adversarial input of sample 7 and
        `7/patches` an extra array of the attack; and what the attack says besides, None if its time
        was up before it was done: then only samples that it broke have rows.
    """
    audited, plan, stage = setting.audited, setting.plan, setting.stage
    device = plan.device
    ids = plan.ids[task.index]
    units = plan.units[task.index]
    x = plan.dataset.load(ids.tolist()).to(device)
    start = time.perf_counter()
    labels = torch.as_tensor(plan.labels[task.index], device=device).long()
    levels = torch.as_tensor(units[:, None] * plan.levels, dtype=torch.float32, device=device)
    threat = Threat(
        distance=plan.distance,
        eps=_gather_levels(levels, torch.as_tensor(task.level, device=device)),
        domain=plan.dataset.domain,
        criterion=setting.criterion(task.target),
    )

    ledger, extras = attack(
        setting.model,
        Batch.of(x, labels),
        threat,
        stage.attack,
        Streams.of(plan.request.seed, torch.as_tensor(ids, device=device)).fold(stage.name),
        queries=plan.request.queries,
        batch_size=audited.sizer.size,
        eot=stage.eot,
        precision=plan.request.precision,
        surrogates=audited.surrogates if follows_surrogates(stage.attack) else (),
        least=levels[:, 0],
        on_pass=audited.count_passes,
    )
    # A minimal attack found the smallest budget itself.
    if stage.attack.family != "minimal":
        _shrink(ledger, levels)

    # The number of levels, beyond the last index, stands for a sample that is not broken.
    level = level_of(ledger.best.distance, levels, threat.distance, threat.domain).cpu().numpy()
    fooled = level < len(plan.levels)
    index = np.flatnonzero(fooled)
    eps = plan.levels[level[index]] * units[index]
    judgement = _judge(setting, task, ledger, x, index, eps) if len(index) else {}
    columns = _costs(ledger, start)
    columns["judge_forwards"][index] += judgement.pop("judge_forwards", 0)
    # What is known of adversarial examples alone is null for the other samples.
    for name, values in judgement.items():
        columns[name] = np.ma.MaskedArray(np.zeros(len(fooled), values.dtype), mask=True)
        columns[name][index] = values

    margin = ledger.best.margin.cpu().numpy()
    outcome = np.where(fooled, str(Outcome.BROKEN), str(Outcome.SURVIVED))
    records = make_rows(
        setting,
        task,
        outcome,
        attacked=plan.levels[task.level],
        broken=np.ma.masked_where(~fooled, np.append(plan.levels, np.inf)[level]),
        margin=np.ma.masked_where(fooled | ~np.isfinite(margin), margin),
        **columns,
    )
    closest = ledger.best.closest.cpu().numpy()
    arrays = {str(ids[row]): closest[row] for row in index} | _arrays_of(ids, extras)
    if ledger.is_cut:
        # Samples that the attack was not done with are as if it had never begun.
        return rows.take(records, index), arrays, None
    return records, arrays, extras


def _costs(ledger: Ledger, start: float) -> dict[str, Array]:
    """The columns of costs; the seconds since `start` are shared out by passes."""
    forwards = ledger.costs.forwards.cpu().numpy()
    backwards = ledger.costs.backwards.cpu().numpy()
    passes = forwards + backwards
    return {
        "forwards": forwards,
        "backwards": backwards,
        "judge_forwards": ledger.confirmations.cpu().numpy(),
        "surrogate_passes": ledger.costs.surrogate_passes.cpu().numpy(),
        "seconds": (time.perf_counter() - start) * passes / max(1, passes.sum()),
    }


def _arrays_of(ids: Array, extras: Extras) -> dict[str, Array]:
    """The extra arrays of an attack for each sample, by the names under which they are stored."""
    if extras.arrays and not extras.legend:
        raise ContractError("the attack's extras have no legend, so that nobody could read them")
    for name, column in extras.arrays.items():
        if not column.ndim or len(column) != len(ids):
            raise ContractError(
                f"the attack's extras {name!r} have shape {tuple(column.shape)} "
                f"for {len(ids)} samples"
            )

    columns = {name: column.cpu().numpy() for name, column in extras.arrays.items()}
    return {
        f"{sample}/{name}": column[row]
        for row, sample in enumerate(ids)
        for name, column in columns.items()
    }


def _gather_levels(levels: Tensor, level: Tensor) -> Tensor:
    """(n,) the budget of each sample, of its levels (n, levels) that with the index `level` (n,)."""
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
    # Indices of levels between which the smallest one that holds an example lies; -1 is below all.
    failed = torch.full_like(succeeded, -1)

    while True:
        open_ = ledger.fooled & (succeeded - failed > 1) & ledger.affordable(batch.ids)
        if not open_.any():
            return
        ids = batch.ids[open_]
        middle = (succeeded[ids] + failed[ids]) // 2
        smaller = replace(threat, eps=_gather_levels(levels[ids], middle))
        # To ask is enough: the ledger judges the input, and keeps it if it is the closest success.
        oracle.labels(ids, smaller.project(ledger.movable(ledger.best.closest[ids]), batch.x[ids]))

        # The projection may come nearer than asked for, and so fit a smaller level still.
        current = level_of(ledger.best.distance[ids], levels[ids], threat.distance, threat.domain)
        succeeded[ids] = current
        failed[ids] = torch.where(current > middle, middle, failed[ids])


def _judge(
    setting: AttackSetting,
    task: GroupTask,
    ledger: Ledger,
    clean: Tensor,
    fooled: Array,
    eps: Array,
) -> dict[str, Array]:
    """Columns of the adversarial examples: the prediction that the ledger recorded, that of the
    stored input, and all norms.

    Args:
        setting: the settings of the stage.
        task: the group.
        ledger: the ledger of the attack.
        clean: (n, *shape) the clean inputs of the group.
        fooled: (m,) places in the group of the samples with an adversarial example.
        eps: (m,) the smallest budget that each fits into.
    """
    distance, domain, eot = setting.plan.distance, setting.plan.dataset.domain, setting.stage.eot
    batch_size = setting.audited.sizer.size
    index = torch.as_tensor(fooled, device=clean.device)
    x = ledger.best.closest[index]
    x0 = clean[index]
    y = torch.as_tensor(setting.plan.labels[task.index[fooled]], device=clean.device).long()
    criterion = setting.criterion(task.target).select(index)
    limit = torch.as_tensor(eps, dtype=torch.float32, device=x.device)
    limit = limit + tolerance(limit, distance, domain)
    # Where an attack followed the scores that decide, the model's own answer judges.
    model = setting.model.model if isinstance(setting.model, DecidingModel) else setting.model

    # Inside eps where that is adversarial, else on the nearest levels, which may be within the next
    # larger eps.
    rounded = domain.round(x)
    stored = quantise(x, x0, limit, distance, domain)
    stored_logits = predict(model, stored, batch_size, eot)
    needs_rounding = (rounded != stored).flatten(1).any(1)
    needs_rounding &= criterion.margin(stored_logits, y, stored) <= 0
    if bool(needs_rounding.any()):
        stored[needs_rounding] = rounded[needs_rounding]
        stored_logits[needs_rounding] = predict(model, rounded[needs_rounding], batch_size, eot)

    # Where the model draws random numbers, a second mean of the input as found shows what was luck;
    # without levels the stored input is that input, and has just been asked about.
    repeats = model is not setting.model or (eot > 1 and domain.levels is not None)
    if repeats:
        logits = predict(model, x, batch_size, eot)
    else:
        logits = ledger.best.answer[index] if eot == 1 else stored_logits
    confidence, pred = losses.decision(logits)
    # The judge asked about the stored input, about the input as found, and about the rounded one.
    columns = {
        "adv_pred": pred,
        "adv_confidence": confidence,
        "adv_margin": criterion.margin(logits, y, x),
        "linf": norms.linf(x - x0),
        "l2": norms.l2(x - x0),
        "l1": norms.l1(x - x0),
        "l0": norms.l0(x - x0),
        "quantised_pred": stored_logits.argmax(1),
        "quantised_within": size(distance, stored, x0) <= limit,
        "queries_to_success": ledger.best.first_success[index],
        "judge_forwards": (1 + repeats + needs_rounding.long()) * eot,
    }
    return {name: value.cpu().numpy() for name, value in columns.items()}


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
        model=setting.audited.source.name,
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
    return EOT(model, eot).mean_in_batches(x, batch_size)
