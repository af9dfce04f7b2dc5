"""Detectors under attack: pictures at each budget in rising order, for each kind of error by itself.

An input within a budget is within every larger one. So the strongest input of a smaller budget is where the attacks of the
next one begin, and what counts where they find nothing better: no curve of errors falls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.boxes import LEAST, Objects
from brinell.core.detection import BoxCriterion, BoxForm, Error, Scene
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.threat import size
from brinell.engine.dense_outputs import ERRORS, box_criterion, fit_boxes
from brinell.engine.plan import open_distance
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.studies.answer_text import count_lost, pack_answer
from brinell.studies.dense.detection_checks import check_detector
from brinell.studies.dense.records import CLEAN, Answers
from brinell.studies.dense.request import DenseRequest
from brinell.studies.dense.stages import DensePlan, Group, Stage, StageResult
from brinell.studies.kit import Plan


def default_attack(model: Model) -> str:
    """The attack if nobody names one."""
    return "apgd-map?steps=25&wide=false" if model.access == Access.GRADIENTS else "square?steps=500"


def adapt(model: Model, plan: Plan, request: DenseRequest) -> Model:
    """The model unchanged.

    Raises:
        RequestError: it does not answer boxes of the data's classes, or the request certifies maps.
    """
    if request.lipschitz is not None:
        raise RequestError(f"{option('lipschitz')} certifies maps alone, and {model.name} answers boxes: leave it out")
    fit_boxes(model, plan.dataset, plan.ids[:1].tolist(), plan.device)
    return model


def check(request: DenseRequest, plan: Plan, model: Model) -> list[dict[str, Any]]:
    """Refuse a criterion that is unknown, and check the model on the first picture; returns the checks.

    Raises:
        RequestError: it is unknown.
    """
    thresholds(request)
    first, truth = plan.ids[:1].tolist(), plan.dataset.info.truth
    assert truth is not None
    with model.info.session(plan.device):
        scene = Scene.of(truth.load(first), plan.device)
        return check_detector(model, plan.dataset.load(first).to(plan.device), scene, request.least_score)


def thresholds(request: DenseRequest) -> dict[Error, float]:
    """The kinds of errors that are attacked, each with the share of objects, or the number of boxes, at which an attack ends."""
    return box_criterion(request.criterion or "+".join(ERRORS))


def row_names(stage: Stage, request: DenseRequest) -> list[str]:
    """The names of an attack in the rows, one for each kind of error."""
    return [row_name(error, stage) for error in thresholds(request)]


def row_name(error: Error, stage: Stage) -> str:
    """The name of an attack on one kind of error."""
    return f"{error}/{stage.name}"


def attack(plan: DensePlan, request: DenseRequest, part: slice, file: str) -> Answers:
    """Attack a group of pictures at all budgets, and write their strongest inputs."""
    ids, truth = plan.ids[part], plan.dataset.info.truth
    (model,) = plan.models.values()
    form = model.info.output
    assert truth is not None and isinstance(form, BoxForm)
    scene = Scene.of(truth.load(ids.tolist()), plan.device)
    parts: list[Answers] = []
    arrays: dict[str, Array] = {}
    for error, end in thresholds(request).items():
        criterion = BoxCriterion(error=error, scene=scene, form=form, least_score=request.least_score, threshold=end)
        group = Group(
            model=model,
            domain=plan.dataset.domain,
            distance=open_distance(request.norm),
            ids=torch.as_tensor(ids, device=plan.device),
            x=plan.dataset.load(ids.tolist()).to(plan.device),
            criterion=criterion,
            seed=request.seed,
            batch_size=request.batch_size,
            on_pass=plan.on_pass,
            queries=request.queries,
        )
        pictures = _Pictures(group, ids, criterion)
        if not parts:
            parts.append(pictures.clean_rows())
            arrays |= pictures.views()
        parts += pictures.attack(plan)
        arrays |= pictures.inputs()
    write_arrays(plan.folder / Path(file), arrays)
    return rows.concatenate(parts)


class _Pictures:
    """A group of pictures, the strongest input so far of each for one kind of error, and the rows.

    Args:
        group: the pictures.
        ids: (n,) their positions in the data.
        criterion: the kind of error.
    """

    def __init__(self, group: Group, ids: Array, criterion: BoxCriterion) -> None:
        self._group, self._ids, self._criterion = group, ids, criterion
        self._best = group.x.clone()
        self._answers = self._answer(group.x)
        y = torch.zeros(len(ids), dtype=torch.int64, device=group.x.device)
        self._margin = criterion.margin(self._answers, y, group.x)
        self._met = self._margin > 0

    def attack(self, plan: DensePlan) -> list[Answers]:
        """The rows of all budgets in rising order."""
        indices = torch.arange(len(self._ids), device=self._best.device)
        attackable = indices[self._criterion.attackable]
        return [
            part for eps in plan.setting.levels for stage in plan.setting.stages for part in self._stage(stage, eps, attackable)
        ]

    def clean_rows(self) -> Answers:
        """The rows of the untouched pictures, with their objects."""
        indices = torch.arange(len(self._ids))
        return self._note(CLEAN, 0.0, indices, self._group.x, self._answers, with_objects=True, outcome="open", forwards=1)

    def inputs(self) -> dict[str, Array]:
        """The strongest input of each picture at the largest budget."""
        error = self._criterion.error
        return {f"{sample}-{error}": self._best[number].cpu().numpy() for number, sample in enumerate(self._ids.tolist())}

    def views(self) -> dict[str, Array]:
        """The pictures as bytes, for the page."""
        low, high = self._group.domain.bounds(self._group.x)
        pixels = ((self._group.x - low) / (high - low) * 255).round().to(torch.uint8).cpu().numpy()
        return {f"picture-{sample}": pixels[number] for number, sample in enumerate(self._ids.tolist())}

    def _stage(self, stage: Stage, eps: float, attackable: Tensor) -> list[Answers]:
        """The rows of a stage, which runs on the pictures that do not meet the criterion yet."""
        stage = replace(stage, name=row_name(self._criterion.error, stage))
        open_rows, finished = attackable[~self._met[attackable]], attackable[self._met[attackable]]
        parts = []
        if len(finished):
            columns = {"sample_id": self._ids[finished.cpu().numpy()], "attack": stage.name, "eps": eps}
            parts.append(rows.build(Answers, len(finished), **columns, outcome="below", answer=""))
        changed = (self._best != self._group.x).flatten(1).any(1)
        for indices, start in ((open_rows[~changed[open_rows]], False), (open_rows[changed[open_rows]], True)):
            if len(indices):
                result = self._group.run(stage, eps, indices, self._best[indices] if start else None)
                parts.append(self._keep(result, stage.name, eps, indices))
        return parts

    def _keep(self, result: StageResult, name: str, eps: float, indices: Tensor) -> Answers:
        """The rows of a stage, whose improvements are kept."""
        improved = result.margin > self._margin[indices]
        self._best[indices[improved]], self._margin[indices[improved]] = result.x[improved], result.margin[improved]
        self._met[indices] |= result.successes
        return self._note(
            name,
            eps,
            indices,
            result.x,
            self._answer(result.x),
            outcome=np.where(result.successes.cpu().numpy(), "met", "open"),
            margin=result.margin.double().cpu().numpy(),
            forwards=result.forwards.cpu().numpy(),
            backwards=result.backwards.cpu().numpy(),
            first_success=np.ma.masked_equal(result.first_success.cpu().numpy(), 0),
            seconds=result.seconds,
        )

    def _note(
        self, name: str, eps: float, indices: Tensor, x: Tensor, answers: Tensor, *, with_objects: bool = False, **columns: Any
    ) -> Answers:
        """Rows of inputs with their boxes."""
        objects = [self._criterion.scene.objects[number] for number in indices.tolist()]
        return rows.build(
            Answers,
            len(indices),
            sample_id=self._ids[indices.cpu().numpy()],
            attack=name,
            eps=eps,
            distance=size(self._group.distance, x, self._group.x[indices]).double().cpu().numpy(),
            **_count_objects(self._criterion.form, answers, objects, self._criterion.least_score, with_objects),
            **columns,
        )

    def _answer(self, x: Tensor) -> Tensor:
        """Flattened candidates of inputs."""
        with torch.no_grad():
            return torch.cat([self._group.model.predict(part) for part in x.split(self._group.batch_size)])  # type: ignore[no-untyped-call]


def answer_columns(
    plan: Plan, request: DenseRequest, model: Model, ids: Array, x: Tensor, *, with_truth: bool = False
) -> dict[str, Array]:
    """Boxes of the answers of a model to inputs (n, *shape) of these pictures, as columns of rows.

    Args:
        plan: the data.
        request: the settings.
        model: what `adapt` made.
        ids: (n,) int64.
        x: the inputs.
        with_truth: True if the answer holds the objects as well.
    """
    truth, form = plan.dataset.info.truth, model.info.output
    assert truth is not None and isinstance(form, BoxForm)
    with torch.no_grad():
        answers = torch.cat([model.predict(part) for part in x.split(request.batch_size)])  # type: ignore[no-untyped-call]
    return _count_objects(form, answers, truth.load(ids.tolist()), request.least_score, with_truth)


def strongest_inputs(arrays: Mapping[str, Array], ids: Array, request: DenseRequest, level: int) -> dict[str, Array]:
    """Inputs of these pictures at the largest budget, from the file that `attack` wrote, by the error that they aim at."""
    return {error: np.stack([arrays[f"{sample}-{error}"] for sample in ids.tolist()]) for error in thresholds(request)}


def _count_objects(
    form: BoxForm, answers: Tensor, objects: Sequence[Objects], least: float, with_objects: bool
) -> dict[str, Array]:
    """The columns of flattened answers: objects, those that no shown box finds, and the boxes, with the objects if asked for."""
    pairs = list(zip(form.decode(answers, LEAST), objects, strict=True))
    packed = [pack_answer(boxes, picture if with_objects else None) for boxes, picture in pairs]
    return {
        "valid": np.array([picture.count for _, picture in pairs]),
        "wrong": np.array([count_lost(boxes.select_above(least), picture) for boxes, picture in pairs]),
        "answer": np.array(packed, dtype=object),
    }
