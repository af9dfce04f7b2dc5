"""The dueling double DQN on an attack whose shortest way is known: one query after the clean input."""

import pytest
import torch

from _helpers import batch_of, threat_of
from _placing import Lift, linear
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab.agent import Agent, find_agent
from brinell.rlab.distort import variants
from brinell.rlab.dqn import DQN, DQNSettings
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.policy import PatchNetwork
from brinell.rlab.prior import Prior
from brinell.rlab.search import PatchSearch
from brinell.rlab.train import ADVANTAGE

DOMAIN, GRID, SLOTS = Domain(kind="signal", shape=(1, 32)), PatchGrid((1, 32), (2,)), 24
VARIANTS = variants([Lift()], DOMAIN, (5,), 1)
SETTINGS = DQNSettings(
    epsilon_start=0.2,
    warm_up=240,
    updates=4,
    batch_size=32,
    gamma=0.9,
    learning_rate=3e-3,
    target_every=50,
    epsilon_steps=2000,
)


def world(*, minimal, cycle):
    """A model that the two patches at the ends of 16 decide: raising either of them is enough, and
    nothing else does anything.
    """
    weight = torch.zeros(32)
    weight[[0, 1, 30, 31]] = 1.0
    x = 0.5 + 0.02 * torch.randn(SLOTS, 1, 32, generator=torch.Generator().manual_seed(0))
    model, batch = linear(weight, -2.6, DOMAIN), batch_of(x, torch.zeros(SLOTS, dtype=torch.int64))
    threat, rules = (
        threat_of(torch.inf, "l2", DOMAIN, n=SLOTS),
        Rules(steps=16, p_init=1 / 16, candidates=1),
    )
    ledger = Ledger(model, batch, threat, access=Access.SCORES, minimal=minimal)
    rng = Streams.of(int(cycle), batch.ids)
    placement = Placement(grid=GRID, variants=VARIANTS, rules=rules, slots=SLOTS)
    return PatchSearch(ledger.oracle(), batch, threat, placement, rng, cycle=cycle)


def queries(agent):
    """The mean number of queries after the clean input."""
    env = world(minimal=False, cycle=False)
    policy, observation = agent.policy(env.choices), env.reset(torch.ones(SLOTS, dtype=torch.bool))
    while env.alive.any():
        observation = env.step(policy.act(observation, env.streams)).observation
    return float(torch.where(env.outcomes.success, env.outcomes.steps, 16).double().mean())


@pytest.mark.slow
def test_the_shortest_way_is_learned():
    network = PatchNetwork(1, width=16, scale=ADVANTAGE)
    before = queries(Agent(prior=Prior(1), network=network))
    assert before == pytest.approx(queries(find_agent("greedy")), abs=2) and before > 4, (
        "two of 16 patches, at random"
    )
    for _ in DQN(SETTINGS, network, world(minimal=True, cycle=True), 0).learn(steps=1600):
        pass
    assert queries(Agent(prior=Prior(1), network=network)) < 1.7
