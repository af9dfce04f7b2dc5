"""Each source is attacked on groups of pictures, and every model is shown the strongest inputs."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.core.threat import size
from brinell.store import rows
from brinell.store.files import read_arrays
from brinell.studies.audit.tasks.result import inputs_path
from brinell.studies.audit.tasks.run import (
    FAST,
    SAMPLES,
    PicturesPlan,
    attack_pictures,
    groups,
    plan_attack,
    task_facts,
)
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.transfer import TransferRequest
from brinell.studies.transfer.tasks.result import TaskTransferFacts, TransferRows
from brinell.studies.work import open_plan


@dataclass(frozen=True, kw_only=True)
class TaskTransferPlan(Plan):
    """The plan of a transfer of pictures."""

    attacked: dict[str, PicturesPlan]
    """The plan of the attack on each model, without attacks where it is no source."""
    sources: list[str]
    batch_size: int


def make_plan(call: Call) -> TaskTransferPlan:
    """Open the data and the models, and refuse what cannot be carried out."""
    request: TransferRequest = call.request
    plan: Plan = open_plan(call, truth=True, usual_samples=SAMPLES)
    if len(plan.models) < 2:
        raise RequestError(
            f"a transfer needs two models, and one is named: add {option('model')}, or audit it"
        )
    call.say_samples(plan)
    if unknown := sorted(set(request.source) - set(plan.models)):
        raise RequestError(
            f"no model is named {unknown[0]!r}: the models are {', '.join(plan.models)}"
        )

    attack = FAST if request.attack is None else (request.attack,)
    sources = [name for name in plan.models if name in (request.source or plan.models)]
    attacked = {
        name: plan_attack(plan, model, request, attack if name in sources else (), use="transfer")
        for name, model in plan.models.items()
    }
    first = next(iter(attacked.values()))
    if len(first.levels) != 1:
        raise RequestError(
            f"{option('eps')} {request.eps} is no single budget: write one, such "
            f"as {option('eps', '1/255')}"
        )

    names = dict.fromkeys(attack for name in sources for attack in attacked[name].attacks)
    facts = TaskTransferFacts(
        **task_facts(first.task),
        eps=first.levels[0],
        eps_text=first.texts[0],
        sources=sources,
        attacks=list(names),
    )
    opened = vars(plan) | {
        "models": {name: each.task.model for name, each in attacked.items()},
        "facts": facts,
    }
    return TaskTransferPlan(
        **opened, attacked=attacked, sources=sources, batch_size=request.batch_size
    )


def pieces(plan: TaskTransferPlan, call: Call) -> list[Piece]:
    """The untouched pictures, and groups of pictures on each source."""
    listing = [Piece(name="pictures without an attack", make=partial(_show_clean, plan))]
    for number, source in enumerate(plan.sources):
        for start, ids, name in groups(plan):
            file = inputs_path(start, number)
            make = partial(_attack, plan, source, ids, file)
            listing.append(Piece(name=f"{source}, {name}", make=make, files=(file,)))
    return listing


def _show_clean(plan: TaskTransferPlan) -> TransferRows:
    """The rows of the untouched pictures on every model."""
    parts = []
    for name in plan.models:
        for _, ids, _ in groups(plan):
            clean = plan.dataset.load(ids.tolist()).to(plan.device)
            # The clean rows alone hold the objects that are there, once for each model.
            parts.append(_show(plan, name, ids, clean, truth=True, distance=0.0))
    return rows.concatenate(parts)


def _attack(plan: TaskTransferPlan, source: str, ids: Array, file: str) -> TransferRows:
    """Attack a source on a group of pictures, and show every model the strongest inputs, by the
    aims of the attack.
    """
    attacked = replace(
        plan.attacked[source], models={source: plan.models[source]}, folder=plan.folder
    )
    attack_pictures(attacked, ids, file)

    arrays = read_arrays(plan.folder / file)
    clean = plan.dataset.load(ids.tolist()).to(plan.device)
    parts = []
    for aim in attacked.task.aims:
        inputs = np.stack([arrays[f"{aim}-{sample}"] for sample in ids.tolist()])
        x = torch.from_numpy(inputs).to(plan.device)
        change = size(attacked.distance, x, clean).double().cpu().numpy()
        parts += [
            _show(plan, name, ids, x, source=source, aim=aim, distance=change)
            for name in plan.models
        ]
    return rows.concatenate(parts)


def _show(
    plan: TaskTransferPlan,
    name: str,
    ids: Array,
    x: Tensor,
    *,
    source: str = "",
    aim: str = "",
    truth: bool = False,
    **columns: Any,
) -> TransferRows:
    """The rows of a model on inputs `x` of some pictures, by default untouched ones.

    With `truth` they hold the objects in the pictures too; `columns` are those that no answer
    gives, such as the distance of the inputs.
    """
    task = replace(plan.attacked[name].task, model=plan.models[name])
    answers = task.columns(task.ask(x, plan.batch_size), ids.tolist(), truth=truth)
    place = {"source": source, "aim": aim, "model": name, "sample_id": ids}
    return rows.build(TransferRows, len(ids), **place, **answers, **columns)
