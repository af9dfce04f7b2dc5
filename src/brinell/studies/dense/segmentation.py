"""Maps under attack: pictures at each budget in rising order, each attack from the strongest input so far.

An input within a budget is within every larger one. So the attacks at the next budget begin with the strongest input so far, and
it counts where they find nothing better: the curve never rises.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.losses import predicted_classes
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.segmentation import IGNORED, MapCriterion, confusion
from brinell.core.threat import size
from brinell.engine.dense_outputs import fit_maps, map_criterion
from brinell.engine.plan import open_distance
from brinell.models._maps import MapModel
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.studies.answer_text import pack_pairs
from brinell.studies.dense.records import CERTIFIED, CLEAN, Answers
from brinell.studies.dense.request import SEA, DenseRequest
from brinell.studies.dense.segmentation_checks import check_model
from brinell.studies.dense.stages import DensePlan, Group, Stage, StageResult
from brinell.studies.kit import Plan


def default_attack(model: Model) -> str:
    """The attack if nobody names one."""
    return SEA


def adapt(model: Model, plan: Plan, request: DenseRequest) -> MapModel:
    """The model with maps of logits as large as the pictures."""
    return fit_maps(model, plan.dataset, plan.ids[:1].tolist(), plan.device, request.enlarge)


def check(request: DenseRequest, plan: Plan, model: MapModel) -> list[dict[str, Any]]:
    """Refuse a criterion that no picture can meet, and check the model on the first picture; returns the checks.

    Raises:
        RequestError: it is unknown, or names a class that does not exist or occurs in no mask.
    """
    criterion_of(request, plan, model)
    first, truth = plan.ids[:1].tolist(), plan.dataset.info.truth
    assert truth is not None
    with model.info.session(plan.device):
        return check_model(model, plan.dataset.load(first).to(plan.device), _tensor(truth.load(first), plan))


def criterion_of(request: DenseRequest, plan: Plan, model: MapModel) -> Callable[[Array], MapCriterion]:
    """A function from masks (n, h, w) to their criterion."""
    return map_criterion(request.criterion or "pixels", plan.dataset.classes, model, plan.device)


def _tensor(masks: Array, plan: Plan) -> Tensor:
    """Masks as (n, h, w) int64 on the device."""
    return torch.from_numpy(np.asarray(masks, dtype=np.int64)).to(plan.device)


def row_names(stage: Stage, request: DenseRequest) -> list[str]:
    """The name of an attack in the rows."""
    return [stage.name]


def attack(plan: DensePlan, request: DenseRequest, part: slice, file: str) -> Answers:
    """Attack a group of pictures at all budgets, and write their strongest inputs."""
    ids, truth = plan.ids[part], plan.dataset.info.truth
    (model,) = plan.models.values()
    assert truth is not None and isinstance(model, MapModel)
    criterion = criterion_of(request, plan, model)(truth.load(ids.tolist()))
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
    return _Pictures(group, ids, request.lipschitz).attack(plan, plan.folder / file)


class _Pictures:
    """A group of pictures, the strongest input so far of each, and the rows.

    Args:
        group: the pictures.
        ids: (n,) their positions in the data.
        lipschitz: the Lipschitz constant of the model; None without one.
    """

    def __init__(self, group: Group, ids: Array, lipschitz: float | None) -> None:
        assert isinstance(group.criterion, MapCriterion)
        self._group, self._ids, self._lipschitz, self._criterion = group, ids, lipschitz, group.criterion
        self._best = group.x.clone()
        self._y = torch.zeros(len(ids), dtype=torch.int64, device=group.x.device)
        self._rows: list[Answers] = []
        self._maps = self._answer(group.x)
        self._margin = self._criterion.margin(self._maps.flatten(1), self._y, group.x)
        self._met = self._margin > 0

    def attack(self, plan: DensePlan, file: Any) -> Answers:
        """All budgets in rising order."""
        pictures = torch.arange(len(self._ids), device=self._y.device)
        attackable = pictures[self._criterion.attackable]
        self._note(CLEAN, 0.0, pictures, forwards=1)
        arrays: dict[str, Array] = {}
        for level, eps in enumerate(plan.setting.levels):
            if self._lipschitz is not None:
                self._certify(eps)
            for stage in plan.setting.stages:
                self._stage(stage, eps, attackable)
            for number, sample in enumerate(self._ids.tolist()):
                arrays[f"{sample}-{level}"] = self._best[number].cpu().numpy()
        write_arrays(file, arrays | self._views())
        return rows.concatenate(self._rows)

    def _views(self) -> dict[str, Array]:
        """Arrays of bytes by which the page shows each picture."""
        domain, masks = self._group.domain, self._criterion.masks
        low, high = domain.bounds(self._group.x)
        pixels = ((self._group.x - low) / (high - low) * 255).round()
        views = {
            "picture": pixels,
            "mask": masks,
            "before": predicted_classes(self._maps),
            "after": predicted_classes(self._answer(self._best)),
        }
        return {
            f"{name}-{sample}": value[number].to(torch.uint8).cpu().numpy()
            for name, value in views.items()
            for number, sample in enumerate(self._ids.tolist())
        }

    def _stage(self, stage: Stage, eps: float, pictures: Tensor) -> None:
        """Run a stage on the pictures that do not meet the criterion yet."""
        open_indices, met_indices = pictures[~self._met[pictures]], pictures[self._met[pictures]]
        if len(met_indices):
            self._rows.append(
                rows.build(Answers, len(met_indices), **self._columns(stage.name, eps, met_indices), outcome="below", answer="")
            )
        if not len(open_indices):
            return
        changed = (self._best != self._group.x).flatten(1).any(1)
        for indices, start in ((open_indices[~changed[open_indices]], False), (open_indices[changed[open_indices]], True)):
            if len(indices):
                result = self._group.run(stage, eps, indices, self._best[indices] if start else None)
                self._keep(result, stage.name, eps, indices)

    def _keep(self, result: StageResult, name: str, eps: float, indices: Tensor) -> None:
        """Write the rows of a stage, and keep what it improved."""
        maps = self._answer(result.x)
        columns = {
            "margin": np.ma.masked_invalid(result.margin.double().cpu().numpy()),
            "forwards": result.forwards.cpu().numpy(),
            "backwards": result.backwards.cpu().numpy(),
            "first_success": np.ma.masked_equal(result.first_success.cpu().numpy(), 0),
            "seconds": result.seconds,
        }
        self._note(name, eps, indices, result.x, maps, result.successes, **columns)
        improved = result.margin > self._margin[indices]
        self._best[indices[improved]], self._margin[indices[improved]] = result.x[improved], result.margin[improved]
        self._met[indices] |= result.successes

    def _note(
        self,
        name: str,
        eps: float,
        indices: Tensor,
        x: Tensor | None = None,
        maps: Tensor | None = None,
        successes: Tensor | None = None,
        **columns: Any,
    ) -> None:
        """Write rows of inputs, of the clean ones if none are given."""
        x = self._group.x[indices] if x is None else x
        maps = self._maps[indices] if maps is None else maps
        successes = self._met[indices] if successes is None else successes
        defaults = {"margin": self._margin[indices].double().cpu().numpy()}
        self._rows.append(
            rows.build(
                Answers,
                len(indices),
                **self._columns(name, eps, indices),
                outcome=np.where(successes.cpu().numpy(), "met", "open"),
                distance=size(self._group.distance, x, self._group.x[indices]).double().cpu().numpy(),
                **_count_pixels(maps, self._criterion.masks[indices]),
                **defaults | columns,
            )
        )

    def _columns(self, name: str, eps: float, indices: Tensor) -> dict[str, Any]:
        """The columns by which a row is known."""
        return {"sample_id": self._ids[indices.cpu().numpy()], "attack": name, "eps": eps}

    def _certify(self, eps: float) -> None:
        """Write the rows of the worst that the Lipschitz constant allows."""
        assert self._lipschitz is not None
        pictures = torch.arange(len(self._ids))
        wrong = certified_wrong(self._maps, self._criterion.masks, eps, self._lipschitz)
        valid = self._criterion.valid.flatten(1).sum(1)
        self._rows.append(
            rows.build(
                Answers,
                len(self._ids),
                **self._columns(CERTIFIED, eps, pictures),
                outcome="open",
                valid=valid.cpu().numpy(),
                wrong=wrong.cpu().numpy(),
                answer="",
            )
        )

    def _answer(self, x: Tensor) -> Tensor:
        """(n, classes, h, w): maps of inputs."""
        with torch.no_grad():
            answers = [self._group.model.predict(part) for part in x.split(self._group.batch_size)]  # type: ignore[no-untyped-call]
        return self._criterion.maps(torch.cat(answers))


def answer_columns(
    plan: Plan, request: DenseRequest, model: Model, ids: Array, x: Tensor, *, with_truth: bool = False
) -> dict[str, Array]:
    """Pixels of the answers of a model to inputs (n, *shape) of these pictures, as columns of rows.

    Args:
        plan: the data.
        request: the settings.
        model: what `adapt` made.
        ids: (n,) int64.
        x: the inputs.
        with_truth: ignored, since the counts hold the truth.
    """
    truth = plan.dataset.info.truth
    assert truth is not None and isinstance(model, MapModel)
    with torch.no_grad():
        answers = torch.cat([model.predict(part) for part in x.split(request.batch_size)])  # type: ignore[no-untyped-call]
    masks = torch.from_numpy(np.asarray(truth.load(ids.tolist()), dtype=np.int64)).to(x.device)
    return _count_pixels(answers.reshape(len(x), *model.output.shape), masks)


def strongest_inputs(arrays: Mapping[str, Array], ids: Array, request: DenseRequest, level: int) -> dict[str, Array]:
    """Inputs of these pictures at a budget, from the file that `attack` wrote, by what they aim at."""
    aim = (request.criterion or "pixels").partition(":")[0]
    return {aim: np.stack([arrays[f"{sample}-{level}"] for sample in ids.tolist()])}


def _count_pixels(maps: Tensor, masks: Tensor) -> dict[str, Array]:
    """The columns of maps (n, classes, h, w): valid pixels, wrong ones, and the counts of both classes."""
    counts = confusion(predicted_classes(maps), masks, maps.shape[1])
    valid, right = counts.sum((1, 2)), counts.diagonal(dim1=1, dim2=2).sum(1)
    answer = np.array([pack_pairs(matrix) for matrix in counts.cpu().numpy()], dtype=object)
    return {"valid": valid.cpu().numpy(), "wrong": (valid - right).cpu().numpy(), "answer": answer}


def certified_wrong(maps: Tensor, masks: Tensor, radius: float, lipschitz: float) -> Tensor:
    """(n,) int64: the most valid pixels of each picture that can be wrong within an L2 radius.

    All logits of a picture together move by at most `lipschitz` times the change of the input (Euclidean norms). A pixel whose
    true logit leads by m becomes wrong only if two of its logits move by m / sqrt(2) together, so the pixels with the smallest
    leads fall first, as long as the squares of these moves fit into that of the whole. A tie counts as wrong.
    """
    valid = masks != IGNORED
    lead = -losses.margin(maps.double(), masks.masked_fill(~valid, 0))
    slack = 1e-6 * maps.abs().amax(1).double()  # rounding of the float32 network
    cost = (lead - slack).clamp_min(0).square() / 2
    ordered = torch.where(valid, cost, torch.inf).flatten(1).sort(1).values
    return (ordered.cumsum(1) <= (lipschitz * radius) ** 2 * (1 + 1e-9)).sum(1)
