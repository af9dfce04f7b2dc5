"""A training run of an RLAB agent: from a request to a policy file, which is written anew at every report."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.core.contracts import Dataset
from brinell.core.criterion import MISCLASSIFIED
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.threat import Threat
from brinell.core.version import VERSION
from brinell.engine.answers import with_logits
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import model_facts, unreadable_samples
from brinell.engine.tasks import Task, open_task
from brinell.rlab.agent import Agent, load, verdict, warning
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.train import FEWEST, Candidate, Report, TrainConfig, not_met, set_aside, train
from brinell.store import trust
from brinell.store.files import check_safetensors_name, write_atomically
from brinell.studies.agent import TrainAgentRequest
from brinell.studies.agent.result import AgentResult, AgentSurrogate, AgentValidation
from brinell.studies.kit import Call, Plan
from brinell.studies.work import open_plan
from brinell.training.surrogates import train_surrogates

TIMING = ("minutes", "steps", "batch_size", "device")
"""Settings that do not tell which training a file holds: for how long it goes on."""
CONFIG, SURROGATE_STEPS = TrainConfig(), 400
"""Settings of the training, and steps of that of a surrogate."""
SAMPLES, EPISODE_STEPS = 1000, 300
"""Samples, and queries after which an episode is given up, where nobody says."""


def carry_out(call: Call) -> AgentResult:
    """Train the agent that a call asks for.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    record = _train(call).about or {}
    validation = record["validation"]
    return AgentResult(
        policy=str(call.out),
        surrogates=[
            AgentSurrogate(**{name: facts[name] for name in AgentSurrogate.model_fields}) for facts in record["surrogates"]
        ],
        command=_audit_command(call),
        validation=validation and AgentValidation(verdict=verdict(record), warning=warning(record) or None, **validation),
        **{name: record[name] for name in ("inputs", "training_queries", "surrogate_passes")},
    )


def _audit_command(call: Call) -> str:
    """A command that audits with the policy; where the data has a split for tests, on that."""
    request = call.request
    trained_on = plugins.parse(request.data).options.get("split")
    data = plugins.with_options(request.data, {"split": None}) if trained_on == "train" else request.data
    words = [] if call.dataset(truth=True) is not None else ["--data", data]
    words += [] if call.models() else ["--model", request.model]
    attack = plugins.with_options(request.attack, {"policy": str(call.file())})
    words += ["--norm", request.norm, "--eps", request.eps, "--attack", attack]
    return shlex.join(["brinell", "audit", *words])


def _request_of(agent: Agent) -> dict[str, Any]:
    """The settings of the training that made a policy; none of a file that states none."""
    request = (agent.about or {}).get("request")
    return request if isinstance(request, dict) else {}


def _train(call: Call) -> Agent:
    """Train an agent, and write its file.

    With `resume` it goes on with the policy that is there, if there is one.
    """
    request, out = call.request, call.file()

    def tell(report: Report) -> None:
        """Print the figures of a training report."""
        values = {name: value for name, value in report.values.items() if isinstance(value, int | float)}
        call.progress.note(f"{report.stage}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))

    check_safetensors_name(out, "a policy")
    eps, seconds = _budget(request.eps), 60 * request.minutes if request.steps is None else 1e9
    config = replace(CONFIG, seconds=seconds, steps=request.steps, seed=request.seed)
    name, _, options = plugins.parse(request.attack)
    if name != "rlab":
        raise RequestError(f"attack {request.attack!r} learns nothing: agents are trained for rlab, with its options")
    attack = plugins.build("attack", name, {"steps": EPISODE_STEPS} | options)
    if attack.access > Access.SCORES:
        raise RequestError(
            "an agent learns from scores alone: leave out distortions that look into the model, as gradient-sign does"
        )
    plan: Plan = open_plan(call, truth=True, usual_samples=SAMPLES, usual_method="first")
    dataset, device, (model,), ids = plan.dataset, plan.device, plan.models.values(), plan.ids.tolist()
    if dataset.info.truth is None and request.criterion is not None:
        raise RequestError(
            f"{option('criterion')} is for masks and boxes, and {dataset.name} has one class for each input: leave it out"
        )
    domain = dataset.domain.free
    attack.check(domain)
    if model.access < Access.SCORES:
        raise RequestError("the model answers labels only, and an agent learns from scores: train it on a model that gives them")
    with model.info.session(device):
        rules = Rules(steps=attack.steps, removals=attack.removals)
        placement = Placement(grid=attack.grid(domain), variants=attack.variants(domain), rules=rules)
        start = _load_start(out, request) if call.resume and out.exists() else None
        counted: dict[str, Any] = {}
        subject: Task | None = None
        if dataset.info.truth is None:
            model = with_logits(model, dataset, counted)
            first_looks = len(ids) + sum(probe["forwards"] for probe in counted.get("probes", {}).values())
        else:
            subject, ids = _open_subject(request, dataset, model, ids, device, call.progress.note)
            model, first_looks = subject.model, len(ids) + 1
        first_looks += (start.about or {}).get("training_queries", {}).get("first_looks", 0) if start else 0
        x, y = dataset.load(ids).to(device), torch.as_tensor(dataset.labels()[ids], device=device).long()
        criterion = MISCLASSIFIED if subject is None else subject.criterion(ids)
        right = not_met(model, Batch(ids=torch.arange(len(x), device=device), x=x, y=y), criterion, request.batch_size)
        positions = np.asarray(ids)[right.cpu().numpy()]
        batch = Batch(ids=torch.arange(int(right.sum()), device=device), x=x[right], y=y[right])
        budgets, distance = torch.full((len(batch),), eps, device=device), plugins.build("distance", request.norm, {})
        threat = Threat(distance=distance, eps=budgets, domain=dataset.domain, criterion=criterion.select(right))

        digests = {"data_digest": dataset.digest(), "model_digest": model_facts(model)["digest"]}
        candidates = []
        if start is None and request.surrogates and subject is None and len(positions) >= FEWEST:
            for surrogate in _surrogates(request, dataset, positions, model.classes, eps, device):
                tell(Report("surrogate", {name: surrogate.facts[name] for name in ("width", "kernel", "steps", "accuracy")}))
                candidates.append(surrogate)
        keep = partial(_save, out=out, request=request, first_looks=first_looks, digests=digests)
        options_of_training: dict[str, Any] = {
            "batch_size": request.batch_size,
            "tell": tell,
            "keep": keep,
            "start": start,
            "candidates": candidates,
            "peers": {"Square": plugins.build("attack", "square", {"steps": attack.steps})},
        }
        return keep(train(model, batch, threat, placement, config, **options_of_training))


def _open_subject(
    request: TrainAgentRequest,
    dataset: Dataset,
    model: Model,
    ids: list[int],
    device: torch.device,
    note: Callable[[str], None],
) -> tuple[Task, list[int]]:
    """The model of maps or boxes with its criterion, and the samples on which this can be met; says what is left out."""
    subject = open_task(dataset, model, request.criterion, ids[:1], device)
    hopeless = subject.hopeless(ids)
    ids = [sample for sample in ids if sample not in hopeless]
    if not ids:
        raise RequestError(f"no picture has what {subject.text} counts: choose another {option('criterion')} or other data")
    if hopeless:
        note(f"pictures left out: {len(hopeless)}, of which the first has nothing that {subject.text} counts")
    if request.surrogates:
        note(f"surrogates are left out: they learn the class of an input, and {dataset.name} has none")
    return subject, ids


def _surrogates(
    request: TrainAgentRequest, dataset: Dataset, positions: Array, classes: int, eps: float, device: torch.device
) -> Iterator[Candidate]:
    """Train surrogates on all data but the inputs by which they are chosen and validated."""
    reserve = positions[set_aside(len(positions)).start :]
    training = np.setdiff1d(np.arange(len(dataset)), reserve)
    unreadable = unreadable_samples(dataset, training.tolist())
    yield from train_surrogates(
        dataset,
        np.array([position for position in training.tolist() if position not in unreadable], dtype=np.int64),
        reserve,
        classes,
        count=request.surrogates,
        steps=SURROGATE_STEPS,
        eps=eps,
        norm=request.norm,
        seed=request.seed,
        batch_size=request.batch_size,
        device=device,
    )


def _budget(text: str) -> float:
    """The one budget of the training, above 0."""
    budgets = parse_eps(text).values
    if len(budgets) != 1:
        raise RequestError(f"eps {text!r} names {len(budgets)} budgets: an agent is trained at one")
    if not budgets[0] > 0:
        raise RequestError(f"eps is {text}: episodes need a budget above 0")
    return float(budgets[0])


def _load_start(out: Path, request: TrainAgentRequest) -> Agent:
    """The policy that a training of the same settings left."""
    agent, current = load(out), request.model_dump(mode="json", exclude=set(TIMING))
    was = _request_of(agent)
    if changed := [f"{name} was {was.get(name)!r} and is {value!r}" for name, value in current.items() if was.get(name) != value]:
        raise RequestError(
            f"{out} learned something else ({'; '.join(changed)}): choose another {option('out')}, or leave out "
            f"{option('resume')}"
        )
    return agent


def _save(agent: Agent, out: Path, request: TrainAgentRequest, *, first_looks: int, digests: Mapping[str, str]) -> Agent:
    """Write the policy with all that says how it was made."""
    record: dict[str, Any] = {**(agent.about or {}), **digests, "brinell": VERSION, "request": request.model_dump(mode="json")}
    record["training_queries"] = {"first_looks": first_looks} | record.get("training_queries", {})
    record[trust.MARK] = trust.make_mark(out, trust.request_text(record))
    noted = replace(agent, about=record)
    write_atomically(out, noted.save)
    return noted
