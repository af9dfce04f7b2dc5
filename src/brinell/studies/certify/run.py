"""The computation: each piece attacks and bounds a part of the samples."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from brinell import plugins
from brinell.analysis.curve import RIGHT, UNJUDGED, grid, worst_case
from brinell.analysis.curve import WRONG as STATE_WRONG
from brinell.analysis.robust_accuracy import judging
from brinell.bounds._graph import Graph
from brinell.bounds._trace import trace
from brinell.core.bounded import digest
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.datasets._memory import from_arrays
from brinell.engine.answers import with_logits
from brinell.engine.audit import run_audit
from brinell.engine.eps_grid import parse_eps
from brinell.engine.group_attack import predict
from brinell.engine.plan import make_plan as plan_audit
from brinell.engine.progress import SilentProgress
from brinell.engine.request import IN_MEMORY, Request
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.folder import MANIFEST
from brinell.store.proofs import BROKEN, CERTIFIED, FAILED, OPEN, TABLE, VERDICTS, WRONG, Outcomes, fault_lines
from brinell.store.run import Run
from brinell.studies import work
from brinell.studies.certify import queries
from brinell.studies.certify.analysis import CertifyResult
from brinell.studies.certify.proofs import Method, Proofs, Prover
from brinell.studies.certify.solvers import Judge, find_tool, tool_name
from brinell.studies.kit import Call, Piece, Plan

PIECE = 100
"""Samples of a piece."""
BUDGETS = "0:0.04:5"
"""Budgets if nobody names any."""
SAMPLES = 100
"""Samples if nobody says how many."""
RUN = "run"
"""Key of the manifest that holds the digest of the manifest of the audit whose attacks count."""
COMPARED = 8
"""Samples on which the network that is read is compared with the model."""


@dataclass(frozen=True, kw_only=True)
class CertifyPlan(Plan):
    """The plan with budgets and methods."""

    levels: tuple[float, ...]
    """Ascending budgets above 0."""
    methods: tuple[tuple[str, Method], ...]
    """Methods by name."""
    answers: Path | None = None
    """A folder that holds the answers of outside verifiers, for a repetition."""
    run: Path | None = None
    """The audit whose attacks count; None to attack."""


@dataclass(frozen=True)
class AuditedRun:
    """Options of the certification of an audit."""

    run: Path | None
    """Its folder; None as long as there is none."""
    answers: Path | None = None
    """In a repetition the folder that is repeated, whose answers of outside verifiers are taken as they are."""
    export: None = None


def carry_out(call: Call) -> CertifyResult:
    """Certify, and write the queries that a call asks for.

    Raises:
        RequestError: the request cannot be carried out, or the folder of the queries is not empty.
    """
    folder = call.options.export if call.options else None
    if folder is None:
        return _certified(call)
    folder = Path(folder).expanduser().absolute()
    queries.check_queries(call.request.norm, "export")
    queries.check_folder(folder)
    result = _certified(call)
    _export(call, Path(result.folder), folder)
    return result


def _certified(call: Call) -> CertifyResult:
    """The result of a folder that is made."""
    result: CertifyResult = work.carry_out(call)
    return result


def repeat(call: Call, folder: Path) -> CertifyResult:
    """Carry out the call of a folder again; outside verifiers are not run, and the attacks of an audit are taken from its run.

    Raises:
        RequestError: the audit to which the proofs belong is not the one beside them.
    """
    manifest = TABLE.layout.read(folder)
    run = folder.parent if RUN in manifest else None
    if run is not None and (not (run / MANIFEST).is_file() or digest(run / MANIFEST) != manifest[RUN]):
        raise RequestError(f"{folder} holds proofs beside another audit than the one in {run}: put it back into its run")
    return _certified(replace(call, options=AuditedRun(run, answers=folder)))


def _export(call: Call, made: Path, folder: Path) -> None:
    """Write the samples that a folder leaves open as queries."""
    plan, content = make_plan(call), TABLE.read(made)
    (model,) = plan.models.values()
    model = with_logits(model, plan.dataset, dict(content.manifest), plan.device, name=model.name)
    is_open = content.rows.outcome.astype(str) == OPEN
    ids = np.unique(content.rows.sample_id[is_open])
    if not len(ids):
        call.progress.note("no sample is open, so that there is nothing to export")
        return
    samples = _samples(plan, model, call.request.norm, ids)
    positions, levels = {int(sample): k for k, sample in enumerate(ids)}, {eps: k for k, eps in enumerate(plan.levels)}
    rows_ = zip(content.rows.sample_id[is_open].tolist(), content.rows.eps[is_open].tolist(), strict=True)
    boxes = [(positions[sample], levels[eps]) for sample, eps in rows_]
    queries.export(samples, boxes, folder, call.request.solver_timeout)
    call.progress.note(f"{len(boxes)} queries in VNN-LIB about {len(ids)} samples: {folder / queries.INSTANCES} lists them")


def _samples(plan: "CertifyPlan", model: Model, norm: str, ids: Array) -> queries.Samples:
    x = plan.dataset.load(ids.tolist())
    by_id = dict(zip(plan.ids.tolist(), plan.labels.tolist(), strict=True))
    labels = np.array([by_id[sample] for sample in ids.tolist()])
    prover = Prover.of(read_network(model, x[:COMPARED].to(plan.device)), plan.dataset.domain, norm)
    return queries.Samples(ids=ids, x=x, labels=labels, levels=plan.levels, prover=prover)


def make_plan(call: Call) -> CertifyPlan:
    """Open the data and the model, and refuse what cannot be bounded before anything is attacked."""
    request = call.request
    levels = tuple(value for value in parse_eps(request.eps or BUDGETS).values if value > 0)
    if not levels:
        raise RequestError(f"{option('eps')} {request.eps} names no budget above 0: write one, such as 0:8/255:9")
    methods = tuple((spec, _method(spec)) for spec in request.method)
    answers = getattr(call.options, "answers", None)
    if request.solver:
        queries.check_queries(request.norm, "solver")
        if answers is None:
            for command in request.solver:
                find_tool(command)
    run = getattr(call.options, "run", None)
    about = {} if run is None else {RUN: digest(run / MANIFEST)}
    plan: CertifyPlan = work.open_plan(
        call,
        CertifyPlan,
        usual_samples=SAMPLES,
        levels=levels,
        methods=methods,
        answers=answers,
        run=run,
        about=about,
        identity=about,
    )
    (model,) = plan.models.values()
    x = plan.dataset.load(plan.ids[:COMPARED].tolist())
    graph = read_network(model, x)
    if request.solver or getattr(call.options, "export", None):
        queries.network_bytes(Prover.of(graph, plan.dataset.domain, request.norm), x)
    return plan


def _method(spec: str) -> Method:
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
            make=partial(certify, plan, call, slice(start, start + PIECE), number),
            files=(examples_file(number), *([VERDICTS.format(number)] if call.request.solver else [])),
        )
        for number, start in enumerate(starts)
    ]


def examples_file(number: int) -> str:
    """Name of the file with the counterexamples of a piece."""
    return f"counterexamples-{number}.safetensors"


def certify(plan: CertifyPlan, call: Call, part: slice, number: int) -> Outcomes:
    """Attack and bound a part of the samples, and write its counterexamples."""
    ids, labels = plan.ids[part], plan.labels[part]
    (model,) = plan.models.values()
    x = plan.dataset.load(ids.tolist())
    if plan.run is None:
        attacked = attack(plan, call, x, labels)
    else:
        (name,) = plan.models
        attacked = read_attacks(Run.open(plan.run), name, ids, len(plan.levels))
    network = read_network(model, x[:COMPARED].to(plan.device))
    prover = Prover.of(network, plan.dataset.domain, call.request.norm, plan.device)
    y = torch.as_tensor(labels).long()
    limit = torch.as_tensor(attacked.first)
    limit[torch.as_tensor(attacked.failed)] = 0
    proofs = Proofs.none(len(ids))
    for name, method in plan.methods:
        proofs.extend(prover, name, method, x, y, plan.levels, limit)
    if call.request.solver:
        on_processor = Prover.of(network, plan.dataset.domain, call.request.norm)
        samples = queries.Samples(ids=ids, x=x, labels=labels, levels=plan.levels, prover=on_processor)
        ask_tools(plan, call, samples, proofs, attacked, VERDICTS.format(number))
    write_arrays(plan.folder / examples_file(number), {str(ids[k]): x for k, x in sorted(attacked.examples.items())})
    return _rows(plan, ids, labels, attacked, proofs)


def ask_tools(plan: CertifyPlan, call: Call, samples: queries.Samples, proofs: Proofs, attacked: "Attacked", file: str) -> None:
    """Ask the outside verifiers of a request about open samples, and write what counts of their answers."""
    (model,) = plan.models.values()

    def answers(x: torch.Tensor) -> torch.Tensor:
        """Scores of inputs on the CPU."""
        return predict(model, x.to(plan.device), call.request.batch_size).cpu()

    confirm = queries.confirmation(samples, answers, plan.dataset.domain)
    first = np.where(attacked.failed | ~attacked.right, 0, attacked.first)
    verdicts = []
    with TemporaryDirectory(prefix="brinell-") as directory:
        if plan.answers is None:
            commands = {command: find_tool(command) for command in call.request.solver}
            ask = queries.asking(samples, Path(directory), call.request.solver_timeout, commands)
        else:
            ask = queries.recorded(samples, plan.answers / file)
        for command in call.request.solver:
            judge = Judge(tool_name(command), confirm, attacked.examples)
            verdicts += queries.ask_tool(command, ask, judge, samples, proofs, first, attacked.examples)
    attacked.first[:] = first
    for line in fault_lines(verdicts):
        call.progress.warn(line)
    queries.write_verdicts(plan.folder / file, verdicts)


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """The finds of attacks on n samples."""

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
    )
    dataset = from_arrays(x.numpy(), labels, plan.dataset.classes, plan.dataset.domain)
    with TemporaryDirectory(prefix="brinell-") as directory:
        folder = Path(directory) / "audit"
        run_audit(plan_audit(request, dataset=dataset, models=(model,)), folder, SilentProgress(), command=call.command)
        attacked = read_attacks(Run.open(folder), model.name, np.arange(len(x)), len(plan.levels))
    predicted = predict(model, x.to(plan.device), call.request.batch_size).argmax(1).cpu().numpy()
    right = predicted == labels
    attacked.first[~right] = 0
    return replace(attacked, right=right, failed=~np.isfinite(x.flatten(1).sum(1).numpy()))


def read_attacks(run: Run, model: str, ids: Array, budgets: int) -> Attacked:
    """The finds of the attacks of an audit on some of its samples, at its largest budgets, which are all above 0."""
    cells = grid(run.records(), run.manifest, model)
    positions = np.searchsorted(cells.ids, ids)
    states = worst_case(cells, judging(cells))[positions][:, -budgets:]
    wrong, right = states == STATE_WRONG, cells.clean[positions] == RIGHT
    first = np.where(wrong.any(1), wrong.argmax(1), budgets)
    first[~right] = 0
    nearest, places = _nearest(run, model), {sample: k for k, sample in enumerate(ids.tolist())}
    return Attacked(
        right=right,
        failed=(states == UNJUDGED).any(1) | (cells.clean[positions] == UNJUDGED),
        first=first,
        examples={places[sample]: x for sample, x in nearest.items() if sample in places},
    )


def _nearest(run: Run, model: str) -> dict[int, Array]:
    """The nearest stored adversarial input of each sample."""
    records, nearest, sizes = run.records(), dict[int, Array](), dict[int, float]()
    column = getattr(records, str(run.manifest["request"]["norm"]))
    for stage in run.manifest["stages"]:
        name = str(stage["name"])
        of_stage = (records.attack.astype(str) == name) & np.isfinite(np.ma.filled(column, np.nan))
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
