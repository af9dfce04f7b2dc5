"""What is counted on the way, by hand, and that each sign is seen where it was planted and not where it was not."""

import torch

from _helpers import batch_of, threat_of
from _placing import GRID, SIGNAL, Minus, Plus, act, linear, make_world
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.distortions.signed_patch import SignedPatch
from brinell.rlab.cache import CLEAN
from brinell.rlab.env import PatchEnv, Placement
from brinell.rlab.outcomes import breadth, monitors, no_outcomes
from brinell.rlab.policies import Greedy
from brinell.rlab.rules import Rules
from brinell.rlab.variants import variants

GRAY = torch.full((1, 1, 16), 0.5)


def signs(outcomes, budget=None):
    budget = torch.full_like(outcomes.eps, torch.inf) if budget is None else budget
    return {monitor.code for monitor in monitors(outcomes, budget)}


def empty_outcomes(n=1):
    return no_outcomes(torch.full((n,), torch.inf), GRID, distortions=1)


def test_what_is_counted_by_hand():
    weight = torch.tensor([4.0, 2, 1, 1, 1, 1, 1, -1]).repeat_interleave(2)
    world = make_world(linear(weight, -30.0), GRAY, rules=Rules(p_init=1.0, steps=4), distortions=(Plus(), Minus()))
    env = world.env
    env.reset(torch.ones(1, dtype=torch.bool))
    env.step(act(env))
    env.step(act(env, add=[0, 1], family=1))  # kept: two given
    env.step(act(env, add=[0], family=2))  # worse: undone
    env.posterior.mean[0, 0, :2] = -9  # the model is led to believe that patch 0 harms, and that clearing it helps
    env._margin[0] = -40
    env.step(act(env, remove=[0], add=[3], family=1))  # kept, since the height was lied about: one given, one taken
    env.step(act(env, add=[7], family=1))
    assert not env.alive.any()
    outcomes = env.outcomes
    assert outcomes.visits.tolist() == [[3, 1, 0, 1, 0, 0, 0, 1]]
    assert (outcomes.given.item(), outcomes.taken.item()) == (3, 1)
    assert (env.assignment.variant != CLEAN).nonzero()[:, 1].tolist() == [1, 3]
    assert abs(outcomes.size.item() - (4 * (2 / 16) ** 2) ** 0.5) < 1e-6, "what was kept, not what was tried last"


def test_breadth_by_hand():
    visits = torch.zeros(3, 8, dtype=torch.int32)
    visits[0] = 1  # eight choices, all different: chance reaches 8 (1 - (7/8)**8) = 5.25
    visits[1, 0] = 1000
    visits[2, :4] = 250
    assert torch.allclose(breadth(visits), torch.tensor([8 / 5.2511, 1 / 8, 4 / 8]), atol=1e-3)


def test_the_same_patches_again():
    outcomes = empty_outcomes(3)
    outcomes.visits[:, :2] = 40
    assert signs(outcomes) == {"same-patches"}
    outcomes.visits[:2] = 5
    assert not signs(outcomes), "most samples were looked at widely"


def test_adding_and_removing_cancel():
    outcomes = empty_outcomes(2)
    outcomes.given[:], outcomes.taken[:] = 50, 45
    assert signs(outcomes) == {"cancelling"}
    outcomes.taken[:] = 30
    assert not signs(outcomes)


def test_distance_without_success():
    outcomes, budget = empty_outcomes(40), torch.ones(40)
    outcomes.size[:] = 0.98
    assert signs(outcomes, budget) == {"distance-without-success"}
    assert not signs(outcomes), "without a budget none is full"
    outcomes.success[:20] = True
    assert not signs(outcomes, budget)
    outcomes.success[:], outcomes.size[:] = False, 0.3
    assert not signs(outcomes, budget), "there is room left"
    small_outcomes = empty_outcomes(3)
    small_outcomes.size[:] = 1
    assert not signs(small_outcomes, torch.ones(3)), "three samples raise no alarm"


def test_little_says_nothing():
    assert not signs(empty_outcomes(), torch.ones(1)) and not signs(empty_outcomes(0))


class Stubborn:
    """Changes the first patch, whatever is seen."""

    def __init__(self, choices):
        self.choices = choices

    def act(self, observation, rng):
        n = len(observation.allowed[0])
        add = torch.full((n, self.choices[0]), -1)
        add[:, 0] = 0
        return add, torch.full((n, self.choices[1]), -1), torch.zeros(n, 1, dtype=torch.int64)


def test_played_by_a_policy_that_is_broken_and_one_that_is_not():
    """A margin that the budget cannot reach: greedy looks widely and fills the budget; the stubborn one hits one patch alone."""
    n, margins = 12, {}
    for policy in (Stubborn, Greedy):
        batch = batch_of(GRAY.expand(n, -1, -1), torch.zeros(n, dtype=torch.int64))
        threat = threat_of(0.3, "l2", SIGNAL, n=n)
        weight = torch.ones(16)
        ledger = Ledger(linear(weight, -20.0), batch, threat, access=Access.SCORES)
        variant_list = variants([SignedPatch()], SIGNAL, (3, 5), 1)
        placement = Placement(grid=GRID, variants=variant_list, rules=Rules(steps=60), slots=8)
        env = PatchEnv(ledger.oracle(), batch, threat, placement, Streams.of(0, batch.ids))
        observation, player = env.reset(torch.ones(8, dtype=torch.bool)), policy(choices=env.choices)
        while env.alive.any():
            observation = env.step(player.act(observation, env.streams)).observation
            observation = env.reset(~env.alive)
        assert not env.outcomes.success.any() and (env.outcomes.size <= 0.3 * (1 + 1e-5)).all()
        margins[policy] = signs(env.outcomes, threat.eps)
    assert "same-patches" in margins[Stubborn] and "same-patches" not in margins[Greedy]
    assert margins[Greedy] == {"distance-without-success"}
