"""The first check of a model: its answers to the clean inputs."""

import time
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from brinell.core import losses
from brinell.core.record import CLEAN, Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine.audited_model import AuditedModel, facts_of, merge_facts
from brinell.engine.checks import check_answers
from brinell.engine.group_attack import column_or_null, make_criterion, predict
from brinell.engine.piece import Piece, PieceAnswer, make_alone
from brinell.engine.portions import FAILURES, Portions
from brinell.engine.provenance import content_hash
from brinell.engine.state import is_open
from brinell.store import rows
from brinell.store.parts import PieceResult
from brinell.store.run import NO_ROWS


def clean_pieces(
    audited: AuditedModel,
) -> Generator[Sequence[Piece], PieceAnswer, PieceResult]:
    """Have all clean inputs predicted, group after group; returns their rows, samples ascending."""
    plan = audited.plan
    waiting = len(plan.ids)
    audited.progress.stage(audited.source.name, CLEAN, waiting, waiting * plan.eot)
    file = audited.file(CLEAN)
    answers: list[PieceResult] = []
    open_samples = 0
    groups = [
        positions[start : start + plan.group_size]
        for positions in plan.wave_positions
        for start in range(0, len(positions), plan.group_size)
    ]

    for index in groups:
        piece = Piece(
            name=CLEAN,
            key=f"{file}~{content_hash(ids=plan.ids[index].tolist())}",
            make=partial(_predict_group, audited, index),
            rows=Records,
        )
        answer = yield from make_alone(piece)
        answers.append(answer)
        audited.take(CLEAN, answer.facts)
        open_samples += int(is_open(answer.rows.outcome).sum())
        waiting -= len(index)
        audited.progress.update_open(waiting, open_samples)

    records: Records = rows.concatenate([NO_ROWS, *(answer.rows for answer in answers)])
    records = rows.take(records, np.argsort(records.sample_id, kind="stable"))
    return PieceResult(rows=records, facts=merge_facts(answer.facts for answer in answers))


def _predict_group(audited: AuditedModel, group: Array) -> PieceResult:
    """The rows of a group, and for each sample that the model cannot judge the reason.

    Such a sample has a row too, with the class -1.
    """
    plan = audited.plan
    failed = dict[str, str]()
    records = list[Records]()
    portions = Portions(group, audited.sizer, audited.model, plan.device)

    for index in portions:
        try:
            part = _predict(audited, index)
        except FAILURES as error:
            if portions.comes_again(index, error):
                continue
            # Else the portion is one sample.
            failed[str(plan.ids[index[0]])] = str(error)
            part = _rows(
                audited, index, clean_pred=-1, clean_confidence=0.0, outcome=str(Outcome.FAILED)
            )
        records.append(part)

    facts = facts_of(audited.model, audited.shortages, failed=failed)
    return PieceResult(rows=rows.concatenate(records), facts=facts)


def _predict(audited: AuditedModel, index: Array) -> Records:
    """The rows of the samples at some positions, from one answer to each."""
    start = time.perf_counter()
    plan, model = audited.plan, audited.model
    x = audited.load(plan.ids[index])
    logits = predict(model, x, audited.sizer.size, plan.eot)
    check_answers(logits, model)
    audited.progress.count_passes(len(index) * plan.eot, 0)

    confidence, pred = losses.decision(logits)
    classes = pred.cpu().numpy()
    labels = torch.as_tensor(plan.labels[index], device=logits.device)
    targets = None
    if plan.targeting is not None:
        samples = torch.as_tensor(plan.ids[index], device=logits.device)
        streams = Streams.of(plan.request.seed, samples)
        targets = np.asarray(plan.targeting.classes(logits, labels, streams).cpu().numpy())
    criterion = make_criterion(targets, logits.device, audited.source.reject, plan.threshold)
    # None of the criteria of `make_criterion` reads the inputs, in whose place the logits stand.
    margin = criterion.margin(logits, labels, logits).cpu().numpy()

    is_right = classes == plan.labels[index]
    outcome = np.where(is_right, str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
    if plan.threshold is not None:
        outcome = np.where(margin > 0, str(Outcome.MET), str(Outcome.UNMET))
    return _rows(
        audited,
        index,
        target=column_or_null(targets, len(index)),
        clean_pred=classes,
        clean_confidence=confidence.cpu().numpy(),
        outcome=outcome,
        margin=margin,
        forwards=plan.eot,
        seconds=(time.perf_counter() - start) / len(index),
    )


def _rows(audited: AuditedModel, index: Array, **columns: Any) -> Records:
    """Rows of the clean check for the samples at some positions."""
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
