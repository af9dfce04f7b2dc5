"""Maps of the samples by each method, and measures of each map.

A piece is a group of samples, so that batches do not depend on the number of processes. Every
method queries the model through a ledger, which counts the cost of each sample.
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
from brinell.core.attack import open_questions
from brinell.core.bounded import digest
from brinell.core.contracts import Dataset, Explainer, Model, OpensModel
from brinell.core.errors import ContractError, RequestError, option
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
from brinell.store.run import Run
from brinell.store.trust import check_manifest
from brinell.studies import work
from brinell.studies.explain import ExplainRequest
from brinell.studies.explain.faithfulness import curves
from brinell.studies.explain.of_run import open_adversarial
from brinell.studies.explain.result import (
    BLURRED,
    CONTROLS,
    INVERSE,
    ExplainFacts,
    ExplainRows,
    MethodFacts,
    file_of,
    is_control,
)
from brinell.studies.explain.truth import GroundTruth, open_truth
from brinell.studies.kit import Call, Piece, Plan

SAMPLES = 32
"""Default number of samples."""
BLACK_BOX = ("rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap")
USUAL = (
    *BLACK_BOX,
    "rlab-mask",
    "grad-cam",
    "integrated-gradients",
    "smoothgrad",
    "gradient",
    "centre",
    "random",
)
"""Default methods; the study leaves out those that do not fit the model or the data."""
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
        return is_control(self.name)


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

    def answer(self, x: Tensor) -> Tensor:
        """Answers (n, classes) to inputs."""
        return predict(self.model, x.to(self.device), self.request.batch_size)


def carry_out(call: Call) -> Any:
    """Explain the samples; maps of a run lie in its folder by default."""
    return work.carry_out(call.within(call.request.run))


def data_of(settings: Mapping[str, Any], trust: Path | None) -> str:
    """The data of a model in memory: those of the run whose examples are explained."""
    if "run" not in settings:
        return str(ExplainRequest.model_fields["data"].default)
    run = Run.open(settings["run"])
    check_manifest(run.path, run.manifest, trust)
    return str(run.manifest["request"]["data"])


def make_plan(call: Call) -> ExplainPlan:
    """Open what the request names, and select the samples that can be explained."""
    request: ExplainRequest = call.request
    adversarial = None
    if request.run is not None:
        adversarial, model = open_adversarial(request.run, call.trust, call.models())
        call = replace(call, datasets={"data": adversarial}, objects={"model": (model,)})
    plan = ExplainPlan(**vars(work.open_plan(call, usual_samples=SAMPLES)), request=request)

    # The plan has left out what cannot be read; of a run all of its examples can be.
    left_out = {"cannot be read": len(plan.selection.ids) - len(plan.ids)}
    if adversarial is not None:
        ids = adversarial.ids[: count_samples(request.samples, len(adversarial.ids), SAMPLES)]
        plan = replace(plan, ids=ids, selection=Selection(ids=ids, method="first"))
        left_out = {}

    methods, unfit = build_methods(request, plan.model, plan.dataset)
    kept = plan.ids
    truth = None if request.truth is None else open_truth(Path(request.truth), plan.dataset)
    if truth is not None:
        kept = kept[truth.has_both(kept)]
        left_out |= {"whose ground truth is empty or covers everything": len(plan.ids) - len(kept)}
        if not len(kept):
            raise RequestError(
                f"no sample of {len(plan.ids)} has an object and a background: "
                f"select others with {option('samples')}"
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
            "truth": None if request.truth is None else digest(Path(request.truth)),
        },
    )


def build_methods(
    request: ExplainRequest, model: Model, dataset: Dataset
) -> tuple[list[Method], dict[str, str]]:
    """Build the methods of a request.

    Also returns the default methods that do not fit, with the reason.
    """
    methods = []
    unfit = {}
    # Insertion and deletion say something only beside methods that ignore the model.
    controls = sorted(CONTROLS) if request.steps else ()
    for text in dict.fromkeys((*(request.method or USUAL), *controls)):
        spec = plugins.parse(text)
        explainer = plugins.build("explainer", spec.name, spec.options)
        summary = (inspect.getdoc(type(explainer)) or text).partition("\n\n")[0]
        title = " ".join(summary.split()).rstrip(".")
        facts = MethodFacts(name=text, title=title)
        reason = _misfit(explainer, model, dataset)
        module = model.info.module
        if not reason and isinstance(explainer, OpensModel) and module is not None:
            try:
                explainer = explainer.attach(module, dataset.domain)
            except RequestError as error:
                if text in request.method:
                    raise
                reason = str(error)
        # What was asked for by name is refused; a default method is left out with its reason.
        if reason and text in request.method:
            raise RequestError(
                f"method {text} cannot explain {model.name}: {reason}; leave it "
                "out or choose another method"
            )
        if reason:
            unfit[text] = reason
        else:
            methods.append(Method(explainer=explainer, facts=facts))
    return methods, unfit


def _misfit(explainer: Explainer, model: Model, dataset: Dataset) -> str:
    """The reason why an explainer does not fit the model or the data; empty if it fits."""
    if dataset.domain.kind not in explainer.domains:
        return (
            f"it explains {', '.join(sorted(explainer.domains))} inputs, and the data "
            f"contain {dataset.domain.kind}s"
        )

    if explainer.access > model.access:
        return (
            f"it needs {explainer.access.name.lower()}, and the model provides only "
            f"{model.access.name.lower()}"
        )

    if isinstance(explainer, OpensModel) and model.info.module is None:
        return "it needs the layers of a torch module, and the model wraps none"
    return ""


def pieces(plan: ExplainPlan, call: Call) -> list[Piece]:
    """Groups of samples."""
    size = max(1, min(GROUP, GROUP_BYTES // (4 * int(np.prod(plan.dataset.domain.shape)))))
    groups = [plan.ids[first : first + size] for first in range(0, len(plan.ids), size)]
    return [
        Piece(
            name=f"samples {number * size + 1} to {number * size + len(ids)}",
            make=partial(explain_group, plan, ids, file_of(number)),
            files=(file_of(number),),
        )
        for number, ids in enumerate(groups)
    ]


def explain_group(plan: ExplainPlan, ids: Array, file: str) -> ExplainRows:
    """The rows of samples (n,) by each method; writes inputs, ground truth and maps."""
    x = plan.dataset.load(ids.tolist()).to(plan.device)
    truth = plan.truth
    labels = np.asarray(plan.dataset.labels(), dtype=np.int64)[ids]
    predicted = plan.answer(x).argmax(1).cpu().numpy()
    explained = predicted if plan.request.explain == "prediction" else labels
    y = torch.as_tensor(explained, device=plan.device).long()

    batch = Batch.of(x, y)
    rng = Streams.of(plan.request.seed, torch.as_tensor(ids, device=plan.device)).fold("explain")
    shared: dict[str, Any] = {
        "sample_id": ids,
        "label": labels,
        "prediction": predicted,
        "explained": explained,
    }
    shared["group"] = "" if truth is None else [truth.groups[sample] for sample in ids.tolist()]

    arrays = _keyed("input", ids, x.cpu().numpy())
    if truth is not None:
        arrays |= _keyed("truth", ids, truth.masks[ids])

    content = []
    for method in plan.methods:
        maps, cost = compute_maps(plan, method, batch, rng.fold(method.name))
        versions = {method.name: maps}
        # Controls show what luck gives: a blurred or an inverse one would show nothing more.
        if not method.is_control:
            versions |= {
                method.name + BLURRED: blurred(maps, plan.dataset.domain, WIDE),
                method.name + INVERSE: -maps,
            }
        for name, version in versions.items():
            measures = measure(plan, ids, version, batch) | (cost if name == method.name else {})
            content.append(rows.build(ExplainRows, len(ids), method=name, **shared, **measures))
        arrays |= _keyed(f"map/{method.name}", ids, maps.cpu().numpy())

    write_arrays(plan.folder / file, arrays)
    return rows.concatenate(content)


def compute_maps(
    plan: ExplainPlan, method: Method, batch: Batch, rng: Streams
) -> tuple[Tensor, dict[str, Array]]:
    """The maps (n, *places) of a method, and their cost by column."""
    explainer, x, domain = method.explainer, batch.x, plan.dataset.domain
    # Explainers ask about any input, hidden places and all, so no budget limits them.
    unbounded = plugins.build("distance", "linf")
    eps = torch.full((len(x),), torch.inf, device=plan.device)
    threat = Threat(distance=unbounded, eps=eps, domain=domain)
    size = plan.request.batch_size
    ledger = open_questions(plan.model, batch, threat, access=explainer.access, batch_size=size)
    start = time.perf_counter()
    maps = explainer(ledger.oracle(), ledger.batch, ledger.threat.domain, rng).detach()
    seconds = (time.perf_counter() - start) / len(x)

    expected = (len(x), *places_of(ledger.threat.domain))
    if maps.shape != expected or not bool(torch.isfinite(maps).all()):
        raise ContractError(
            f"method {method.name} returned maps of shape {tuple(maps.shape)}; "
            f"they must be finite and of shape {expected}"
        )
    if domain.movable is not None and domain.kind == "vector":
        # Fixed columns have the lowest value of the map.
        lowest = maps.amin(1, keepdim=True).expand(-1, *places_of(domain)).clone()
        maps = lowest.index_copy(1, domain.movable.to(maps.device), maps)
    forwards = ledger.costs.forwards.cpu().numpy()
    backwards = ledger.costs.backwards.cpu().numpy()
    return maps, {"forwards": forwards, "backwards": backwards, "seconds": np.full(len(x), seconds)}


def measure(plan: ExplainPlan, ids: Array, maps: Tensor, batch: Batch) -> dict[str, Array]:
    """The measures of maps (n, *places) that request and ground truth allow; masked for constant
    maps.
    """
    values = maps.cpu().numpy()
    measures: dict[str, Any] = {}
    blank = np.array([saliency_map.max() == saliency_map.min() for saliency_map in values])
    if plan.truth is not None:
        pairs = list(zip(values, plan.truth.masks[ids], strict=True))
        measures["dice"], measures["iou"] = zip(
            *(saliency.at_equal_area(*pair) for pair in pairs), strict=True
        )
        measures["pointing"] = [float(saliency.pointing(*pair)) for pair in pairs]

    if plan.request.steps:
        steps = min(plan.request.steps, int(np.prod(values.shape[1:])))
        insertion, deletion = curves(
            plan.answer, batch.x, batch.y, maps, plan.dataset.domain, steps
        )
        measures["deletion"] = [saliency.area_under(curve) for curve in deletion]
        measures["insertion"] = [saliency.area_under(curve) for curve in insertion]

    # A constant map ranks no place, so none of its figures means anything.
    return {"blank": blank} | {
        name: np.ma.MaskedArray(column, mask=blank) for name, column in measures.items()
    }


def _keyed(kind: str, ids: Array, arrays: Array) -> dict[str, Array]:
    """Arrays (n, ...) of samples by the names under which they are stored."""
    return {f"{kind}/{sample}": array for sample, array in zip(ids.tolist(), arrays, strict=True)}
