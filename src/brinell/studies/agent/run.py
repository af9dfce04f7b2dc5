"""A training run of an RLAB agent: from a request to a policy file, which is written anew at every report."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.analysis.folder_result import Result
from brinell.core.contracts import Dataset
from brinell.core.criterion import MISCLASSIFIED
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.threat import Threat
from brinell.core.version import VERSION
from brinell.engine.answers import with_logits
from brinell.engine.class_counts import check_output
from brinell.engine.dense_outputs import DenseSubject, check_criterion, open_subject
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import choose_device, model_facts, model_opener, unreadable_samples
from brinell.engine.request import count_samples
from brinell.engine.sources import open_data
from brinell.rlab.agent import Agent, load
from brinell.rlab.env import Placement
from brinell.rlab.rules import Rules
from brinell.rlab.selection import set_aside
from brinell.rlab.train import DUELING_DQN, FEWEST, Candidate, Learner, Report, TrainConfig, not_met, train
from brinell.rlab.validation import verdict, warning
from brinell.store.files import check_safetensors_name, write_atomically
from brinell.studies.agent.request import TrainAgentRequest
from brinell.studies.kit import Call
from brinell.training.surrogates import TrainedSurrogate, train_surrogates


class AgentValidation(Result):
    """Performance of an agent on held-out inputs. An input that it did not fool counts with its full query budget."""

    inputs: int
    """How many."""
    budget: int
    """Queries of one input at most."""
    queries: dict[str, float]
    """Mean queries of an input: of the policy, of greedy, of the default where it is another, and of the policy's own prior."""
    ratios: dict[str, tuple[float, float | None, float | None]]
    """Mean queries of the policy over those of each other, with the ends of the 95 % bootstrap interval over inputs; null with
    fewer than 30 inputs."""
    verdict: str
    """The same in a sentence."""
    warning: str | None
    """What to do where the policy needs more queries than greedy; null where it does not."""


class AgentSurrogate(Result):
    """A small network that was trained on the data."""

    width: int
    """Channels of its first convolution, or units of each layer for vectors."""
    kernel: int
    """Side of its convolutions; 1 for vectors."""
    accuracy: float | None
    """Accuracy on inputs that it did not learn on."""
    correlation: float
    """Mean correlation, over inputs set aside, of the model's answers to probes with those that its gradient lets expect."""
    low: float
    """The lower end of the 95 % interval of that."""
    kept: bool
    """True if that is above 0, so that the file keeps the network."""


class AgentResult(Result):
    """What `brinell train-agent --json` prints."""

    policy: str
    """The policy file."""
    inputs: int
    """Inputs that it learned on."""
    training_queries: dict[str, int]
    """Forward evaluations by what they were for: first looks, selection of surrogates, probes, steps and validation."""
    surrogates: list[AgentSurrogate]
    """The small networks that were trained on the data."""
    surrogate_passes: dict[str, int]
    """Passes of surrogates by what they were for, each a forward and a backward of one of them; they are no queries."""
    validation: AgentValidation | None
    """Performance on held-out inputs; null if there were none."""
    command: str
    """A command that audits with the policy, its distortions and patches included."""


def lines(result: AgentResult) -> Iterator[str]:
    """The result as a terminal shows it."""
    yield f"{result.inputs} inputs, {sum(result.training_queries.values()):,} training queries"
    if result.surrogates:
        networks = [
            f"width {one.width}, correlation {one.correlation:.2f}{'' if one.kept else ' (left out)'}"
            for one in result.surrogates
        ]
        count = sum(network.kept for network in result.surrogates)
        yield (
            f"surrogates: {count} of {len(networks)} networks explain the model's answers: {'; '.join(networks)}; "
            f"{sum(result.surrogate_passes.values()):,} passes, which are no queries"
        )
    if result.validation:
        yield result.validation.verdict
        if result.validation.warning:
            yield f"warning: {result.validation.warning}"
    yield f"policy: {result.policy}"
    yield f"use it: {result.command}"


def carry_out(call: Call) -> AgentResult:
    """Train the agent that a call asks for.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    agent = _train(call)
    about = agent.about or {}
    validation = about["validation"]
    return AgentResult(
        policy=str(call.out),
        inputs=about["inputs"],
        training_queries=about["training_queries"],
        surrogates=[
            AgentSurrogate(**{name: facts[name] for name in AgentSurrogate.model_fields}) for facts in about["surrogates"]
        ],
        surrogate_passes=about["surrogate_passes"],
        command=_audit_command(call),
        validation=validation and AgentValidation(verdict=verdict(about), warning=warning(about) or None, **validation),
    )


def _audit_command(call: Call) -> str:
    """A command that audits with the policy; where the data has a split for tests, on that."""
    request = call.request
    words = [] if call.dataset() is not None else ["--data", test_split(request.data)]
    words += [] if call.model() is not None else ["--model", request.model]
    words += ["--norm", request.norm, "--eps", request.eps, "--attack", spec_with(request.attack, policy=str(call.file()))]
    return shlex.join(["brinell", "audit", *words])


def test_split(spec: str) -> str:
    """The spec of the data without `split=train`; unchanged where it does not name that split."""
    body, mark, query = spec.partition("?")
    pairs = [pair for pair in query.split("&") if mark and pair != "split=train"]
    return f"{body}?{'&'.join(pairs)}" if pairs else body


def spec_with(spec: str, **options: str) -> str:
    """A spec with these options in place of those of the same names."""
    body, mark, query = spec.partition("?")
    pairs = [pair for pair in query.split("&") if mark and pair.partition("=")[0] not in options]
    return f"{body}?{'&'.join([*pairs, *(f'{name}={value}' for name, value in options.items())])}"


def _train(call: Call, trained: Agent | None = None) -> Agent:
    def tell(report: Report) -> None:
        """Print the figures of a training report."""
        values = {name: value for name, value in report.values.items() if isinstance(value, int | float)}
        call.progress.note(f"{report.stage}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))

    settings: dict[str, Any] = {"dataset": call.dataset(), "model": call.model(), "resume": call.resume, "trained": trained}
    settings["note"] = call.progress.note
    return train_agent(call.request, call.file(), tell, **settings)


def repeat(call: Call, file: Path) -> None:
    """Validate the policy of a file again, and write it as a training would."""
    _train(call, trained=load(file))


def read_manifest(file: Path) -> dict[str, Any]:
    """The manifest of a policy file: its training, and the request that repeats it."""
    about = load(file).about or {}
    config = about.get("config") or {}
    values = {
        name: about.get(name) for name in ("data", "model", "attack", "norm", "criterion", "samples", "reward", "surrogate_steps")
    }
    values |= {name: config.get(name) for name in ("slots", "seed", "probes", "fits")}
    values |= {"eps": repr(about.get("eps")), "episode_steps": about.get("steps"), "surrogates": about.get("surrogate_count")}
    return {**about, "request": {name: value for name, value in values.items() if value is not None}}


def train_agent(
    request: TrainAgentRequest,
    out: Path,
    tell: Callable[[Report], None],
    *,
    dataset: Dataset | None = None,
    model: Model | None = None,
    resume: bool = False,
    learner: Learner = DUELING_DQN,
    trained: Agent | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Agent:
    """Train by `learner`, and write the policy to `out`; with `resume` go on with the policy that is there, if there is one.

    Args:
        request: what is asked for.
        out: the file.
        tell: told at each report.
        dataset: data already in memory, in place of `request.data`.
        model: a model already in memory, in place of `request.model`.
        resume: whether to go on with the policy that is there.
        learner: the learning algorithm.
        trained: an agent that such a training left, which is validated again and not trained; None to train one.
        note: told what is left out, in sentences.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    check_safetensors_name(out, "a policy")
    eps, config = _budget(request.eps), _config(request)
    name, _, options = plugins.parse(request.attack)
    if name != "rlab":
        raise RequestError(f"attack {request.attack!r} learns nothing: agents are trained for rlab, with its options")
    attack = plugins.build("attack", name, options)
    if attack.access > Access.SCORES:
        raise RequestError(
            "an agent learns from scores alone: leave out distortions that look into the model, as gradient-sign does"
        )
    device = choose_device(request.device)
    dataset = open_data(request.data, truth=True) if dataset is None else dataset
    _check_criterion(request, dataset)
    domain = dataset.domain.free
    attack.check(domain)
    model = model_opener(request.model, dataset)() if model is None else model
    if model.access < Access.SCORES:
        raise RequestError("the model answers labels only, and an agent learns from scores: train it on a model that gives them")
    check_output(model, dataset)
    with model.info.session(device):
        rules = Rules(steps=request.episode_steps, removals=attack.removals, reward=request.reward)
        first = count_samples(request.samples, len(dataset))
        unreadable = unreadable_samples(dataset, range(first))
        ids = [sample for sample in range(first) if sample not in unreadable]
        placement = Placement(grid=attack.grid(domain), variants=attack.variants(domain), rules=rules)
        start = _load_start(out, request) if resume and out.exists() else None
        if trained is not None:
            start, config = _without_validation(trained), replace(config, algorithm="none")
        counted: dict[str, Any] = {}
        subject: DenseSubject | None = None
        if dataset.info.truth is None:
            model = with_logits(model, dataset, counted)
            first_looks = len(ids) + sum(probe["forwards"] for probe in counted.get("probes", {}).values())
        else:
            subject, ids = _open_subject(request, dataset, model, ids, device, note)
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
                candidates.append(Candidate(surrogate.network, surrogate.facts))
        keep = partial(_save, out=out, request=request, first_looks=first_looks, digests=digests)
        options_of_training: dict[str, Any] = {
            "batch_size": request.batch_size,
            "tell": tell,
            "keep": keep,
            "start": start,
            "learner": learner,
            "candidates": candidates,
            "peers": {"Square": plugins.build("attack", "square", {"steps": request.episode_steps})},
        }
        return keep(train(model, batch, threat, placement, config, **options_of_training))


def _check_criterion(request: TrainAgentRequest, dataset: Dataset) -> None:
    """Refuse a criterion that is unknown, or one for data with a class for each input."""
    if dataset.info.truth is not None:
        check_criterion(request.criterion, dataset)
    elif request.criterion is not None:
        raise RequestError(
            f"{option('criterion')} is for masks and boxes, and {dataset.name} has one class for each input: leave it out"
        )


def _open_subject(
    request: TrainAgentRequest,
    dataset: Dataset,
    model: Model,
    ids: list[int],
    device: torch.device,
    note: Callable[[str], None],
) -> tuple[DenseSubject, list[int]]:
    """The model of maps or boxes with its criterion, and the samples on which this can be met; says what is left out."""
    subject = open_subject(dataset, model, request.criterion, ids[:1], device)
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
) -> Iterator[TrainedSurrogate]:
    """Train surrogates on all data but the inputs by which they are chosen and validated."""
    reserve = positions[set_aside(len(positions)).start :]
    rest = np.setdiff1d(np.arange(len(dataset)), reserve)
    unreadable = unreadable_samples(dataset, rest.tolist())
    yield from train_surrogates(
        dataset,
        np.array([position for position in rest.tolist() if position not in unreadable], dtype=np.int64),
        reserve,
        classes,
        count=request.surrogates,
        steps=request.surrogate_steps,
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


def _config(request: TrainAgentRequest) -> TrainConfig:
    """Settings of the training."""
    return TrainConfig(seconds=60 * request.minutes if request.steps is None else 1e9, **request.settings(TrainConfig))


def _load_start(out: Path, request: TrainAgentRequest) -> Agent:
    """The policy that a training of the same settings left."""
    agent = load(out)
    about, current = agent.about or {}, _settings(request)
    was = {name: about.get(name) for name in current} | {"config": _without_duration(about.get("config", {}))}
    current |= {"config": _without_duration(asdict(_config(request)))}
    if changed := [f"{name} was {was[name]!r} and is {current[name]!r}" for name in current if was[name] != current[name]]:
        raise RequestError(
            f"{out} learned something else ({'; '.join(changed)}): choose another {option('out')}, or leave out "
            f"{option('resume')}"
        )
    return agent


def _settings(request: TrainAgentRequest) -> dict[str, Any]:
    """Settings that identify a training, without its duration and its learning algorithm."""
    names = ("data", "model", "attack", "norm", "criterion", "eps", "samples", "reward", "steps", "surrogate_steps")
    settings = {name: getattr(request, name) for name in names} | {"surrogate_count": request.surrogates}
    return settings | {"eps": _budget(request.eps), "steps": request.episode_steps}


def _without_validation(agent: Agent) -> Agent:
    """An agent without the figures of its validation, so that they are measured again."""
    return replace(agent, about={key: value for key, value in (agent.about or {}).items() if key != "validation"})


def _without_duration(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a training but for how long it lasts."""
    return {name: value for name, value in config.items() if name not in ("seconds", "steps")}


def _save(agent: Agent, out: Path, request: TrainAgentRequest, *, first_looks: int, digests: Mapping[str, str]) -> Agent:
    """Write the policy with all that says how it was made."""
    about: dict[str, Any] = (agent.about or {}) | _settings(request) | dict(digests)
    about["brinell"] = VERSION
    about["training_queries"] = {"first_looks": first_looks} | about.get("training_queries", {})
    noted = replace(agent, about=about)
    write_atomically(out, noted.save)
    return noted
