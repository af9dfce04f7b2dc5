"""Maps of a group of samples by each method, and measures of each map.

Every method queries the model through a ledger, which counts the cost of each sample. Queries that judge maps are counted apart.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.analysis import saliency
from brinell.core.contracts import Dataset, Model
from brinell.core.criterion import MISCLASSIFIED, Criterion
from brinell.core.errors import ContractError, RequestError
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.group_attack import predict
from brinell.explainers._asking import blurred, places_of
from brinell.store import rows
from brinell.studies.explain.faithfulness import Ask, curves, draw_masks, drops
from brinell.studies.explain.methods import CONTROLS, Method, attach_network
from brinell.studies.explain.of_run import AttackMaps
from brinell.studies.explain.randomisation import make_shuffled_model
from brinell.studies.explain.records import BLURRED, INVERSE, Rows
from brinell.studies.explain.region import Regions
from brinell.studies.explain.request import ExplainRequest
from brinell.studies.explain.truth import GroundTruth

GROUP = 64
"""Largest number of samples that a method explains at once."""
REGIONS = 8
"""The same for regions of pictures, whose answers are large."""
GROUP_BYTES = 64 * 2**20
"""Approximate limit of the size of their inputs, in bytes."""
WIDE = 1 / 16
"""Standard deviation of the blur of a control map, as a share of the longest side."""


@dataclass(kw_only=True)
class Explanations:
    """Explanations of one group by one method, or from the records of an attack."""

    rows: list[Rows] = field(default_factory=list)
    maps: dict[str, Array] = field(default_factory=dict)
    """(*places) float32 by METHOD/SAMPLE."""
    cascade: dict[str, Array] = field(default_factory=dict)
    """(stages,) float64 by METHOD/SAMPLE: similarity at each stage of the cascade."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of samples with the inputs and arrays that explaining them takes."""

    ids: Array
    """(n,): positions of the samples in the data."""
    x: Tensor
    y: Tensor
    """(n,): the explained classes; 0 for regions, whose criterion shows two."""
    criterion: Criterion
    """The criterion that explainers see: of the class of an input, or of its region."""
    rng: Streams
    truths: Sequence[Array | None]
    shared: Mapping[str, Any]
    """Columns that the rows of all methods share."""
    masks: Array | None
    """(n, k, *places): random masks that judge maps, 1 hides a place; None if the request measures no faithfulness."""
    drops: Array | None
    """(n, k): drop of the probability of the class under each mask."""


class ExplainTask:
    """A request applied to one model.

    Args:
        request: the settings of the study.
        dataset: the data.
        model: the open model, with logits as output.
        truth: ground truth of the samples, or None.
        device: the device of the model.
        attack_maps: maps from the records of an attack, by sample.
        regions: the regions that are explained, of a model that answers maps or boxes.
    """

    def __init__(
        self,
        request: ExplainRequest,
        dataset: Dataset,
        model: Model,
        *,
        truth: GroundTruth | None,
        device: torch.device,
        attack_maps: Mapping[int, AttackMaps],
        regions: Regions | None = None,
    ) -> None:
        self.request, self.dataset, self.model, self.regions = request, dataset, model, regions
        self.truth = truth if regions is None else regions.ground_truth()
        self.batch_size = request.batch_size if regions is None else min(request.batch_size, regions.batch_size)
        self.device, self.attack_maps, self.domain = device, attack_maps, dataset.domain
        self.judge_forwards = 0
        """Forward and backward passes that judged maps so far."""
        self.labels = np.asarray(dataset.labels(), dtype=np.int64)
        stage_count = request.cascade or int(request.randomise)
        self.shuffled_model = make_shuffled_model(model, request.seed, stage_count) if stage_count else None
        if stage_count and self.shuffled_model is None:
            raise RequestError(
                f"the weights of {model.name} cannot be shuffled, because it wraps no torch module: leave out "
                f"{'cascade' if request.cascade else 'randomise'}"
            )
        self.unbounded = plugins.build("distance", "linf", {})

    @property
    def stages(self) -> Sequence[Sequence[str]]:
        """Layers that each stage of the cascade shuffles; empty without a cascade."""
        return self.shuffled_model.layers if self.shuffled_model is not None and self.request.cascade else ()

    def groups(self, ids: Array, excluded: dict[str, int]) -> list[list[int]]:
        """Select the samples of `ids` (n,) to explain, in groups. Counts the others in `excluded`, by reason."""
        most = GROUP if self.regions is None else REGIONS
        size = max(1, min(most, GROUP_BYTES // (4 * int(np.prod(self.domain.shape)))))
        selected: list[int] = []
        for first in range(0, len(ids), size):
            part = ids[first : first + size]
            flags, reasons = self._inspect(part)
            for sample, correct, reason in zip(part.tolist(), flags.tolist(), reasons, strict=True):
                reason = reason or self._exclusion_reason(sample, correct)
                if reason:
                    excluded[reason] = excluded.get(reason, 0) + 1
                else:
                    selected.append(sample)
        return [selected[first : first + size] for first in range(0, len(selected), size)]

    def _exclusion_reason(self, sample: int, correct: bool) -> str:
        """The reason to exclude a sample, as it follows the number of samples; empty to keep it."""
        if self.request.only != "all" and correct != (self.request.only == "right"):
            return f"the model gets {'right' if correct else 'wrong'}"
        if self.truth is None:
            return ""
        truth = self.truth.mask(sample)
        if truth is None:
            return "without ground truth"
        return "" if (truth == 1).any() and (truth == 0).any() else "whose ground truth is empty or covers everything"

    def _inspect(self, ids: Array) -> tuple[Array, list[str]]:
        """Samples (n,) that the model gets right, (n,) bool, and the reason of each that has nothing to explain."""
        if self.regions is None:
            return self._answer(ids).argmax(1).cpu().numpy() == self.labels[ids], [""] * len(ids)
        view = self.regions.view(ids.tolist(), self._answer(ids))
        return view.predicted == view.label, view.reasons

    def _answer(self, ids: Array) -> Tensor:
        """Answers (n, ...) to samples."""
        x = self.dataset.load(ids.tolist()).to(self.device)
        self.judge_forwards += len(ids)
        return predict(self.model, x, self.batch_size)

    def predict_group(self, ids: Array) -> dict[str, Array]:
        """Predict samples (n,): `predicted` (n,), the arrays of regions, and `drops` (n, k) if faithfulness is measured."""
        answers = self._answer(ids)
        if self.regions is None:
            arrays = {"predicted": answers.argmax(1).cpu().numpy()}
        else:
            arrays = self.regions.view(ids.tolist(), answers).arrays()
        group = self.build_group(ids, arrays)
        if group.masks is None:
            return arrays
        masks = torch.as_tensor(group.masks, device=self.device)
        values = drops(self._ask(group), group.x, group.y, masks, self.domain)
        self.judge_forwards += values.size + len(ids)
        return arrays | {"drops": values}

    def _ask(self, group: Group) -> Ask:
        """The function that asks the model about inputs of a group, and gives what an explainer sees."""
        if self.regions is None:
            return lambda rows, x: predict(self.model, x, self.batch_size)

        def ask(rows: Tensor, x: Tensor) -> Tensor:
            """Two classes: the region is unchanged, or not."""
            parts = zip(torch.split(rows, self.batch_size), torch.split(x, self.batch_size), strict=True)
            return torch.cat(
                [
                    group.criterion.select(some).logits_for_attack(predict(self.model, inputs, self.batch_size), group.y[some])
                    for some, inputs in parts
                ]
            )

        return ask

    def build_group(self, ids: Array, answers: Mapping[str, Array]) -> Group:
        """Build the group of samples (n,) from the arrays that `predict_group` returned."""
        x, predicted = self.dataset.load(ids.tolist()).to(self.device), answers["predicted"]
        labels = answers.get("label", self.labels[ids])
        explained = answers.get("explained", predicted if self.request.explain == "prediction" else labels)
        rng = Streams.of(self.request.seed, torch.as_tensor(ids, device=self.device)).fold("explain")
        shared = {
            "sample_id": ids,
            "group": [self.truth.group(sample) if self.truth else "" for sample in ids.tolist()],
            "label": labels,
            "prediction": predicted,
            "explained": explained,
        }
        y = torch.as_tensor(explained, device=self.device).long()
        return Group(
            ids=ids,
            x=x,
            y=y if self.regions is None else torch.zeros_like(y),
            criterion=MISCLASSIFIED if self.regions is None else self.regions.criterion(answers["region"], self.device),
            rng=rng,
            truths=[None if self.truth is None else self.truth.mask(sample) for sample in ids.tolist()],
            shared=shared,
            masks=draw_masks(x, self.domain, rng.fold("hidden")).cpu().numpy() if self.request.steps else None,
            drops=answers.get("drops"),
        )

    def explain(self, group: Group, method: Method) -> Explanations:
        """Compute the rows and maps of a group by one method, including its controls."""
        x, rng, explanations = group.x, group.rng.fold(method.name), Explanations()
        maps, cost = self._compute_maps(method, x, group, rng)
        versions = {method.name: maps}
        if method.name.partition("?")[0] not in CONTROLS:
            versions |= {method.name + BLURRED: blurred(maps, self.domain, WIDE), method.name + INVERSE: -maps}
        copies = [self._add_noise(x, rng, copy) for copy in range(self.request.copies)]
        changes, stages = self._measure_changes(method, group, rng, maps, copies)
        for name, version in versions.items():
            measures = self._measure(version, group) | (cost | changes if name == method.name else {})
            explanations.rows.append(rows.build(Rows, len(x), method=name, **group.shared, **measures))
        keys = [f"{method.name}/{sample}" for sample in group.ids.tolist()]
        explanations.maps |= dict(zip(keys, maps.cpu().numpy(), strict=True))
        if stages is not None:
            explanations.cascade |= dict(zip(keys, stages, strict=True))
        return explanations

    @property
    def attack_map_names(self) -> list[str]:
        """Names of the maps in the records of an attack."""
        return list(next(iter(self.attack_maps.values())).maps) if self.attack_maps else []

    def load_attack_maps(self, group: Group) -> Explanations:
        """Judge the maps in the records of an attack, each as a method."""
        explanations = Explanations()
        for name in self.attack_map_names:
            entries = [self.attack_maps[sample] for sample in group.ids.tolist()]
            maps = torch.as_tensor(np.stack([entry.maps[name] for entry in entries]), device=self.device)
            cost = {"forwards": np.array([entry.forwards for entry in entries])}
            explanations.rows.append(
                rows.build(Rows, len(entries), method=name, **group.shared, **self._measure(maps, group), **cost)
            )
            keys = [f"{name}/{sample}" for sample in group.ids.tolist()]
            explanations.maps |= dict(zip(keys, maps.cpu().numpy(), strict=True))
        return explanations

    def _compute_maps(
        self, method: Method, x: Tensor, group: Group, rng: Streams, model: Model | None = None
    ) -> tuple[Tensor, dict[str, Array]]:
        """Compute the maps (n, *places) of a method and their cost by column.

        Args:
            method: the method.
            x: (n, *shape) inputs: those of the group, or noisy copies.
            group: the samples, with what is explained.
            rng: random numbers by sample.
            model: the model to explain; default: the model of the task.

        Raises:
            ContractError: the maps have a wrong shape or are not finite.
        """
        explainer = method.explainer if model is None else attach_network(method.plain, model, self.dataset)
        batch = Batch(ids=torch.arange(len(x), device=self.device), x=x, y=group.y)
        radius = torch.full((len(x),), torch.inf, device=self.device)
        threat = Threat(distance=self.unbounded, eps=radius, domain=self.domain, criterion=group.criterion)
        size = self.batch_size
        ledger = Ledger(model or self.model, batch, threat, access=explainer.access, batch_size=size, minimal=True)
        start = time.perf_counter()
        maps = explainer(ledger.oracle(), ledger.batch, ledger.threat.domain, rng).detach()
        seconds = (time.perf_counter() - start) / len(x)
        expected = (len(x), *places_of(ledger.threat.domain))
        if maps.shape != expected or not bool(torch.isfinite(maps).all()):
            raise ContractError(
                f"method {method.name} returned maps of shape {tuple(maps.shape)}; they must be finite and of shape {expected}"
            )
        cost = {
            "forwards": ledger.costs.forwards.cpu().numpy(),
            "backwards": ledger.costs.backwards.cpu().numpy(),
            "seconds": np.full(len(x), seconds),
        }
        return self._restore_fixed(maps), cost

    def _restore_fixed(self, maps: Tensor) -> Tensor:
        """Add the fixed columns of a vector to its maps, with the lowest value of the map."""
        movable = self.domain.movable
        if movable is None or self.domain.kind != "vector":
            return maps
        lowest = maps.amin(1, keepdim=True).expand(-1, *places_of(self.domain)).clone()
        return lowest.index_copy(1, movable.to(maps.device), maps)

    def _add_noise(self, x: Tensor, rng: Streams, copy: int) -> Tensor:
        """Add a little noise to inputs, within the bounds. `copy` numbers the draw."""
        low, high = self.domain.bounds(x)
        return self.domain.clamp(x + self.request.noise * (high - low) * rng.fold(f"noise {copy}").normal(*x.shape[1:]))

    def _measure_changes(
        self, method: Method, group: Group, rng: Streams, maps: Tensor, copies: Sequence[Tensor]
    ) -> tuple[dict[str, Array], Array | None]:
        """Measure how the maps of a method change under input noise and with shuffled weights.

        The method uses the same random numbers each time.

        Args:
            method: the method.
            group: the samples, with what is explained.
            rng: random numbers by sample.
            maps: (n, *places) the maps of its inputs.
            copies: slightly noisy copies of these.

        Returns:
            The measures by column, and the similarity (n, stages) at each stage of the cascade or None.
        """
        noisy_maps = [self._compute_judge_maps(method, inputs, group, rng) for inputs in copies]
        measures: dict[str, Array] = {}
        if noisy_maps:
            pairs = [list(zip(maps.cpu().numpy(), noisy.cpu().numpy(), strict=True)) for noisy in noisy_maps]
            changes = [[saliency.change_of(a, b) for a, b in pair] for pair in pairs]
            largest = [None if None in column else max(column) for column in zip(*changes, strict=True)]
            correlations = [[saliency.rank_correlation(a, b) for a, b in pair] for pair in pairs]
            measures |= {"sensitivity": _nullable(largest), "stability": np.mean(correlations, 0)}
        if self.shuffled_model is None:
            return measures, None
        averaged, stages = torch.stack([maps, *noisy_maps]).mean(0).cpu().numpy(), []
        for stage in range(1, len(self.shuffled_model.layers) + 1):
            model = self.shuffled_model.shuffle(stage)
            shuffled_maps = [self._compute_judge_maps(method, inputs, group, rng, model) for inputs in (group.x, *copies)]
            shuffled = torch.stack(shuffled_maps).mean(0).cpu().numpy()
            stages.append([saliency.rank_correlation(a, b) for a, b in zip(averaged, shuffled, strict=True)])
        entropies = [(saliency.entropy(a), saliency.entropy(b)) for a, b in zip(averaged, shuffled, strict=True)]
        measures["similarity"] = np.array(stages[-1])
        measures["complexity"] = _nullable([(b - a) / a if a > 0 else None for a, b in entropies])
        return measures, np.array(stages).T if self.request.cascade else None

    def _compute_judge_maps(self, method: Method, x: Tensor, group: Group, rng: Streams, model: Model | None = None) -> Tensor:
        """Compute maps that judge a method. Their cost counts in `judge_forwards`, not as the cost of a map."""
        maps, cost = self._compute_maps(method, x, group, rng, model)
        self.judge_forwards += int(cost["forwards"].sum() + cost["backwards"].sum())
        return maps

    def _measure(self, maps: Tensor, group: Group) -> dict[str, Array]:
        """Compute the measures of maps (n, *places) that the request and the ground truth allow. Blank maps are masked."""
        values, truths, measures = maps.cpu().numpy(), group.truths, dict[str, Array]()
        blank = np.array([saliency_map.max() == saliency_map.min() for saliency_map in values])
        if any(truth is not None for truth in truths):
            pairs = [(saliency_map, truth) for saliency_map, truth in zip(values, truths, strict=True)]
            overlaps = [
                (None, None) if truth is None else saliency.at_equal_area(saliency_map, truth) for saliency_map, truth in pairs
            ]
            measures = {"dice": _nullable([dice for dice, _ in overlaps]), "iou": _nullable([iou for _, iou in overlaps])}
            for name, measure in (("best_iou", saliency.best_iou), ("pointing", saliency.pointing), ("energy", saliency.energy)):
                measures[name] = _nullable(
                    [None if truth is None else float(measure(saliency_map, truth)) for saliency_map, truth in pairs]
                )
        if group.masks is None or group.drops is None:
            return _mask_blank(blank, measures)
        steps = min(self.request.steps, int(np.prod(values.shape[1:])))
        answer_curves = curves(self._ask(group), group.x, group.y, maps, self.domain, steps)
        self.judge_forwards += 2 * answer_curves.insertion.size
        measures |= {
            "deletion": np.array([saliency.area_under(curve) for curve in answer_curves.deletion]),
            "insertion": np.array([saliency.area_under(curve) for curve in answer_curves.insertion]),
            "carries": _nullable([saliency.first_share(leads) for leads in answer_curves.insertion_leads]),
            "breaks": _nullable([saliency.first_share(~leads) for leads in answer_curves.deletion_leads]),
            "infidelity": _nullable(
                [saliency.infidelity(*triple) for triple in zip(values, group.masks, group.drops, strict=True)]
            ),
        }
        return _mask_blank(blank, measures)


def _mask_blank(blank: Array, measures: Mapping[str, Array]) -> dict[str, Array]:
    """Mask the measures of constant maps, in which the order of the places is arbitrary."""
    masked = {name: np.ma.MaskedArray(values, mask=np.ma.getmaskarray(values) | blank) for name, values in measures.items()}
    return {"blank": blank} | masked


def _nullable(values: Sequence[float | None]) -> Array:
    return np.ma.MaskedArray(
        np.array([0.0 if value is None else value for value in values]), mask=[value is None for value in values]
    )
