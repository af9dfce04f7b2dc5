"""The first check of a model: its answers to the clean inputs."""

import time
from typing import Any

import numpy as np
import torch

from brinell.core import losses
from brinell.core.errors import ModelError
from brinell.core.record import CLEAN, Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine import retry
from brinell.engine.audited_model import AuditedModel
from brinell.engine.checks import check_answers
from brinell.engine.group_attack import column_or_null, make_criterion, predict
from brinell.engine.state import is_open
from brinell.store import rows
from brinell.store.run import NO_ROWS


def check_clean(audited: AuditedModel) -> Records:
    """Predict all clean inputs, group after group, and save their rows; returns them, samples
    ascending.
    """
    plan, run, name = audited.plan, audited.run, audited.source.name
    records = rows.concatenate([NO_ROWS, *(group for _, group in run.groups(name, CLEAN))])
    missing = np.flatnonzero(~np.isin(plan.ids, records.sample_id))

    def fail(index: int, error: ModelError) -> Records:
        audited.fail(CLEAN, int(plan.ids[index]), str(error))
        return _rows(
            audited,
            np.array([index]),
            clean_pred=-1,
            clean_confidence=0.0,
            outcome=str(Outcome.FAILED),
        )

    for start in range(0, len(missing), plan.group_size):
        group = missing[start : start + plan.group_size]
        parts = retry.run_in_halves(
            lambda index: _predict(audited, index), group, fail, audited.model, plan.device
        )
        records = rows.concatenate([records, *parts])
        run.save_group(name, CLEAN, f"{plan.ids[group[0]]:012d}", rows.concatenate(parts), {}, {})
        audited.progress.update_open(
            len(plan.ids) - len(records), int(is_open(records.outcome).sum())
        )
    records = rows.take(records, np.argsort(records.sample_id, kind="stable"))
    run.save_part(name, CLEAN, records)
    return records


def _predict(audited: AuditedModel, index: Array) -> Records:
    start = time.perf_counter()
    plan, model, room = audited.plan, audited.model, audited.sizer
    x = audited.load(plan.ids[index])
    logits = room.fit(lambda: predict(model, x, room.size, plan.eot))
    check_answers(logits, model)
    audited.progress.count_passes(len(index) * plan.eot, 0)
    confidence, pred = (column.cpu().numpy() for column in losses.decision(logits))
    labels, targets = torch.as_tensor(plan.labels[index], device=logits.device), None
    if plan.targeting is not None:
        streams = Streams.of(
            plan.request.seed, torch.as_tensor(plan.ids[index], device=logits.device)
        )
        targets = np.asarray(plan.targeting.classes(logits, labels, streams).cpu().numpy())
    criterion = make_criterion(targets, logits.device, audited.source.reject, plan.threshold)
    margin = criterion.margin(logits, labels, logits).cpu().numpy()
    outcome = np.where(pred == plan.labels[index], str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
    if plan.threshold is not None:
        outcome = np.where(margin > 0, str(Outcome.MET), str(Outcome.UNMET))
    return _rows(
        audited,
        index,
        target=column_or_null(targets, len(index)),
        clean_pred=pred,
        clean_confidence=confidence,
        outcome=outcome,
        margin=margin,
        forwards=plan.eot,
        seconds=(time.perf_counter() - start) / len(index),
    )


def _rows(audited: AuditedModel, index: Array, **columns: Any) -> Records:
    plan = audited.plan
    return rows.build(
        Records,
        len(index),
        model=audited.source.name,
        sample_id=plan.ids[index],
        label=plan.labels[index],
        attack=CLEAN,
        distance=plan.distance.name,
        unit=plan.units[index],
        **columns,
    )
