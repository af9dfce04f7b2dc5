"""A training run of an RLAB agent: from a request to a policy file."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import Dataset
from brinell.core.criterion import MISCLASSIFIED, Criterion
from brinell.core.eot import EOT
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.threat import Threat
from brinell.core.version import VERSION
from brinell.engine.answers import with_logits
from brinell.engine.eps_grid import parse_budget
from brinell.engine.plan import TRIAL_SAMPLES, model_facts, unreadable_samples
from brinell.engine.tasks import Task
from brinell.rlab.agent import DEFAULT, PAPERS, Agent, verdict
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.train import FEWEST, Candidate, TrainConfig, set_aside, train
from brinell.store import trust
from brinell.store.files import check_safetensors_name, write_atomically
from brinell.studies.agent import TrainAgentRequest
from brinell.studies.agent.result import AgentResult, AgentValidation
from brinell.studies.kit import Call, Plan
from brinell.studies.tasks import open_task
from brinell.studies.work import open_plan
from brinell.training.surrogates import train_surrogates

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
        surrogates=sum(facts["kept"] for facts in record["surrogates"]),
        command=_audit_command(call),
        validation=validation and AgentValidation(verdict=verdict(record), **validation),
        **{
            name: record[name]
            for name in ("inputs", "training_queries", "surrogate_passes", "kept")
        },
    )


def _audit_command(call: Call) -> str:
    """A command that audits with the policy, on data that it has not seen."""
    request = call.request
    # Data and models in memory have no spec that a command could name.
    arguments = [
        "--data",
        other_data(request.data) if call.dataset(truth=True) is None else "OTHER-DATA",
    ]
    arguments += [] if call.models() else ["--model", request.model]
    attack = plugins.with_options(request.attack, {"policy": str(call.file())})
    arguments += ["--norm", request.norm, "--eps", request.eps, "--attack", attack]
    return shlex.join(["brinell", "audit", *arguments])


def other_data(spec: str) -> str:
    """The data for the command of the next step: those of training without `split=train`, the file
    for tests beside that for training, or else the placeholder OTHER-DATA.
    """
    if plugins.parse(spec).options.get("split") == "train":
        return plugins.with_options(spec, {"split": None})
    kind, _, address = spec.partition(":")
    path, mark, query = address.partition("?")
    # A file for tests is named like that for training, with one word exchanged.
    test = Path(path).with_name(Path(path).name.replace("train", "test")) if path else Path()
    return (
        f"{kind}:{test}{mark}{query}"
        if path and str(test) != path and test.exists()
        else "OTHER-DATA"
    )


def _train(call: Call) -> Agent:
    """Train an agent, and write its file."""
    request = call.request
    out = call.file()

    def tell(stage: str, figures: Mapping[str, Any]) -> None:
        """Report the numbers among the figures of a stage of the training."""
        values = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        call.progress.note(
            f"{stage}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        )

    check_safetensors_name(out, "a policy")
    eps = parse_budget(request.eps)
    # A training of so many steps ends by them: the time must not end it before.
    seconds = 60 * request.minutes if request.steps is None else 1e9
    name, _, options = plugins.parse(request.attack)
    papers = options.pop("policy", DEFAULT) == PAPERS
    config = replace(CONFIG, seconds=seconds, steps=request.steps, seed=request.seed, papers=papers)
    if name != "rlab":
        raise RequestError(
            f"attack {request.attack!r} learns nothing: agents are trained for "
            "rlab, with its options"
        )
    attack = plugins.build("attack", name, {"steps": EPISODE_STEPS} | options)
    if request.steps is None:
        call.progress.note(
            f"{option('minutes')} is for the training of the network alone; "
            "the surrogates and probes before it, and the choice and validation after it, take "
            f"time that grows with {option('samples')}"
        )
    plan: Plan = open_plan(call, truth=True, usual_samples=SAMPLES, usual_method="first")
    dataset, device = plan.dataset, plan.device
    (model,) = plan.models.values()
    ids = plan.ids.tolist()
    if dataset.info.truth is None and request.criterion is not None:
        raise RequestError(
            f"{option('criterion')} is for masks and boxes, and {dataset.name} "
            "has one class for each input: leave it out"
        )

    domain = dataset.domain.free
    attack.check(domain)
    if model.access < Access.SCORES:
        raise RequestError(
            "the model answers labels only, and an agent learns from scores: "
            "train it on a model that gives them"
        )
    with model.info.session(device):
        rules = Rules(steps=attack.steps, removals=attack.removals)
        placement = Placement(
            grid=attack.grid(domain),
            variants=attack.variants(domain),
            rules=rules,
            learned=attack.learned,
        )
        model, task, ids, first_looks = _open_model(
            request, dataset, model, ids, device, call.progress.note
        )

        # The agent learns on inputs that the model gets right: others need no distortion.
        x = dataset.load(ids).to(device)
        y = torch.as_tensor(dataset.labels()[ids], device=device).long()
        criterion = MISCLASSIFIED if task is None else task.criterion(ids)
        right = _not_met(
            model,
            Batch(ids=torch.arange(len(x), device=device), x=x, y=y),
            criterion,
            request.batch_size,
        )
        positions = np.asarray(ids)[right.cpu().numpy()]  # in the data
        batch = Batch(ids=torch.arange(int(right.sum()), device=device), x=x[right], y=y[right])
        budgets = torch.full((len(batch),), eps, device=device)
        distance = plugins.build("distance", request.norm)
        threat = Threat(
            distance=distance, eps=budgets, domain=dataset.domain, criterion=criterion.select(right)
        )

        digests = {"data_digest": dataset.digest(), "model_digest": model_facts(model)["digest"]}
        # Distortions are tried on a few inputs: what they cannot do shows before the training.
        trial = batch.ids[:TRIAL_SAMPLES]
        for line in attack.try_on(
            dataset.domain.part(batch.x[trial]), replace(threat.select(trial), domain=domain)
        ):
            call.progress.note(line)
        # Surrogates learn classes, which masks and boxes have not, and the papers' agent has none.
        trains_surrogates = request.surrogates and not papers and task is None
        candidates = []
        if trains_surrogates and len(positions) >= FEWEST:
            for surrogate in _surrogates(request, dataset, positions, model.classes, eps, device):
                names = ("width", "kernel", "steps", "accuracy")
                tell("surrogate", {name: surrogate.facts[name] for name in names})
                candidates.append(surrogate)
        peers = {"Square": plugins.build("attack", "square", {"steps": attack.steps})}
        settings: dict[str, Any] = {
            "batch_size": request.batch_size,
            "tell": tell,
            "candidates": candidates,
            "peers": peers,
        }
        agent = train(model, batch, threat, placement, config, **settings)

    record = {
        **(agent.about or {}),
        **digests,
        "brinell": VERSION,
        "request": request.model_dump(mode="json"),
    }
    # First looks were first, and are first in the record.
    record["training_queries"] = {"first_looks": first_looks} | record["training_queries"]
    record[trust.MARK] = trust.make_mark(out, trust.request_text(record))
    agent = replace(agent, about=record)
    write_atomically(out, agent.save)
    return agent


def _not_met(model: Model, batch: Batch, criterion: Criterion, batch_size: int) -> Tensor:
    """(n,) bool: which inputs do not meet a criterion yet; one query each."""
    eot, flags = EOT(model), []
    with torch.no_grad():
        for rows in torch.split(torch.arange(len(batch), device=batch.x.device), batch_size):
            logits, part, y = eot.mean(batch.x[rows]), criterion.select(rows), batch.y[rows]
            flags.append(~part.is_met(part.margin(logits, y, batch.x[rows]), logits, y))
    return torch.cat(flags)


def _open_model(
    request: TrainAgentRequest,
    dataset: Dataset,
    model: Model,
    ids: list[int],
    device: torch.device,
    note: Callable[[str], None],
) -> tuple[Model, Task | None, list[int], int]:
    """The model as the agent asks it, its task for masks or boxes, the samples that can be learned
    on, and the queries that the first looks at them cost.
    """
    if dataset.info.truth is not None:
        task, ids = _open_subject(request, dataset, model, ids, device, note)
        # To open the task costs one look at a picture, before the first look at each.
        return task.model, task, ids, len(ids) + 1
    counted: dict[str, Any] = {}
    model = with_logits(model, dataset, counted)
    probes = counted.get("probes", {}).values()
    return model, None, ids, len(ids) + sum(probe["forwards"] for probe in probes)


def _open_subject(
    request: TrainAgentRequest,
    dataset: Dataset,
    model: Model,
    ids: list[int],
    device: torch.device,
    note: Callable[[str], None],
) -> tuple[Task, list[int]]:
    """The model of maps or boxes with its criterion, and the samples on which this can be met; says
    what is left out.
    """
    task = open_task(dataset, model, request.criterion, ids[:1], device)
    hopeless = task.hopeless(ids)
    ids = [sample for sample in ids if sample not in hopeless]
    if not ids:
        raise RequestError(
            f"no picture has what {task.text} counts: choose another "
            f"{option('criterion')} or other data"
        )
    if hopeless:
        note(
            f"pictures left out: {len(hopeless)}, of which the first has nothing "
            f"that {task.text} counts"
        )
    if request.surrogates:
        note(
            "surrogates are left out: they learn the class of an input, and "
            f"{dataset.name} has none"
        )
    return task, ids


def _surrogates(
    request: TrainAgentRequest,
    dataset: Dataset,
    positions: Array,
    classes: int,
    eps: float,
    device: torch.device,
) -> Iterator[Candidate]:
    """Train surrogates on all data but the inputs by which they are chosen and validated."""
    # What chooses surrogates comes before what validates, so both are all that follows its start.
    reserve = positions[set_aside(len(positions)).start :]
    training = np.setdiff1d(np.arange(len(dataset)), reserve)
    unreadable = unreadable_samples(dataset, training.tolist())

    yield from train_surrogates(
        dataset,
        np.array(
            [position for position in training.tolist() if position not in unreadable],
            dtype=np.int64,
        ),
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
