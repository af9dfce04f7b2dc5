"""A training run of an RLAB agent: from a request to a policy file, which is written anew at every report."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from brinell import plugins
from brinell.core.batch import Batch
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.core.threat import Threat
from brinell.engine.plan import choose_device, gaps, open_data, opener_of
from brinell.rlab.agent import Agent, load
from brinell.rlab.rules import Rules
from brinell.rlab.train import Lessons, Report, correct, teach
from brinell.rlab.variants import variants


@dataclass(frozen=True, kw_only=True)
class Coaching:
    """What is to be learned, on what."""

    data: str = "digits?split=train"
    """Inputs to learn on; those that the agent is judged on should not be among them."""
    model: str = "digits-cnn"
    """The model whose scores are seen."""
    attack: str = "rlab"
    """The attack that the agent is for, with its distortions and patches: rlab?distortions=gaussian-noise+fog&patch=4."""
    norm: str = "l2"
    """Distance of the episodes."""
    eps: float = 1.0
    """Budget of the episodes."""
    samples: int = 1000
    """Inputs at most, from the first; those that the model gets wrong are left out."""
    lessons: Lessons = Lessons()
    """How."""
    reward: str = "margin"
    """What a step pays: margin, dilution or projected."""
    steps: int = 300
    """Queries until an episode is given up."""
    batch_size: int = 128
    """The most inputs shown to the model at once."""
    device: str = "auto"
    """cpu, cuda, or auto."""


def coach(coaching: Coaching, out: Path, tell: Callable[[Report], None], *, resume: bool = False) -> Agent:
    """Train, and write the policy to `out`; with `resume` go on with the policy that is there, if there is one.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    name, _, options = plugins.parse(coaching.attack)
    if name != "rlab":
        raise RequestError(f"attack {coaching.attack!r} learns nothing: agents are trained for rlab, with its options")
    attack = plugins.build("attack", name, options)
    if attack.access > Access.SCORES:
        raise RequestError(
            "an agent learns from scores alone: leave out distortions that look into the model, as gradient-sign does"
        )
    device, dataset = choose_device(coaching.device), open_data(coaching.data)
    domain = dataset.domain.free
    attack.check(domain)
    model = opener_of(coaching.model, dataset)()
    if model.access < Access.SCORES:
        raise RequestError("the model answers labels only, and an agent learns from scores: train it on a model that gives them")
    if not coaching.eps > 0:
        raise RequestError(f"eps is {coaching.eps}: episodes need a budget above 0")
    try:
        rules = Rules(steps=coaching.steps, removals=attack.removals, reward=coaching.reward)  # type: ignore[arg-type]
    except ValueError as error:
        raise RequestError(str(error)) from None
    first = min(coaching.samples, len(dataset))
    lost = gaps(dataset, first)
    ids = [sample for sample in range(first) if sample not in lost]
    x, y = dataset.load(ids).to(device), torch.as_tensor(dataset.labels()[ids], device=device).long()
    grid = attack.grid(domain)
    placed = variants(attack.distortions, domain, attack.severities, attack.draws)
    begun = _begun(out, coaching) if resume and out.exists() else None
    first_looks = len(ids) + (begun.about or {}).get("training_queries", {}).get("first_looks", 0) if begun else len(ids)
    right = correct(model, x, y, coaching.batch_size)
    batch = Batch(ids=torch.arange(int(right.sum()), device=device), x=x[right], y=y[right])
    distance = plugins.build("distance", coaching.norm, {})
    threat = Threat(distance=distance, eps=torch.full((len(batch),), coaching.eps, device=device), domain=dataset.domain)

    def keep(agent: Agent) -> Agent:
        return _save(agent, out, coaching, first_looks=first_looks)

    lessons, size = coaching.lessons, coaching.batch_size
    return keep(teach(model, batch, threat, grid, placed, lessons, rules, batch_size=size, tell=tell, keep=keep, begun=begun))


def _begun(out: Path, coaching: Coaching) -> Agent:
    """The policy that a training of the same settings left.

    Raises:
        RequestError: it is none, or it learned something else.
    """
    agent = load(out)
    about, now = agent.about or {}, _settings(coaching)
    was = {name: about.get(name) for name in now} | {"lessons": _kept(about.get("lessons", {}))}
    now |= {"lessons": _kept(asdict(coaching.lessons))}
    if changed := [f"{name} was {was[name]!r} and is {now[name]!r}" for name in now if was[name] != now[name]]:
        raise RequestError(f"{out} learned something else ({'; '.join(changed)}): choose another --out, or leave out --resume")
    return agent


def _settings(coaching: Coaching) -> dict[str, Any]:
    """What makes a training this one and no other, its lessons aside."""
    return {name: getattr(coaching, name) for name in ("data", "model", "attack", "norm", "eps", "samples", "reward", "steps")}


def _kept(lessons: dict[str, Any]) -> dict[str, Any]:
    """The lessons but for how long they last."""
    return {name: value for name, value in lessons.items() if name not in ("seconds", "steps")}


def _save(agent: Agent, out: Path, coaching: Coaching, *, first_looks: int) -> Agent:
    """Write the policy whole, a file beside it taking its place, with all that says how it was made."""
    about: dict[str, Any] = dict(agent.about or {})
    about |= _settings(coaching)
    about["training_queries"] = {"first_looks": first_looks} | about.get("training_queries", {})
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(out.name + ".part")
    noted = Agent(prior=agent.prior, network=agent.network, about=about)
    noted.save(beside)
    os.replace(beside, out)
    return noted


__all__ = ["Coaching", "coach"]
