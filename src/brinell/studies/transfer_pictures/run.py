"""Each source is attacked on groups of pictures, and every model is shown the strongest inputs."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import RequestError, option
from brinell.core.record import CLEAN, Array
from brinell.core.threat import size
from brinell.engine.plan import open_distance
from brinell.engine.tasks import Task, open_task
from brinell.store import rows
from brinell.store.files import read_arrays
from brinell.studies.audit_pictures.result import PIECE
from brinell.studies.audit_pictures.run import (
    BUDGETS,
    FAST,
    SAMPLES,
    PicturesPlan,
    attack_pictures,
    attacks_of,
    budgets_of,
    check_norm,
)
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.transfer import TransferRequest
from brinell.studies.transfer_pictures.result import Answers, SourceFacts, TransferFacts, inputs_path
from brinell.studies.work import open_plan

MISSED = "missed"
"""The kind of error of boxes that attacks aim at if nobody names any."""


@dataclass(frozen=True, kw_only=True)
class TransferPlan(Plan):
    """The plan of a transfer of pictures."""

    tasks: dict[str, Task]
    """By model."""
    sources: dict[str, PicturesPlan]
    """The plan of the attack on each source."""
    batch_size: int


def make_plan(call: Call) -> TransferPlan:
    """Open the data and the models, and refuse what cannot be carried out.

    Raises:
        RequestError: fewer than two models, an unknown source, a model or an attack that does not fit, or several budgets.
    """
    request: TransferRequest = call.request
    check_norm(request.norm)
    levels, texts = budgets_of(request.eps or BUDGETS[request.norm].rpartition(",")[2])
    if len(levels) != 1:
        raise RequestError(f"{option('eps')} {request.eps} is no single budget: write one, such as {option('eps', '1/255')}")
    plan: Plan = open_plan(call, usual_samples=SAMPLES)
    if len(plan.models) < 2:
        raise RequestError(f"a transfer needs two models, and one is named: add {option('model')}, or audit it")
    call.say_samples(plan)
    if unknown := sorted(set(request.source) - set(plan.models)):
        raise RequestError(f"no model is named {unknown[0]!r}: the models are {', '.join(plan.models)}")
    truth, first = plan.dataset.info.truth, plan.ids[:1].tolist()
    criterion = request.criterion or (MISSED if truth is not None and truth.task == "detection" else None)
    tasks = {
        name: open_task(plan.dataset, model, criterion, first, plan.device, single=False) for name, model in plan.models.items()
    }
    opened: dict[str, Any] = {name: getattr(plan, name) for name in ("dataset", "selection", "ids", "labels", "device")}
    attack = FAST if request.attack is None else (request.attack,)
    sources = {
        name: PicturesPlan(
            **opened,
            models={name: task.model},
            task=task,
            distance=open_distance(request.norm),
            attacks=attacks_of(attack, task, request.norm),
            levels=levels,
            seed=request.seed,
            batch_size=request.batch_size,
        )
        for name, task in tasks.items()
        if name in (request.source or tasks)
    }
    task = next(iter(tasks.values()))
    facts = TransferFacts(
        task=task.kind,
        criterion=task.text,
        eps=levels[0],
        eps_text=texts[0],
        least_score=task.shown,
        sources=[SourceFacts(name=name, attacks=list(source.attacks)) for name, source in sources.items()],
    )
    return TransferPlan(
        **opened,
        models={name: task.model for name, task in tasks.items()},
        tasks=tasks,
        sources=sources,
        facts=facts,
        batch_size=request.batch_size,
    )


def pieces(plan: TransferPlan, call: Call) -> list[Piece]:
    """The untouched pictures, and groups of pictures on each source."""
    listing = [Piece(name="pictures without an attack", make=partial(_show_clean, plan))]
    for number, source in enumerate(plan.sources):
        for start in range(0, len(plan.ids), PIECE):
            file = inputs_path(number, start)
            listing.append(
                Piece(
                    name=f"{source}, pictures {start + 1} to {min(start + PIECE, len(plan.ids))} of {len(plan.ids)}",
                    make=partial(_attack, plan, source, plan.ids[start : start + PIECE], file),
                    files=(file,),
                )
            )
    return listing


def _show_clean(plan: TransferPlan) -> Answers:
    """The rows of the untouched pictures on every model."""
    groups = [plan.ids[start : start + PIECE] for start in range(0, len(plan.ids), PIECE)]
    return rows.concatenate(
        [
            _show(plan, name, ids, plan.dataset.load(ids.tolist()).to(plan.device), truth=True, distance=0.0)
            for name in plan.models
            for ids in groups
        ]
    )


def _attack(plan: TransferPlan, source: str, ids: Array, file: str) -> Answers:
    """Attack a source on a group of pictures, and show every model the strongest inputs, by the aims of the attack.

    The costs are in the rows of the source, at the first aim.
    """
    attacked = attack_pictures(replace(plan.sources[source], models={source: plan.models[source]}, folder=plan.folder), ids, file)
    arrays, clean = read_arrays(plan.folder / file), plan.dataset.load(ids.tolist()).to(plan.device)
    of_sample = [(attacked.attack != CLEAN) & (attacked.sample_id == sample) for sample in ids.tolist()]
    costs: dict[str, Any] = {
        name: np.array([getattr(attacked, name)[index].sum() for index in of_sample])
        for name in ("forwards", "backwards", "seconds")
    }
    parts = []
    for aim in plan.tasks[source].aims:
        x = torch.from_numpy(np.stack([arrays[f"{aim}-{sample}"] for sample in ids.tolist()])).to(plan.device)
        change = size(plan.sources[source].distance, x, clean).double().cpu().numpy()
        for name in plan.models:
            own = costs if name == source and aim == plan.tasks[source].aims[0] else {}
            parts.append(_show(plan, name, ids, x, source=source, aim=aim, distance=change, **own))
    return rows.concatenate(parts)


def _show(
    plan: TransferPlan, name: str, ids: Array, x: Tensor, *, source: str = "", aim: str = "", truth: bool = False, **columns: Any
) -> Answers:
    """The rows of a model on inputs of some pictures."""
    task = replace(plan.tasks[name], model=plan.models[name])
    answers = task.columns(task.ask(x, plan.batch_size), ids.tolist(), truth=truth)
    place = {"source": source, "aim": aim, "model": name, "sample_id": ids}
    return rows.build(Answers, len(ids), **place, **answers, **columns)
