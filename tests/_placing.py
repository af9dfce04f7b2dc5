"""Small worlds for the agent: linear targets over patches, a distortion that adds a constant, and
environments over them.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from _helpers import Recorder, batch_of, threat_of
from brinell.core.criterion import MISCLASSIFIED
from brinell.core.domain import KINDS, Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.norms import per_sample
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab.distort import variants
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.search import PatchSearch

SIGNAL = Domain(kind="signal", shape=(1, 16))
GRID = PatchGrid((1, 16), (2,))


@dataclass(frozen=True, kw_only=True)
class Plus:
    """Adds a sixteenth for each severity, so that sums come out exactly."""

    domains: ClassVar[frozenset[str]] = frozenset(KINDS)

    def draws(self, shape):
        return 1

    def __call__(self, x, severity, rng, draw):
        return (x + per_sample(severity, x) / 16).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class Lift(Plus):
    """Adds a tenth of the range for each severity."""

    def __call__(self, x, severity, rng, draw):
        return (x + 0.1 * per_sample(severity, x)).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class Minus(Plus):
    """Takes as much away."""

    def __call__(self, x, severity, rng, draw):
        return (x - per_sample(severity, x) / 16).clamp(0, 1)


def linear(weight, bias, domain=SIGNAL):
    """Class 1 where <weight, x> + bias > 0; the lead of class 1 is exactly that."""
    weight = torch.as_tensor(weight, dtype=torch.float32).flatten()

    def logits(x):
        z = (x.flatten(1) @ weight + bias) / 2
        return torch.stack([-z, z], 1)

    return Recorder(logits, domain)


@dataclass
class World:
    """A batch, its ledger and an environment over it."""

    model: Recorder
    ledger: Ledger
    env: PatchSearch


def make_world(
    model,
    x,
    y=0,
    *,
    eps=torch.inf,
    norm="l2",
    grid=GRID,
    distortions=(Plus(),),
    severities=(2,),
    draws=1,
    rules=None,
    slots=64,
    queries=None,
    batch_size=1024,
    seed=0,
    prior=None,
    criterion=MISCLASSIFIED,
):
    x = torch.as_tensor(x, dtype=torch.float32)
    batch = batch_of(x, torch.as_tensor(y).expand(len(x)))
    threat = replace(threat_of(eps, norm, model.domain, n=len(x)), criterion=criterion)
    ledger = Ledger(
        model, batch, threat, access=Access.SCORES, queries=queries, batch_size=batch_size
    )
    alternatives = variants(distortions, model.domain, severities, draws)
    rng = Streams.of(seed, batch.ids).fold("test")
    placement = Placement(
        grid=grid, variants=alternatives, rules=rules or Rules(), slots=slots, prior=prior
    )
    env = PatchSearch(ledger.oracle(), batch, threat, placement, rng)
    return World(model, ledger, env)


def act(env, add=(), remove=(), family=0):
    """The same dual action for every slot, filled up with nothing."""
    n = len(env.alive)
    rows = [
        list(choices) + [-1] * (width - len(choices))
        for choices, width in zip((add, remove, (family,)), env.choices, strict=True)
    ]
    return tuple(torch.tensor([row] * n) for row in rows)


GRAY = torch.full((1, 1, 16), 0.5)
ALL = Rules(p_init=1.0, steps=20, candidates=1)
"""All eight patches may change at first."""
SLOW = Rules(p_init=1.0, steps=100_000, candidates=1)
"""And for long."""


def start_world(*args, **settings):
    """A world whose episodes have seen their clean inputs."""
    world = make_world(*args, **settings)
    world.env.reset(torch.ones(len(world.env.alive), dtype=torch.bool))
    world.env.step(act(world.env))
    return world
