"""The computation: each piece attacks and bounds a part of the samples, or counts their classes
under noise.
"""

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.analysis.curve import RIGHT, UNJUDGED, grid, worst_case
from brinell.analysis.curve import WRONG as STATE_WRONG
from brinell.bounds._graph import Graph
from brinell.bounds._proofs import Method, Proofs, Prover
from brinell.bounds._trace import trace
from brinell.core.bounded import digest
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.datasets._memory import from_arrays
from brinell.engine.eps_grid import parse_eps
from brinell.engine.group_attack import predict
from brinell.engine.plan import make_plan as plan_audit
from brinell.engine.progress import SilentProgress
from brinell.engine.request import IN_MEMORY, BaseRequest, FitOptions, Request
from brinell.reports.examples import closest_rows
from brinell.store import rows
from brinell.store.files import write_arrays, write_text
from brinell.store.folder import MANIFEST
from brinell.store.proofs import (
    BROKEN,
    CERTIFIED,
    FAILED,
    OPEN,
    TABLE,
    VERDICTS,
    WRONG,
    Outcomes,
    fault_lines,
)
from brinell.store.run import Run
from brinell.studies import work
from brinell.studies.audits import run_audit
from brinell.studies.certify import SMOOTHING, CertifyRequest, solvers
from brinell.studies.certify.queries import answer
from brinell.studies.certify.result import CertifyFacts, CertifyResult, QueryResult
from brinell.studies.certify.smoothing import Smoothing, counter
from brinell.studies.kit import Call, Piece, Plan

PIECE, PIECE_UNDER_NOISE = 100, 25
"""Samples of a piece."""
BUDGETS, RADII, SAMPLES = "0:0.04:5", 5, 100
"""Budgets, number of radii of smoothing, and number of samples if nobody names any."""
COMPARED = 8
"""Samples on which the network that is read is compared with the model."""
EXAMPLES = "counterexamples-{}.safetensors"
"""Name of the file with the counterexamples of a piece."""
QUERY = {"query", "network", "timeout", "attack", "method", "seed"}
NOISE = {"data", "model", "norm", "eps", "method", "samples", "seed", "batch_size", "device"}
"""The settings that have a part in the answer to a query, and in smoothing."""


@dataclass(frozen=True, kw_only=True)
class CertifyPlan(Plan):
    """The plan with budgets and methods."""

    levels: tuple[float, ...]
    """Ascending budgets above 0."""
    methods: tuple[tuple[str, Method], ...]
    """Methods by name; none for smoothing."""
    smoothing: Smoothing | None
    """The noise of a smoothed model, which is proven in place of the model."""


class AuditedRun(BaseRequest):
    """Options of the certification of an audit."""

    run: Path | None = None
    """Its folder, whose attacks count; None to attack."""
    answers: Path | None = None
    """In a repetition the folder that is repeated, whose answers of outside verifiers are taken
    as they are."""


class RepeatedProofs(AuditedRun, FitOptions):
    """Options of a repetition of what belongs to no audit."""


def carry_out(call: Call) -> CertifyResult | QueryResult:
    """Answer a query, or certify."""
    request: CertifyRequest = call.request
    if request.query is not None:
        _check_settings(request, QUERY, "the answer to a query")
        return answer(request, call.progress)
    if request.network is not None:
        raise RequestError(
            f"{option('network')} belongs to a query: name it first, such as "
            "brinell certify QUERY.vnnlib"
        )
    result: CertifyResult = work.carry_out(call)
    return result


def _check_settings(request: CertifyRequest, allowed: set[str], purpose: str) -> None:
    """Refuse settings that differ from their defaults and have no part in a purpose."""
    for name, field in CertifyRequest.model_fields.items():
        if name not in allowed and getattr(request, name) != field.default:
            raise RequestError(f"{option(name)} has no part in {purpose}: leave it out")


def repeat(call: Call, folder: Path) -> CertifyResult:
    """Carry out the call of a folder again; outside verifiers are not run, and the attacks of an
    audit are taken from its run.
    """
    of_run = TABLE.layout.read(folder).get("facts", {}).get("run")
    run = None if of_run is None else folder.parent
    # A claim about a run holds for that run alone, and not for one that was put in its place.
    if run is not None and (not (run / MANIFEST).is_file() or digest(run / MANIFEST) != of_run):
        raise RequestError(
            f"{folder} holds proofs beside another audit than the one in {run}: "
            "put it back into its run"
        )

    if run is None:
        options: AuditedRun = RepeatedProofs(answers=folder, expect=call.options.expect)
    else:
        options = AuditedRun(run=run, answers=folder)
    result: CertifyResult = work.carry_out(replace(call, options=options))
    return result


def _audited_run(call: Call) -> AuditedRun:
    """The audit that a call is about, or none."""
    return call.options if isinstance(call.options, AuditedRun) else AuditedRun()


def make_plan(call: Call) -> CertifyPlan:
    """Open the data and the model, and refuse what cannot be bounded before anything is
    attacked.
    """
    request = call.request
    options = _audited_run(call)
    smoothing = _smoothing(request) if request.is_smoothing else None
    texts = _budgets(request, smoothing)
    if not texts:
        raise RequestError(
            f"{option('eps')} {request.eps} names no budget above 0: write one, such as 0:8/255:9"
        )
    if smoothing is not None:
        smoothing.check_radius(max(texts))
    specs = request.method if smoothing is None else ()
    # Of a spec the name and the options: a bound has no address between them.
    methods = tuple((spec, plugins.build("bound", *plugins.parse(spec)[::2])) for spec in specs)
    # Verifiers need not be there where their answers are read from a folder.
    commands = request.solver if options.answers is None else ()
    for command in commands:
        if not solvers.is_in_memory(command):
            solvers.find_tool(command)

    audit = None if options.run is None else digest(options.run / MANIFEST)
    facts = CertifyFacts(eps=[0.0, *texts], eps_text=["0", *texts.values()], run=audit)
    fields: dict[str, Any] = {
        "levels": tuple(texts),
        "methods": methods,
        "smoothing": smoothing,
        "facts": facts,
    }
    plan = CertifyPlan(**vars(work.open_plan(call, usual_samples=SAMPLES)) | fields)
    if smoothing is not None:
        return replace(
            plan, models={f"smoothed {name}": model for name, model in plan.models.items()}
        )

    # What cannot be bounded is refused here, before anything is attacked.
    (model,) = plan.models.values()
    x = plan.dataset.load(plan.ids[:COMPARED].tolist())
    graph = read_network(model, x)
    if request.solver:
        prover = Prover.of(graph, plan.dataset.domain, request.norm)
        solvers.check_question(prover, x, commands)
    return plan


def _budgets(request: CertifyRequest, smoothing: Smoothing | None) -> dict[float, str]:
    """The budgets above 0 with their texts; by default those that a proof can reach."""
    usual = BUDGETS if smoothing is None else f"0:{smoothing.largest!r}:{RADII}"
    budgets = parse_eps(request.eps or usual)
    return {
        eps: text if request.eps else f"{eps:.3g}"
        for eps, text in zip(budgets.values, budgets.texts, strict=True)
        if eps > 0
    }


def _smoothing(request: CertifyRequest) -> Smoothing:
    """The smoothing that a request names; refuses settings that it has not."""
    _check_settings(request, NOISE, "smoothing")
    if request.norm != "l2" or len(request.method) > 1:
        wrong = (
            option("norm", request.norm) if request.norm != "l2" else f"another {option('method')}"
        )
        raise RequestError(f"smoothing proves the smoothed model in l2: leave {wrong} out")
    smoothing: Smoothing = plugins.build_class(
        "method", SMOOTHING, Smoothing, plugins.parse(request.method[0]).options
    )
    return smoothing


def read_network(model: Model, x: torch.Tensor) -> Graph:
    """The graph of a model, compared with it on inputs (n, *shape)."""
    if model.access < Access.GRADIENTS:
        raise RequestError(
            f"model {model.name} gives {model.access.name.lower()} only, and a "
            "bound needs its layers: name it as "
            f"{model.info.gradients or 'torch:FILE.py:FACTORY'}, or prove it "
            f"smoothed by {option('method', SMOOTHING)}"
        )

    try:
        return trace(model.predict, x)
    except RequestError as error:
        raise RequestError(
            f"model {model.name} cannot be bounded: {error}; brinell audit attacks it, and "
            f"{option('method', SMOOTHING)} proves it smoothed"
        ) from None


def pieces(plan: CertifyPlan, call: Call) -> list[Piece]:
    """Parts of the samples."""
    size, make = (PIECE, certify) if plan.smoothing is None else (PIECE_UNDER_NOISE, smooth)
    # Verifiers write their answers to a file of the piece, from which a verification reads them.
    kinds = (
        ()
        if plan.smoothing is not None
        else (EXAMPLES, VERDICTS)
        if call.request.solver
        else (EXAMPLES,)
    )

    return [
        Piece(
            name=f"samples {start + 1} to {min(start + size, len(plan.ids))}",
            make=partial(make, plan, call, slice(start, start + size), number),
            files=tuple(kind.format(number) for kind in kinds),
        )
        for number, start in enumerate(range(0, len(plan.ids), size))
    ]


def smooth(plan: CertifyPlan, call: Call, part: slice, number: int) -> Outcomes:
    """Prove the smoothed model on a part of the samples."""
    (model,) = plan.models.values()
    smoothing, request = plan.smoothing, call.request
    assert smoothing is not None
    count = counter(model, plan.dataset.domain, plan.device, request.batch_size)
    ids = plan.ids[part].tolist()
    samples = zip(ids, plan.dataset.load(ids), strict=True)
    radii = (0.0, *plan.levels)
    bounds = [smoothing.bound(count, x, request.seed, sample, radii) for sample, x in samples]

    predictions = np.array([bound.prediction for bound in bounds])
    low = np.array([bound.low for bound in bounds])
    radius = np.array([smoothing.radius(value) for value in low.tolist()])
    # Within its radius a sample is proven; a proof of another class than the true one is an error.
    outcome = np.where(
        (radius[:, None] > 0) & (np.array(radii) <= radius[:, None]), CERTIFIED, OPEN
    )
    outcome[(radius > 0) & (predictions != plan.labels[part])] = WRONG
    return _rows(
        plan, part, outcome, outcome == CERTIFIED, np.full(len(ids), SMOOTHING), radius, low
    )


def certify(plan: CertifyPlan, call: Call, part: slice, number: int) -> Outcomes:
    """Attack and bound a part of the samples, and write its counterexamples."""
    ids, labels = plan.ids[part], plan.labels[part]
    ((name, model),) = plan.models.items()
    x = plan.dataset.load(ids.tolist())
    options = _audited_run(call)
    if options.run is None:
        attacked = attack(plan, call, x, labels)
    else:
        attacked = read_attacks(Run.open(options.run), name, ids, len(plan.levels))

    network = read_network(model, x[:COMPARED].to(plan.device))
    prover = Prover.of(network, plan.dataset.domain, call.request.norm, plan.device)
    # Nothing is proven from the first budget on that an attack broke, nor of a failed sample.
    limit = torch.as_tensor(attacked.first)
    limit[torch.as_tensor(attacked.failed)] = 0

    proofs = Proofs.none(len(ids))
    for spec, method in plan.methods:
        proofs.extend(prover, spec, method, x, torch.as_tensor(labels).long(), plan.levels, limit)
    if call.request.solver:
        on_processor = Prover.of(network, plan.dataset.domain, call.request.norm)

        def is_wrong(x: torch.Tensor, label: int) -> bool:
            return int(predict(model, x.to(plan.device), batch_size=1).argmax(1)) != label

        questions = solvers.Questions(
            ids=ids,
            x=x,
            labels=labels,
            levels=plan.levels,
            prover=on_processor,
            is_wrong=is_wrong,
            model=model,
            device=plan.device,
        )
        ask_tools(plan, call, questions, proofs, attacked, VERDICTS.format(number))
    write_arrays(
        plan.folder / EXAMPLES.format(number),
        {str(ids[k]): x for k, x in sorted(attacked.examples.items())},
    )

    # A column for each budget by its position, after that of the clean input, -1. What holds for
    # the whole sample comes last, since it overrules the rest.
    positions, proven = np.arange(-1, len(plan.levels)), proofs.level.numpy()
    outcome = np.where(positions >= attacked.first[:, None], BROKEN, OPEN).astype(object)
    outcome[positions <= proven[:, None]] = CERTIFIED
    outcome[~attacked.right], outcome[attacked.failed] = WRONG, FAILED
    # Position -1 takes the last level, which `where` drops: nothing above 0 is proven there.
    radius = np.where(proven >= 0, np.array(plan.levels)[proven], np.nan)
    by_proof = (outcome == CERTIFIED) & (positions >= 0)
    return _rows(
        plan, part, outcome, by_proof, np.array(proofs.method), radius, proofs.margin.numpy()
    )


def _rows(
    plan: CertifyPlan,
    part: slice,
    outcome: Array,
    proven: Array,
    method: Array,
    radius: Array,
    margin: Array,
) -> Outcomes:
    """A row for each sample and budget, budgets of a sample together; budget 0 is the input without
    a change.

    Outcomes (n, k) and whether they are proven; of each sample (n,) what proved it, at which
    budget, and the lower bound there.
    """
    levels = (0.0, *plan.levels)
    return rows.build(
        Outcomes,
        outcome.size,
        sample_id=np.repeat(plan.ids[part], len(levels)),
        label=np.repeat(plan.labels[part], len(levels)),
        eps=np.tile(levels, len(outcome)),
        outcome=outcome.ravel().astype(str),
        method=np.where(proven, method.astype(object)[:, None], "").ravel(),
        proven_at=np.where(proven, radius[:, None], np.nan).ravel(),
        margin=np.where(proven, margin[:, None], np.nan).ravel(),
    )


def ask_tools(
    plan: CertifyPlan,
    call: Call,
    questions: solvers.Questions,
    proofs: Proofs,
    attacked: "Attacked",
    file: str,
) -> None:
    """Ask the outside verifiers of a request about open samples, and write what counts of their
    answers.
    """
    # Nothing is open on samples that are wrong without a change, or that failed.
    attacked.first[attacked.failed | ~attacked.right] = 0
    verdicts = []
    answers = _audited_run(call).answers
    with TemporaryDirectory(prefix="brinell-") as directory:
        for command in call.request.solver:
            tool = Path(shlex.split(command)[0]).name
            ask = (
                questions.asked(command, Path(directory), call.request.timeout)
                if answers is None
                else questions.recorded(tool, answers / file)
            )
            verdicts += solvers.consult(
                tool, ask, questions, proofs, attacked.first, attacked.examples
            )

    for line in fault_lines(verdicts):
        call.progress.warn(line)
    write_text(
        plan.folder / file, "".join(f"{verdict.model_dump_json()}\n" for verdict in verdicts)
    )


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """The finds of attacks on n samples."""

    right: Array
    """(n,) bool: classified correctly without a change."""
    failed: Array
    """(n,) bool: the model or an attack failed."""
    first: Array
    """(n,) int64: position of the smallest budget with a counterexample; the number of budgets
    where there is none."""
    examples: dict[int, Array]
    """The nearest counterexample by position of the sample."""


def attack(plan: CertifyPlan, call: Call, x: torch.Tensor, labels: Array) -> Attacked:
    """Audit samples by the attacks of the request, at all budgets."""
    (model,) = plan.models.values()
    request = Request(
        data=IN_MEMORY,
        model=(f"{IN_MEMORY}:{model.name}",),
        eps=",".join(repr(level) for level in plan.levels),
        samples=f"first:{len(x)}",
        **{
            name: getattr(call.request, name)
            for name in ("norm", "attack", "seed", "batch_size", "device")
        },
    )

    # An audit of its own, in a folder that goes with it: its rows are read at once.
    dataset = from_arrays(x.numpy(), labels, plan.dataset.classes, plan.dataset.domain)
    with TemporaryDirectory(prefix="brinell-") as directory:
        folder = Path(directory) / "audit"
        run_audit(
            plan_audit(request, dataset=dataset, models=(model,)),
            folder,
            SilentProgress(),
            command=call.command,
        )
        return read_attacks(Run.open(folder), model.name, np.arange(len(x)), len(plan.levels))


def read_attacks(run: Run, model: str, ids: Array, budgets: int) -> Attacked:
    """The finds of the attacks of an audit on some of its samples, at its largest budgets, which
    are all above 0.
    """
    cells = grid(run.rows, run.manifest, model)
    positions = np.searchsorted(cells.ids, ids)
    states = worst_case(cells)[positions][:, -budgets:]
    wrong = states == STATE_WRONG
    right = cells.clean[positions] == RIGHT
    # Of each sample the position of the smallest budget at which it is wrong.
    first = np.where(wrong.any(1), wrong.argmax(1), budgets)
    first[~right] = 0  # what is wrong without a change is wrong at every budget
    nearest = rows.take(run.rows, closest_rows(run.rows, model, str(run.manifest["distance"])))
    nearest = rows.take(nearest, np.isin(nearest.sample_id, ids))
    places = {sample: k for k, sample in enumerate(ids.tolist())}
    examples = {places[sample]: x for sample, x in run.inputs_of(nearest).items()}

    return Attacked(
        right=right,
        failed=(states == UNJUDGED).any(1) | (cells.clean[positions] == UNJUDGED),
        first=first,
        examples=examples,
    )
