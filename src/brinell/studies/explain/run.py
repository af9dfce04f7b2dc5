"""Maps of the samples by each method, and measures of each map.

The pieces are the clean answers to each group of samples, and each group by each method, so that batches do not depend on the
number of processes. Every method queries the model through a ledger, which counts the cost of each sample.
"""

import functools
import hashlib
import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.analysis import saliency
from brinell.analysis.attainable import count_units, sentences
from brinell.core.bounded import digest
from brinell.core.contracts import Access, Dataset, Explainer, Model, OpensModel
from brinell.core.criterion import MISCLASSIFIED, Criterion
from brinell.core.errors import ContractError, RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.group_attack import predict, session
from brinell.engine.request import count_samples
from brinell.engine.selection import Selection
from brinell.explainers._asking import blurred, places_of
from brinell.pages import html
from brinell.store import rows
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import MANIFEST
from brinell.studies import work
from brinell.studies.explain import ExplainRequest
from brinell.studies.explain.faithfulness import Ask, curves, draw_masks, drops
from brinell.studies.explain.of_run import TITLES, AttackMaps, open_adversarial
from brinell.studies.explain.randomisation import make_shuffled_model
from brinell.studies.explain.region import Regions, open_regions, read_region
from brinell.studies.explain.result import (
    BLURRED,
    INVERSE,
    REFERENCE,
    ExplainFacts,
    ExplainResult,
    Measured,
    MethodFacts,
    families,
)
from brinell.studies.explain.truth import GroundTruth, open_truth
from brinell.studies.kit import Call, Piece, Plan

SAMPLES = 32
"""Default number of samples."""
BLACK_BOX = ("rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap")
USUAL = (*BLACK_BOX, "grad-cam", "integrated-gradients", "smoothgrad", "gradient", "centre", "random")
"""Default methods; the study leaves out those that do not fit the model or the data."""
CONTROLS = frozenset({"centre", "random", "guided-backprop"})
"""Methods that serve as controls for others."""
GROUP = 64
"""Largest number of samples that a method explains at once."""
REGIONS = 8
"""The same for regions of pictures, whose answers are large."""
GROUP_BYTES = 64 * 2**20
"""Approximate limit of the size of their inputs, in bytes."""
NOISE = 0.02
"""Standard deviation of the noise of copies, as a share of the width of the bounds."""
WIDE = 1 / 16
"""Standard deviation of the blur of a control map, as a share of the longest side."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """An explanation method that is ready to run."""

    plain: Explainer
    """The plug-in without a network."""
    explainer: Explainer
    """The plug-in with the network attached, if it needs one."""
    facts: MethodFacts

    @property
    def name(self) -> str:
        """The method as the request names it."""
        return self.facts.name

    @property
    def is_control(self) -> bool:
        """True if it serves as a control for others."""
        return self.name.partition("?")[0] in CONTROLS


@dataclass(frozen=True, kw_only=True)
class ExplainPlan(Plan):
    """A resolved study."""

    request: ExplainRequest
    methods: Sequence[Method] = ()
    truth: GroundTruth | None = None
    attack_maps: Mapping[int, AttackMaps]
    """Maps from the records of an attack, by sample."""
    regions: Regions | None = None
    """The regions that are explained, of a model that answers maps or boxes."""

    @property
    def model(self) -> Model:
        """The model that is explained."""
        (model,) = self.models.values()
        return model

    @property
    def batch_size(self) -> int:
        """Inputs that are shown to the model at once."""
        size = self.request.batch_size
        return size if self.regions is None else min(size, self.regions.batch_size)

    @property
    def attack_map_names(self) -> list[str]:
        """Names of the maps in the records of an attack."""
        return list(next(iter(self.attack_maps.values())).maps) if self.attack_maps else []

    def groups(self, ids: Array) -> list[Array]:
        """Samples (n,) in groups."""
        most = GROUP if self.regions is None else REGIONS
        size = max(1, min(most, GROUP_BYTES // (4 * int(np.prod(self.dataset.domain.shape)))))
        return [ids[first : first + size] for first in range(0, len(ids), size)]

    def answer(self, ids: Array) -> Tensor:
        """Answers (n, ...) to samples."""
        return predict(self.model, self.dataset.load(ids.tolist()).to(self.device), self.batch_size)


def carry_out(call: Call) -> ExplainResult:
    """Explain the samples; of a run, also write its page, whose gallery links to them."""
    result: ExplainResult = work.carry_out(call)
    if call.request.run is not None:
        html.write(Path(call.request.run))
    return result


def make_plan(call: Call) -> ExplainPlan:
    """Open what the request names, and select the samples that can be explained.

    Raises:
        RequestError: a method does not fit the model or the data, a layer does not exist, the ground truth does not fit, or no
            sample remains.
    """
    request: ExplainRequest = call.request
    adversarial = None
    if request.run is not None:
        adversarial, model = open_adversarial(request.run, call.trust)
        call = replace(call, datasets={"data": adversarial}, objects={"model": (model,)})
    plan = work.open_plan(call, ExplainPlan, usual_samples=SAMPLES, request=request, attack_maps={})
    left_out = {"cannot be read": len(plan.selection.ids) - len(plan.ids)}
    if adversarial is not None:
        ids = adversarial.ids[: count_samples(request.samples, len(adversarial.ids), SAMPLES)]
        maps = {sample: adversarial.attack_maps(sample) for sample in ids.tolist()}
        placed = {sample: entry for sample, entry in maps.items() if entry.maps}
        if placed:  # every method explains the same samples
            left_out = {"whose attack placed nothing on patches": len(ids) - len(placed)}
            ids = np.array(sorted(placed), dtype=np.int64)
        plan = replace(plan, ids=ids, selection=Selection(ids=ids, method="first"), attack_maps=placed)
    plan = _open_truth(plan)
    methods, unfit = build_methods(request, plan.model, plan.dataset)
    with session(plan.model, plan.device):
        kept = _select(plan, left_out)
        stages = _stages(plan.model, request)
    facts = ExplainFacts(
        methods=[method.facts for method in methods]
        + [MethodFacts(name=name, title=TITLES[name]) for name in plan.attack_map_names],
        cascade=stages,
        unfit=unfit,
        left_out={reason: count for reason, count in left_out.items() if count},
    )
    for sentence in _limits(request, methods, plan.truth, kept):
        call.progress.note(sentence)
    return replace(
        plan,
        ids=np.array(kept, dtype=np.int64),
        labels=np.asarray(plan.dataset.labels(), dtype=np.int64)[kept],
        methods=methods,
        facts=facts,
        identity={
            "run": None if request.run is None else digest(Path(request.run) / MANIFEST),
            "truth": _truth_digest(plan.truth, kept),
        },
        inputs="the data, the weights, the ground truth, the run",
    )


def _open_truth(plan: ExplainPlan) -> ExplainPlan:
    """The plan with its ground truth, and with its regions where the model answers maps or boxes."""
    request, dataset = plan.request, plan.dataset
    region = read_region(request.region, dataset)
    reasons = {
        "truth": "the region is the ground truth",
        "cascade": "shuffled weights are compared for classifiers alone",
    }
    for name, reason in reasons.items():
        if region is not None and getattr(request, name):
            raise RequestError(f"{option(name)} does not go with {option('region')}, since {reason}: leave it out")
    if region is None:
        return replace(plan, truth=None if request.truth is None else open_truth(request.truth, dataset))
    regions = open_regions(region, dataset, plan.model, request.explain, plan.ids[:1].tolist(), plan.device)
    return replace(plan, models={regions.model.name: regions.model}, regions=regions, truth=regions.ground_truth())


def _select(plan: ExplainPlan, left_out: dict[str, int]) -> list[int]:
    """The samples that can be explained; counts the others in `left_out`, by reason.

    Raises:
        RequestError: none remains.
    """
    kept: list[int] = []
    for ids in plan.groups(plan.ids):
        for sample, reason in zip(ids.tolist(), _reasons(plan, ids), strict=True):
            reason = reason or _truth_reason(plan.truth, sample)
            if reason:
                left_out[reason] = left_out.get(reason, 0) + 1
            else:
                kept.append(sample)
    if not kept:
        details = "; ".join(f"{count} {reason}" for reason, count in left_out.items() if count)
        raise RequestError(
            f"no sample remains to explain ({details}): select others with {option('samples')}, {option('select')} or "
            f"{option('only')}"
        )
    return kept


def _reasons(plan: ExplainPlan, ids: Array) -> list[str]:
    """The reason to leave out each of some samples by the model's answers, as it follows their number; empty to keep one."""
    only = plan.request.only
    if plan.regions is None:
        if only == "all":
            return [""] * len(ids)
        labels = np.asarray(plan.dataset.labels(), dtype=np.int64)[ids]
        right, reasons = plan.answer(ids).argmax(1).cpu().numpy() == labels, [""] * len(ids)
    else:
        view = plan.regions.view(ids.tolist(), plan.answer(ids))
        right, reasons = view.predicted == view.label, view.reasons
    unwanted = right != (only == "right") if only != "all" else np.zeros(len(ids), dtype=bool)
    return [
        reason or (f"the model gets {'right' if correct else 'wrong'}" if other else "")
        for reason, correct, other in zip(reasons, right.tolist(), unwanted.tolist(), strict=True)
    ]


def _truth_reason(truth: GroundTruth | None, sample: int) -> str:
    """The reason to leave out a sample by its ground truth; empty to keep it."""
    if truth is None:
        return ""
    mask = truth.mask(sample)
    if mask is None:
        return "without ground truth"
    return "" if (mask == 1).any() and (mask == 0).any() else "whose ground truth is empty or covers everything"


def _stages(model: Model, request: ExplainRequest) -> list[list[str]]:
    """The layers that each stage shuffles; empty if nothing is shuffled."""
    if not request.cascade:
        return []
    shuffled = make_shuffled_model(model, request.seed, request.cascade)
    if shuffled is None:
        raise RequestError(
            f"the weights of {model.name} cannot be shuffled, because it wraps no torch module: leave {option('cascade')} out"
        )
    return [list(names) for names in shuffled.layers]


def _limits(request: ExplainRequest, methods: Sequence[Method], truth: GroundTruth | None, ids: Sequence[int]) -> list[str]:
    """What no maps of these samples could show."""
    groups = count_units(["" if truth is None else truth.group(sample) for sample in ids])
    checked = sum(not method.is_control for method in methods)
    has_reference = any(method.name.partition("?")[0] == REFERENCE for method in methods)
    compared = len(methods) - 1 + 2 * checked if has_reference and (request.steps or truth is not None) else 0
    shuffled = len(methods) if request.cascade else 0
    return sentences(families(checked if request.steps else 0, shuffled, compared, groups, len(ids)))


def _truth_digest(truth: GroundTruth | None, ids: Sequence[int]) -> str | None:
    """Hash of the ground truth of samples; None without ground truth."""
    if truth is None:
        return None
    hasher = hashlib.blake2b(digest_size=16)
    for sample in ids:
        mask = truth.mask(sample)
        assert mask is not None, "samples without ground truth are left out"
        hasher.update(repr((mask.shape, truth.group(sample))).encode() + mask.astype(np.uint8).tobytes())
    return hasher.hexdigest()


def build_methods(request: ExplainRequest, model: Model, dataset: Dataset) -> tuple[list[Method], dict[str, str]]:
    """Build the methods of a request. Also returns the default methods that do not fit, with the reason.

    Raises:
        RequestError: a method that the request names does not fit the model or the data.
    """
    texts = dict.fromkeys(request.method or USUAL)
    methods, unfit = [], {}
    for text in texts:
        spec = plugins.parse(text)
        explainer = plugins.build("explainer", spec.name, spec.options)
        reason = _misfit(explainer, model, dataset)
        try:
            attached = attach_network(explainer, model, dataset) if not reason else explainer
        except RequestError as error:
            if request.method:
                raise
            reason, attached = str(error), explainer
        if reason and request.method:
            raise RequestError(f"method {text} cannot explain {model.name}: {reason}; leave it out or choose another method")
        if reason:
            unfit[text] = reason
        else:
            title = (inspect.getdoc(type(explainer)) or text).splitlines()[0].rstrip(".")
            facts = MethodFacts(name=text, title=title, settings=plugins.settings_of(explainer))
            methods.append(Method(plain=explainer, explainer=attached, facts=facts))
    return methods, unfit


def attach_network(explainer: Explainer, model: Model, dataset: Dataset) -> Explainer:
    """Attach the network of a model to an explainer that needs one; otherwise return the explainer unchanged."""
    module = model.info.module
    return explainer.attach(module, dataset.domain) if isinstance(explainer, OpensModel) and module is not None else explainer


def _misfit(explainer: Explainer, model: Model, dataset: Dataset) -> str:
    """The reason why an explainer does not fit the model or the data; empty if it fits."""
    if dataset.domain.kind not in explainer.domains:
        return f"it explains {', '.join(sorted(explainer.domains))} inputs, and the data contain {dataset.domain.kind}s"
    if explainer.access > model.access:
        return f"it needs {explainer.access.name.lower()}, and the model provides only {model.access.name.lower()}"
    if isinstance(explainer, OpensModel) and model.info.module is None:
        return "it needs the layers of a torch module, and the model wraps none"
    if dataset.info.truth is not None and explainer.access > Access.SCORES:
        return "it follows gradients of one class for each input, and a region is explained by scores alone"
    return ""


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


def pieces(plan: ExplainPlan, call: Call) -> list[Piece]:
    """The clean answers to each group of samples, the group by each method, and the maps of an attack."""
    task, done, listing = ExplainTask(plan), 0, list[Piece]()
    for number, ids in enumerate(plan.groups(plan.ids)):
        name, done = f"samples {done + 1} to {done + len(ids)}", done + len(ids)
        samples = f"samples/{number:05d}.safetensors"
        listing.append(Piece(name=name, make=partial(task.predict_group, samples, ids), files=(samples,)))
        for index, method in enumerate([*plan.methods, *([None] if plan.attack_map_names else [])]):
            maps = f"maps/{number:05d}-{index:03d}.safetensors"
            title = f"{name}: {method.name if method else 'maps of the attack'}"
            make = partial(task.explain_group, samples, ids, method, maps)
            listing.append(Piece(name=title, make=make, files=(maps,), needs=(name,)))
    return listing


class ExplainTask:
    """A plan whose model is on its device, with logits as answers."""

    def __init__(self, plan: ExplainPlan) -> None:
        self.plan, self.request, self.dataset, self.domain = plan, plan.request, plan.dataset, plan.dataset.domain
        self.model, self.device, self.batch_size = plan.model, plan.device, plan.batch_size
        self.labels = np.asarray(plan.dataset.labels(), dtype=np.int64)
        count = self.request.cascade
        self.shuffled_model = make_shuffled_model(self.model, self.request.seed, count) if count else None
        self.unbounded = plugins.build("distance", "linf", {})
        self._read_group = functools.lru_cache(maxsize=1)(self._read_group_once)

    def predict_group(self, file: str, ids: Array) -> None:
        """Write the inputs and truths of samples (n,), and what all methods share: predictions, regions and drops."""
        answers, regions = self.plan.answer(ids), self.plan.regions
        arrays = (
            {"predicted": answers.argmax(1).cpu().numpy()} if regions is None else regions.view(ids.tolist(), answers).arrays()
        )
        group = self.build_group(ids, arrays)
        if group.masks is not None:
            masks = torch.as_tensor(group.masks, device=self.device)
            arrays |= {"drops": drops(self._ask(group), group.x, group.y, masks, self.domain)}
        stored = {f"group/{name}": array for name, array in arrays.items()}
        for sample, x, truth in zip(ids.tolist(), group.x.cpu().numpy(), group.truths, strict=True):
            stored |= {str(sample): x} | ({} if truth is None else {f"{sample}/truth": truth.astype(np.uint8)})
        write_arrays(self.plan.folder / file, stored)

    def _read_group_once(self, file: str, ids: tuple[int, ...]) -> Group:
        """The group of samples from what `predict_group` wrote."""
        arrays = read_arrays(self.plan.folder / file, lambda name: name.startswith("group/"))
        return self.build_group(np.array(ids), {name.removeprefix("group/"): array for name, array in arrays.items()})

    def explain_group(self, samples: str, ids: Array, method: Method | None, file: str) -> Measured:
        """The rows of a group by a method, or of the maps of an attack; writes the maps."""
        group = self._read_group(samples, tuple(ids.tolist()))
        content, arrays = self.load_attack_maps(group) if method is None else self.explain(group, method)
        write_arrays(self.plan.folder / file, arrays)
        return content

    def _ask(self, group: Group) -> Ask:
        """The function that asks the model about inputs of a group, and gives what an explainer sees."""
        if self.plan.regions is None:
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
        """Build the group of samples (n,) from the arrays that all methods share."""
        x, predicted = self.dataset.load(ids.tolist()).to(self.device), answers["predicted"]
        labels = answers.get("label", self.labels[ids])
        explained = answers.get("explained", predicted if self.request.explain == "prediction" else labels)
        rng = Streams.of(self.request.seed, torch.as_tensor(ids, device=self.device)).fold("explain")
        shared = {
            "sample_id": ids,
            "group": [self.plan.truth.group(sample) if self.plan.truth else "" for sample in ids.tolist()],
            "label": labels,
            "prediction": predicted,
            "explained": explained,
        }
        y = torch.as_tensor(explained, device=self.device).long()
        return Group(
            ids=ids,
            x=x,
            y=y if self.plan.regions is None else torch.zeros_like(y),
            criterion=MISCLASSIFIED if self.plan.regions is None else self.plan.regions.criterion(answers["region"], self.device),
            rng=rng,
            truths=[None if self.plan.truth is None else self.plan.truth.mask(sample) for sample in ids.tolist()],
            shared=shared,
            masks=draw_masks(x, self.domain, rng.fold("hidden")).cpu().numpy() if self.request.steps else None,
            drops=answers.get("drops"),
        )

    def explain(self, group: Group, method: Method) -> tuple[Measured, dict[str, Array]]:
        """The rows of a group by one method, including its controls, and its arrays."""
        x, rng = group.x, group.rng.fold(method.name)
        maps, cost = self._compute_maps(method, x, group, rng)
        versions = {method.name: maps}
        if not method.is_control:
            versions |= {method.name + BLURRED: blurred(maps, self.domain, WIDE), method.name + INVERSE: -maps}
        copies = [self._add_noise(x, rng, copy) for copy in range(self.request.copies)]
        changes, stages = self._measure_changes(method, group, rng, maps, copies)
        content = []
        for name, version in versions.items():
            measures = self._measure(version, group) | (cost | changes if name == method.name else {})
            content.append(rows.build(Measured, len(x), method=name, **group.shared, **measures))
        arrays = _keyed("map", method.name, group, maps.cpu().numpy())
        return rows.concatenate(content), arrays | ({} if stages is None else _keyed("cascade", method.name, group, stages))

    def load_attack_maps(self, group: Group) -> tuple[Measured, dict[str, Array]]:
        """Judge the maps in the records of an attack, each as a method."""
        entries, content, arrays = [self.plan.attack_maps[sample] for sample in group.ids.tolist()], [], dict[str, Array]()
        for name in self.plan.attack_map_names:
            values = np.stack([entry.maps[name] for entry in entries])
            measures = self._measure(torch.as_tensor(values, device=self.device), group)
            measures["forwards"] = np.array([entry.forwards for entry in entries])
            content.append(rows.build(Measured, len(entries), method=name, **group.shared, **measures))
            arrays |= _keyed("map", name, group, values)
        return rows.concatenate(content), arrays

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
        return self.domain.clamp(x + NOISE * (high - low) * rng.fold(f"noise {copy}").normal(*x.shape[1:]))

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
            The measures by column, and the similarity (n, stages) at each stage of the cascade; None without one.
        """
        noisy_maps = [self._compute_maps(method, inputs, group, rng)[0] for inputs in copies]
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
            shuffled_maps = [self._compute_maps(method, inputs, group, rng, model)[0] for inputs in (group.x, *copies)]
            shuffled = torch.stack(shuffled_maps).mean(0).cpu().numpy()
            stages.append([saliency.rank_correlation(a, b) for a, b in zip(averaged, shuffled, strict=True)])
        entropies = [(saliency.entropy(a), saliency.entropy(b)) for a, b in zip(averaged, shuffled, strict=True)]
        measures["similarity"] = np.array(stages[-1])
        measures["complexity"] = _nullable([(b - a) / a if a > 0 else None for a, b in entropies])
        return measures, np.array(stages).T

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
        measures |= {
            "deletion": np.array([saliency.area_under(curve) for curve in answer_curves.deletion]),
            "insertion": np.array([saliency.area_under(curve) for curve in answer_curves.insertion]),
            "sufficient": _nullable([saliency.first_share(leads) for leads in answer_curves.insertion_leads]),
            "decisive": _nullable([saliency.first_share(~leads) for leads in answer_curves.deletion_leads]),
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


def _keyed(kind: str, method: str, group: Group, arrays: Array) -> dict[str, Array]:
    """Arrays (n, ...) of the samples of a group by the names under which they are stored."""
    return {f"{kind}/{method}/{sample}": array for sample, array in zip(group.ids.tolist(), arrays, strict=True)}
