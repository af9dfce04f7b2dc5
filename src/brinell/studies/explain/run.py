"""Maps of the samples by each method, and measures of each map.

A piece is a group of samples, so that batches do not depend on the number of processes. Every method queries the model through a
ledger, which counts the cost of each sample.
"""

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
from brinell.core.bounded import digest
from brinell.core.contracts import Dataset, Explainer, Model, OpensModel
from brinell.core.errors import ContractError, RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.group_attack import predict
from brinell.engine.request import count_samples
from brinell.engine.selection import Selection
from brinell.explainers._asking import blurred, places_of
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.folder import MANIFEST
from brinell.studies import work
from brinell.studies.explain import ExplainRequest
from brinell.studies.explain.faithfulness import curves
from brinell.studies.explain.of_run import open_adversarial
from brinell.studies.explain.result import BLURRED, INVERSE, ExplainFacts, Measured, MethodFacts, file_of
from brinell.studies.explain.truth import GroundTruth, open_truth
from brinell.studies.kit import Call, Piece, Plan

SAMPLES = 32
"""Default number of samples."""
BLACK_BOX = ("rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap")
USUAL = (*BLACK_BOX, "grad-cam", "integrated-gradients", "smoothgrad", "gradient", "centre", "random")
"""Default methods; the study leaves out those that do not fit the model or the data."""
CONTROLS = frozenset({"centre", "random"})
"""Methods that serve as controls for others."""
GROUP = 16
"""Largest number of samples that are explained at once."""
GROUP_BYTES = 64 * 2**20
"""Approximate limit of the size of their inputs, in bytes."""
WIDE = 1 / 16
"""Standard deviation of the blur of a control map, as a share of the longest side."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """An explanation method that is ready to run, with the network attached if it needs one."""

    explainer: Explainer
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

    @property
    def model(self) -> Model:
        """The model that is explained."""
        (model,) = self.models.values()
        return model

    def groups(self, ids: Array) -> list[Array]:
        """Samples (n,) in groups."""
        size = max(1, min(GROUP, GROUP_BYTES // (4 * int(np.prod(self.dataset.domain.shape)))))
        return [ids[first : first + size] for first in range(0, len(ids), size)]

    def answer(self, x: Tensor) -> Tensor:
        """Answers (n, classes) to inputs."""
        return predict(self.model, x.to(self.device), self.request.batch_size)


def carry_out(call: Call) -> Any:
    """Explain the samples; maps of a run lie in its folder by default."""
    return work.carry_out(call.within(call.request.run))


def make_plan(call: Call) -> ExplainPlan:
    """Open what the request names, and select the samples that can be explained."""
    request: ExplainRequest = call.request
    adversarial = None
    if request.run is not None:
        adversarial, model = open_adversarial(request.run, call.trust)
        call = replace(call, datasets={"data": adversarial}, objects={"model": (model,)})
    plan = ExplainPlan(**vars(work.open_plan(call, usual_samples=SAMPLES)), request=request)
    left_out = {"cannot be read": len(plan.selection.ids) - len(plan.ids)}
    if adversarial is not None:
        ids = adversarial.ids[: count_samples(request.samples, len(adversarial.ids), SAMPLES)]
        plan, left_out = replace(plan, ids=ids, selection=Selection(ids=ids, method="first")), {}
    methods, unfit = build_methods(request, plan.model, plan.dataset)
    kept, truth = plan.ids, None if request.truth is None else open_truth(Path(request.truth), plan.dataset)
    if truth is not None:
        kept = kept[truth.has_both(kept)]
        left_out |= {"whose ground truth is empty or covers everything": len(plan.ids) - len(kept)}
        if not len(kept):
            raise RequestError(
                f"no sample of {len(plan.ids)} has an object and a background: select others with {option('samples')}"
            )
    return replace(
        plan,
        ids=kept,
        labels=np.asarray(plan.dataset.labels(), dtype=np.int64)[kept],
        methods=methods,
        truth=truth,
        facts=ExplainFacts(
            methods=[method.facts for method in methods],
            unfit=unfit,
            left_out={reason: count for reason, count in left_out.items() if count},
        ),
        identity={
            "run": None if request.run is None else digest(Path(request.run) / MANIFEST),
            "truth": None if truth is None else truth.digest(kept),
        },
    )


def build_methods(request: ExplainRequest, model: Model, dataset: Dataset) -> tuple[list[Method], dict[str, str]]:
    """Build the methods of a request. Also returns the default methods that do not fit, with the reason."""
    methods, unfit = [], {}
    for text in dict.fromkeys(request.method or USUAL):
        spec = plugins.parse(text)
        explainer = plugins.build("explainer", spec.name, spec.options)
        title = (inspect.getdoc(type(explainer)) or text).splitlines()[0].rstrip(".")
        facts = MethodFacts(name=text, title=title)
        reason, module = _misfit(explainer, model, dataset), model.info.module
        if not reason and isinstance(explainer, OpensModel) and module is not None:
            try:
                explainer = explainer.attach(module, dataset.domain)
            except RequestError as error:
                if request.method:
                    raise
                reason = str(error)
        if reason and request.method:
            raise RequestError(f"method {text} cannot explain {model.name}: {reason}; leave it out or choose another method")
        if reason:
            unfit[text] = reason
        else:
            methods.append(Method(explainer=explainer, facts=facts))
    return methods, unfit


def _misfit(explainer: Explainer, model: Model, dataset: Dataset) -> str:
    """The reason why an explainer does not fit the model or the data; empty if it fits."""
    if dataset.domain.kind not in explainer.domains:
        return f"it explains {', '.join(sorted(explainer.domains))} inputs, and the data contain {dataset.domain.kind}s"
    if explainer.access > model.access:
        return f"it needs {explainer.access.name.lower()}, and the model provides only {model.access.name.lower()}"
    if isinstance(explainer, OpensModel) and model.info.module is None:
        return "it needs the layers of a torch module, and the model wraps none"
    return ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of samples with what explaining them takes."""

    ids: Array
    """(n,): positions of the samples in the data."""
    x: Tensor
    y: Tensor
    """(n,): the explained classes."""
    rng: Streams
    shared: Mapping[str, Any]
    """Columns that the rows of all methods share."""


def pieces(plan: ExplainPlan, call: Call) -> list[Piece]:
    """Groups of samples."""
    task, done, listing = ExplainTask(plan), 0, list[Piece]()
    for number, ids in enumerate(plan.groups(plan.ids)):
        name, done = f"samples {done + 1} to {done + len(ids)}", done + len(ids)
        file = file_of(number)
        listing.append(Piece(name=name, make=partial(task.explain_group, ids, file), files=(file,)))
    return listing


class ExplainTask:
    """Explains groups of samples."""

    def __init__(self, plan: ExplainPlan) -> None:
        self.plan, self.request, self.domain, self.device = plan, plan.request, plan.dataset.domain, plan.device

    def explain_group(self, ids: Array, file: str) -> Measured:
        """The rows of a group by each method; writes inputs, ground truth and maps."""
        group, truth = self.build_group(ids), self.plan.truth
        arrays = _keyed("input", group, group.x.cpu().numpy())
        if truth is not None:
            arrays |= _keyed("truth", group, truth.masks[ids])
        content = []
        for method in self.plan.methods:
            maps, cost = self.compute_maps(method, group)
            versions = {method.name: maps}
            if not method.is_control:
                versions |= {method.name + BLURRED: blurred(maps, self.domain, WIDE), method.name + INVERSE: -maps}
            for name, version in versions.items():
                measures = self.measure(version, group) | (cost if name == method.name else {})
                content.append(rows.build(Measured, len(ids), method=name, **group.shared, **measures))
            arrays |= _keyed(f"map/{method.name}", group, maps.cpu().numpy())
        write_arrays(self.plan.folder / file, arrays)
        return rows.concatenate(content)

    def build_group(self, ids: Array) -> Group:
        """The group of samples (n,), with the classes that the model predicts."""
        plan, x = self.plan, self.plan.dataset.load(ids.tolist()).to(self.device)
        labels = np.asarray(plan.dataset.labels(), dtype=np.int64)[ids]
        predicted = plan.answer(x).argmax(1).cpu().numpy()
        explained = predicted if self.request.explain == "prediction" else labels
        return Group(
            ids=ids,
            x=x,
            y=torch.as_tensor(explained, device=self.device).long(),
            rng=Streams.of(self.request.seed, torch.as_tensor(ids, device=self.device)).fold("explain"),
            shared={
                "sample_id": ids,
                "group": "" if plan.truth is None else [plan.truth.groups[sample] for sample in ids.tolist()],
                "label": labels,
                "prediction": predicted,
                "explained": explained,
            },
        )

    def compute_maps(self, method: Method, group: Group) -> tuple[Tensor, dict[str, Array]]:
        """Compute the maps (n, *places) of a method and their cost by column.

        Raises:
            ContractError: the maps have a wrong shape or are not finite.
        """
        explainer, x = method.explainer, group.x
        batch = Batch(ids=torch.arange(len(x), device=self.device), x=x, y=group.y)
        unbounded, eps = plugins.build("distance", "linf", {}), torch.full((len(x),), torch.inf, device=self.device)
        threat = Threat(distance=unbounded, eps=eps, domain=self.domain)
        size = self.request.batch_size
        ledger = Ledger(self.plan.model, batch, threat, access=explainer.access, batch_size=size, minimal=True)
        start = time.perf_counter()
        maps = explainer(ledger.oracle(), ledger.batch, ledger.threat.domain, group.rng.fold(method.name)).detach()
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

    def measure(self, maps: Tensor, group: Group) -> dict[str, Array]:
        """The measures of maps (n, *places) that request and ground truth allow; masked for constant maps."""
        values, measures = maps.cpu().numpy(), dict[str, Any]()
        blank = np.array([saliency_map.max() == saliency_map.min() for saliency_map in values])
        if self.plan.truth is not None:
            pairs = list(zip(values, self.plan.truth.masks[group.ids], strict=True))
            measures["dice"], measures["iou"] = zip(*(saliency.at_equal_area(*pair) for pair in pairs), strict=True)
            measures["pointing"] = [float(saliency.pointing(*pair)) for pair in pairs]
        if self.request.steps:
            steps = min(self.request.steps, int(np.prod(values.shape[1:])))
            insertion, deletion = curves(self.plan.answer, group.x, group.y, maps, self.domain, steps)
            measures["deletion"] = [saliency.area_under(curve) for curve in deletion]
            measures["insertion"] = [saliency.area_under(curve) for curve in insertion]
        return {"blank": blank} | {name: np.ma.MaskedArray(column, mask=blank) for name, column in measures.items()}


def _keyed(kind: str, group: Group, arrays: Array) -> dict[str, Array]:
    """Arrays (n, ...) of the samples of a group by the names under which they are stored."""
    return {f"{kind}/{sample}": array for sample, array in zip(group.ids.tolist(), arrays, strict=True)}
