"""The computation: each source is attacked on groups of pictures, and every model is shown the strongest inputs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import RequestError, option
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.threat import size
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import open_distance
from brinell.store import rows
from brinell.store.files import read_arrays
from brinell.studies.dense.records import CLEAN
from brinell.studies.dense.request import DenseRequest
from brinell.studies.dense.run import BUDGETS, SAMPLES, TASKS, stages_of
from brinell.studies.dense.stages import DensePlan, Setting, Stage
from brinell.studies.dense_transfer.records import Answers, inputs_path
from brinell.studies.dense_transfer.request import DenseTransferRequest
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.work import open_plan

MISSED = "missed"
"""The kind of error of boxes that attacks aim at if nobody names any."""


@dataclass(frozen=True, kw_only=True)
class TransferPlan(Plan):
    """The plan of a transfer between models with dense outputs."""

    task: str = ""
    """segmentation or detection."""
    eps: float
    stages: dict[str, tuple[Stage, ...]]
    """The attacks on each source."""


def make_plan(call: Call) -> TransferPlan:
    """Open the data and the models, and refuse what cannot be carried out.

    Raises:
        RequestError: data without masks and boxes, fewer than two models, an unknown source, a model or an attack that does not
            fit, or several budgets.
    """
    request: DenseTransferRequest = call.request
    budgets = parse_eps(request.eps or BUDGETS[request.norm].rpartition(",")[2])
    if len(budgets.values) != 1 or budgets.values[0] <= 0:
        raise RequestError(
            f"{option('eps')} {request.eps} is no single budget above 0: write one, such as {option('eps', '1/255')}"
        )
    if len(request.model) < 2:
        raise RequestError(f"a transfer needs two models, and one is named: add {option('model')}, or audit it by brinell dense")
    plan = open_plan(call, TransferPlan, usual_samples=SAMPLES, eps=budgets.values[0], stages={})
    call.say_samples(plan)
    truth = plan.dataset.info.truth
    if truth is None:
        raise RequestError(
            f"{plan.dataset.name} has one class for each input: brinell transfer compares such models; name data with masks or "
            "boxes, such as masks:FOLDER or boxes:FOLDER"
        )
    task = TASKS[truth.task]
    if unknown := sorted(set(request.source) - set(plan.models)):
        raise RequestError(f"no model is named {unknown[0]!r}: the models are {', '.join(plan.models)}")
    models, stages = {}, {}
    for name, model in plan.models.items():
        settings = _settings(request, truth.task, name)
        models[name] = task.adapt(model, plan, settings)
        if name in (request.source or plan.models):
            stages[name] = stages_of(settings, task, models[name])
            task.check(settings, plan, models[name])
    about = {
        "task": truth.task,
        "eps": budgets.values[0],
        "eps_text": budgets.texts[0],
        "sources": [{"name": name, "attacks": [stage.name for stage in attacks]} for name, attacks in stages.items()],
    }
    return replace(plan, models=models, task=truth.task, stages=stages, about=about)


def _settings(request: DenseTransferRequest, task: str, model: str) -> DenseRequest:
    settings = DenseRequest(model=model, **request.dense_settings())
    usual = MISSED if task == "detection" else None
    return settings.model_copy(update={"criterion": request.criterion or usual})


def pieces(plan: TransferPlan, call: Call) -> list[Piece]:
    """The untouched pictures, and groups of pictures on each source."""
    length = call.request.batch_size
    groups = [slice(start, start + length) for start in range(0, len(plan.ids), length)]
    listing = [Piece(name="pictures without an attack", make=partial(_show_clean, plan, call.request))]
    for number, source in enumerate(plan.stages):
        for group, part in enumerate(groups):
            file = inputs_path(number, group)
            listing.append(
                Piece(
                    name=f"{source}, pictures {part.start + 1} to {min(part.stop, len(plan.ids))} of {len(plan.ids)}",
                    make=partial(_attack, plan, call.request, source, part, file),
                    files=(file,),
                )
            )
    return listing


def _show_clean(plan: TransferPlan, request: DenseTransferRequest) -> Answers:
    """The rows of the untouched pictures on every model."""
    starts = range(0, len(plan.ids), request.batch_size)
    groups = [plan.ids[start : start + request.batch_size] for start in starts]
    return rows.concatenate(
        [
            _show(plan, request, name, ids, plan.dataset.load(ids.tolist()).to(plan.device), with_truth=True)
            for name in plan.models
            for ids in groups
        ]
    )


def _attack(plan: TransferPlan, request: DenseTransferRequest, source: str, part: slice, file: str) -> Answers:
    """Attack a source on a group of pictures, and show every model the strongest inputs."""
    settings, ids, task = _settings(request, plan.task, source), plan.ids[part], TASKS[plan.task]
    setting = Setting(levels=(plan.eps,), stages=plan.stages[source])
    single = {field: getattr(plan, field) for field in ("dataset", "selection", "ids", "labels", "device", "folder")}
    attacked = task.attack(DensePlan(models={source: plan.models[source]}, setting=setting, **single), settings, part, file)
    inputs = task.strongest_inputs(read_arrays(plan.folder / file), ids, settings, 0)
    return rows.concatenate(list(_answers(plan, request, source, ids, inputs, _costs(attacked, ids))))


def _answers(
    plan: TransferPlan, request: DenseTransferRequest, source: str, ids: Array, inputs: dict[str, Array], costs: dict[str, Array]
) -> Iterator[Answers]:
    """The rows of inputs on every model; the costs are in those of the source, at the first aim."""
    clean, distance = plan.dataset.load(ids.tolist()).to(plan.device), open_distance(request.norm)
    for number, (aim, arrays) in enumerate(inputs.items()):
        x = torch.from_numpy(arrays).to(plan.device)
        change = size(distance, x, clean).double().cpu().numpy()
        for name in plan.models:
            columns: dict[str, Any] = dict(costs) if name == source and not number else {}
            yield _show(plan, request, name, ids, x, source=source, aim=aim, distance=change, **columns)


def _show(
    plan: TransferPlan,
    request: DenseTransferRequest,
    name: str,
    ids: Array,
    x: Tensor,
    *,
    source: str = "",
    aim: str = "",
    distance: Any = 0.0,
    with_truth: bool = False,
    **columns: Any,
) -> Answers:
    """The rows of a model on inputs of some pictures."""
    model: Model = plan.models[name]
    settings = _settings(request, plan.task, name)
    answers = TASKS[plan.task].answer_columns(plan, settings, model, ids, x, with_truth=with_truth)
    place = {"source": source, "aim": aim, "model": name, "sample_id": ids, "distance": distance}
    return rows.build(Answers, len(ids), **place, **answers, **columns)


def _costs(attacked: Any, ids: Array) -> dict[str, Array]:
    """Evaluations and seconds of the attacks on each picture."""
    of_attack = attacked.attack != CLEAN
    return {
        name: np.array([getattr(attacked, name)[of_attack & (attacked.sample_id == sample)].sum() for sample in ids.tolist()])
        for name in ("forwards", "backwards", "seconds")
    }
