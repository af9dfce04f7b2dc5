"""A training run of an RLAB agent: from a request to a policy file, which is written anew at every report."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from brinell import plugins
from brinell.auditing.plan import choose_device, gaps, open_data, opener_of
from brinell.core.batch import Batch
from brinell.core.errors import RequestError
from brinell.core.filtering import variants
from brinell.core.target import Access
from brinell.core.threat import Threat
from brinell.rl.agent import Agent
from brinell.rl.rules import Rules
from brinell.rl.school import Lessons, Report, correct, teach


@dataclass(frozen=True, kw_only=True)
class Coaching:
    """What is to be learned, on what."""

    data: str = "digits?split=train"
    """Inputs to learn on; those that the agent is judged on should not be among them."""
    model: str = "digits-cnn"
    """The model whose scores are seen."""
    attack: str = "rlab"
    """The attack that the agent is for, with its filters and patches: rlab?filters=gaussian-noise+fog&patch=4."""
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


def coach(coaching: Coaching, out: Path, tell: Callable[[Report], None]) -> Agent:
    """Train, and write the policy to `out`.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    name, _, options = plugins.parse(coaching.attack)
    if name != "rlab":
        raise RequestError(f"attack {coaching.attack!r} learns nothing: agents are trained for rlab, with its options")
    attack = plugins.build("attack", name, options)
    if attack.access > Access.SCORES:
        raise RequestError("an agent learns from scores alone: leave out filters that look into the model, as gradient-sign does")
    device, dataset = choose_device(coaching.device), open_data(coaching.data)
    domain = dataset.domain.free
    attack.check(domain)
    target = opener_of(coaching.model, dataset)()
    if target.access < Access.SCORES:
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
    placed = variants(attack.filters, domain, attack.severities, attack.draws)
    right = correct(target, x, y, coaching.batch_size)
    batch = Batch(ids=torch.arange(int(right.sum()), device=device), x=x[right], y=y[right])
    distance = plugins.build("distance", coaching.norm, {})
    threat = Threat(distance=distance, eps=torch.full((len(batch),), coaching.eps, device=device), domain=dataset.domain)

    def keep(agent: Agent) -> Agent:
        return _save(agent, out, coaching, first_looks=len(ids))

    return keep(
        teach(target, batch, threat, grid, placed, coaching.lessons, rules, batch_size=coaching.batch_size, tell=tell, keep=keep)
    )


def _save(agent: Agent, out: Path, coaching: Coaching, *, first_looks: int) -> Agent:
    """Write the policy whole, a file beside it taking its place, with all that says how it was made."""
    about: dict[str, Any] = dict(agent.about or {})
    about |= {name: getattr(coaching, name) for name in ("data", "model", "attack", "norm", "eps", "samples", "reward", "steps")}
    about["training_queries"] = {"first_looks": first_looks} | about.get("training_queries", {})
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(out.name + ".part")
    noted = Agent(prior=agent.prior, network=agent.network, about=about)
    noted.save(beside)
    os.replace(beside, out)
    return noted


__all__ = ["Coaching", "coach"]
