"""The computation: each piece attacks and bounds a part of the samples."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from brinell import plugins
from brinell.analysis.grid import WRONG as STATE_WRONG
from brinell.analysis.grid import grid, worst_case
from brinell.bounds._graph import Graph
from brinell.bounds._trace import trace
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.datasets._memory import ArrayDataset
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import make_plan as plan_audit
from brinell.engine.progress import SilentProgress
from brinell.engine.request import IN_MEMORY, Request
from brinell.engine.shard import predict
from brinell.runners import local
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.run import Run
from brinell.studies.certify.proofs import Method, Proofs, Prover
from brinell.studies.certify.records import BROKEN, CERTIFIED, FAILED, OPEN, WRONG, Outcomes
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.work import open_plan

PIECE = 100
"""Samples of a piece."""
BUDGETS = "0:0.04:5"
"""Budgets if nobody names any."""
SAMPLES = 100
"""Samples if nobody says how many."""
COMPARED = 8
"""Samples on which the network that is read is compared with the model."""


@dataclass(frozen=True, kw_only=True)
class CertifyPlan(Plan):
    """The plan with budgets and methods."""

    levels: tuple[float, ...]
    """Ascending budgets above 0."""
    methods: tuple[tuple[str, Method], ...]
    """Methods by name."""


def make_plan(call: Call) -> CertifyPlan:
    """Open the data and the model, and refuse what cannot be bounded before anything is attacked."""
    request = call.request
    levels = tuple(value for value in parse_eps(request.eps or BUDGETS).values if value > 0)
    if not levels:
        raise RequestError(f"{option('eps')} {request.eps} names no budget above 0: write one, such as 0:8/255:9")
    methods = tuple((spec, _method(spec)) for spec in request.method)
    plan: CertifyPlan = open_plan(call, CertifyPlan, usual_samples=SAMPLES, levels=levels, methods=methods)
    (model,) = plan.models.values()
    read_network(model, plan.dataset.load(plan.ids[:COMPARED].tolist()))
    return plan


def _method(spec: str) -> Method:
    """A method of proof by its spec."""
    name, _, options = plugins.parse(spec)
    method: Method = plugins.build("bound", name, options)
    return method


def read_network(model: Model, x: torch.Tensor) -> Graph:
    """The graph of a model, compared with it on inputs (n, *shape).

    Raises:
        RequestError: the model is not torch code, or one of its layers has no bound.
    """
    if model.access < Access.GRADIENTS:
        raise RequestError(
            f"model {model.name} gives {model.access.name.lower()} only, and a bound needs its layers: name it as "
            f"{model.info.gradients or 'torch:FILE.py:FACTORY'}; brinell audit attacks it as it is"
        )
    try:
        return trace(model.predict, x)
    except RequestError as error:
        raise RequestError(f"model {model.name} cannot be bounded: {_obstacle(model, error)}; brinell audit attacks it") from None


def _obstacle(model: Model, error: RequestError) -> str:
    """Why a network cannot be read, and what to pass in its place where its container is the reason."""
    module = model.info.module
    if module is None:
        return str(error)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    if dtype != torch.float32:
        name = str(dtype).removeprefix("torch.")
        return f"bounds are made of networks in float32, and this one is in {name}: pass model.float()"
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        return "TorchScript does not show its operations: pass the module that it was made from"
    if any(isinstance(part, torch.fx.GraphModule) for part in module.modules()):
        return f"{error} (it was exported: pass the module that it was made from)"
    return str(error)


def pieces(plan: CertifyPlan, call: Call) -> list[Piece]:
    """Parts of the samples."""
    starts = range(0, len(plan.ids), PIECE)
    return [
        Piece(
            name=f"samples {start + 1} to {min(start + PIECE, len(plan.ids))}",
            make=partial(certify, plan, call, slice(start, start + PIECE), examples_file(number)),
            files=(examples_file(number),),
        )
        for number, start in enumerate(starts)
    ]


def examples_file(number: int) -> str:
    """Name of the file with the counterexamples of a piece."""
    return f"counterexamples-{number}.safetensors"


def certify(plan: CertifyPlan, call: Call, part: slice, file: str) -> Outcomes:
    """Attack and bound a part of the samples, and write its counterexamples."""
    ids, labels = plan.ids[part], plan.labels[part]
    (model,) = plan.models.values()
    x = plan.dataset.load(ids.tolist())
    attacked = attack(plan, call, x, labels)
    write_arrays(plan.folder / file, {str(ids[k]): example for k, example in sorted(attacked.examples.items())})
    prover = Prover.of(read_network(model, x[:COMPARED]), plan.dataset.domain, call.request.norm)
    y = torch.as_tensor(labels).long()
    limit = torch.as_tensor(attacked.first)
    limit[torch.as_tensor(attacked.failed)] = 0
    proofs = Proofs.none(len(ids))
    for name, method in plan.methods:
        proofs.extend(prover, name, method, x, y, plan.levels, limit)
    return _rows(plan, ids, labels, attacked, proofs)


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """What attacks found on n samples."""

    right: Array
    """(n,) bool: classified correctly without a change."""
    failed: Array
    """(n,) bool: the model or an attack failed."""
    first: Array
    """(n,) int64: position of the smallest budget with a counterexample; the number of budgets where there is none."""
    examples: dict[int, Array]
    """The nearest counterexample by position of the sample."""


def attack(plan: CertifyPlan, call: Call, x: torch.Tensor, labels: Array) -> Attacked:
    """Audit samples by the attacks of the request, at all budgets."""
    (model,) = plan.models.values()
    request = Request(
        data=IN_MEMORY,
        model=(f"{IN_MEMORY}:{model.name}",),
        norm=call.request.norm,
        eps=",".join(repr(level) for level in plan.levels),
        attack=call.request.attack,
        samples=len(x),
        select="first",
        seed=call.request.seed,
        batch_size=call.request.batch_size,
        device=call.request.device,
        in_process=call.request.in_process,
    )
    dataset = ArrayDataset(x.numpy(), labels, plan.dataset.classes, plan.dataset.domain)
    with TemporaryDirectory(prefix="brinell-") as directory:
        folder = Path(directory) / "audit"
        local.run(plan_audit(request, dataset=dataset, models=(model,)), folder, SilentProgress(), command=call.command)
        run = Run.open(folder)
        cells = grid(run.records(), run.manifest, model.name)
        states = worst_case(cells, range(len(cells.stages)))
        examples = _nearest(run, model.name)
    predicted = predict(model, x.to(plan.device), call.request.batch_size).argmax(1).cpu().numpy()
    right = predicted == labels
    wrong = states[:, -len(plan.levels) :] == STATE_WRONG
    first = np.where(wrong.any(1), wrong.argmax(1), len(plan.levels))
    first[~right] = 0
    return Attacked(right=right, failed=~np.isfinite(x.flatten(1).sum(1).numpy()), first=first, examples=examples)


def _nearest(run: Run, model: str) -> dict[int, Array]:
    """The nearest stored adversarial input of each sample."""
    records, nearest, sizes = run.records(), dict[int, Array](), dict[int, float]()
    column = getattr(records, str(run.manifest["request"]["norm"]))
    for stage in run.manifest["stages"]:
        name = str(stage["name"])
        of_stage = (records.attack.astype(str) == name) & np.isfinite(column)
        inputs = run.adversarial(model, name, sorted(run.stored(model, name)))
        for sample, example in inputs.items():
            distances = column[of_stage & (records.sample_id == sample)]
            size = float(distances.min()) if len(distances) else np.inf
            if size < sizes.get(sample, np.inf):
                nearest[sample], sizes[sample] = example, size
    return nearest


def _rows(plan: CertifyPlan, ids: Array, labels: Array, attacked: Attacked, proofs: Proofs) -> Outcomes:
    """A row for each sample and budget, budgets of a sample together; budget 0 is the input without a change."""
    levels = (0.0, *plan.levels)
    table: dict[str, list[object]] = {name: [] for name in ("outcome", "method", "proven_at", "margin")}
    for k in range(len(ids)):
        level = int(proofs.level[k])
        for position in range(-1, len(plan.levels)):
            outcome = _outcome(attacked, k, position, level)
            proven = outcome == CERTIFIED and position >= 0
            table["outcome"].append(outcome)
            table["method"].append(proofs.method[k] if proven else "")
            table["proven_at"].append(plan.levels[level] if proven else np.nan)
            table["margin"].append(float(proofs.margin[k]) if proven else np.nan)
    return rows.build(
        Outcomes,
        len(ids) * len(levels),
        sample_id=np.repeat(ids, len(levels)),
        label=np.repeat(labels, len(levels)),
        eps=np.tile(np.array(levels), len(ids)),
        **{name: np.array(values) for name, values in table.items()},
    )


def _outcome(attacked: Attacked, k: int, position: int, proven: int) -> str:
    """Outcome of a sample at a budget; position -1 is the input without a change."""
    if attacked.failed[k]:
        return FAILED
    if not attacked.right[k]:
        return WRONG
    if position <= proven:
        return CERTIFIED
    return BROKEN if position >= attacked.first[k] else OPEN
