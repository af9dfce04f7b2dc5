"""Searches that no single step helps: they step back, aim at another class, or ask about the wholly
distorted input.
"""

import torch

from _environments import Random
from _helpers import Recorder
from _placing import ALL, GRAY, SIGNAL, SLOW, Minus, Plus, act, make_world, start_world
from brinell.core.criterion import Targeted
from brinell.rlab.distort import CLEAN
from brinell.rlab.episodes import Rules


def both_of_two(x):
    """Patches 0 and 1: each alone takes a step back, both together are a mistake."""
    first_pair, two = ((x[:, 0, start : start + 2] > 0.55).all(1).float() for start in (0, 2))
    z = -1 - (first_pair + two) + 4 * first_pair * two
    return torch.stack([-z, z], 1)


def all_of_them(x):
    z = (x.flatten(1).amin(1) > 0.55).float() * 2 - 1
    return torch.stack([-z, z], 1)


PLUS_ONLY = (Plus(),)


def searched(model, x, eps, aims=True, distortions=PLUS_ONLY, steps=100, **rules):
    """A search by chance, one patch a step."""
    rules = Rules(p_init=0.125, removals=0.0, steps=steps, **rules)
    world = make_world(
        Recorder(model, SIGNAL, model(x).shape[1]), x, eps=eps, rules=rules, distortions=distortions
    )
    world.env._chooses_targets &= aims
    observation, policy = (
        world.env.reset(torch.ones(len(x), dtype=torch.bool)),
        Random(choices=world.env.choices),
    )
    while world.env.alive.any():
        observation = world.env.step(policy.act(observation, world.env.streams)).observation
    return world


def test_who_is_stuck_steps_back_and_gets_on():
    """No single step gains, so that without patience's end the search stands still."""
    x = GRAY.expand(4, 1, 16)
    stuck, free = (searched(both_of_two, x, 0.4, patience=patience) for patience in (0, 10))
    assert not stuck.env.outcomes.success.any() and free.env.outcomes.success.all()
    assert free.ledger.fooled.all() and (free.ledger.costs.forwards <= 101).all()
    for world in (stuck, free):
        assert world.model.queries == int(world.ledger.costs.forwards.sum())


def test_a_tie_does_not_end_an_episode():
    """Patch 0 brings a tie, which the first class wins, patch 1 a lead."""

    def logits(x):
        first_place, two = ((x[:, 0, place] > 0.55).float() for place in (0, 2))
        return torch.stack(
            [torch.full_like(first_place, 10.0), 9 + 1.0 * first_place + 0.01 * two], 1
        )

    world = start_world(Recorder(logits, SIGNAL), GRAY, rules=ALL)
    for patch, over in ((0, False), (1, True)):
        step = world.env.step(act(world.env, add=[patch]))
        assert step.terminated.tolist() == world.ledger.fooled.tolist() == [over]


def a_trap(x):
    """Eight patches lifted bring class 1 to -0.6; class 2 leads by 0.4 with the first four lowered
    and the others lifted.

    Class 1 is nearer at first, and on its top one patch or two towards class 2 make either class
    worse.
    """
    up, down = (
        ((x[:, 0] - 0.5) * sign > 0.05).view(len(x), 8, 2).all(2).float() for sign in (1, -1)
    )
    second = -6 + 0.8 * (down - up)[:, :4].sum(1) + 0.8 * up[:, 4:].sum(1)
    return torch.stack([torch.zeros_like(second), -3 + 0.3 * up.sum(1), second], 1)


def test_who_is_stuck_goes_for_another_class():
    for aims in (False, True):
        world = searched(
            a_trap, GRAY, torch.inf, aims, distortions=(Plus(), Minus()), patience=20, steps=150
        )
        assert world.env.outcomes.success.tolist() == world.ledger.fooled.tolist() == [aims]
        assert world.model.queries == int(world.ledger.costs.forwards.sum()) <= 151
    assert (world.env.outcomes.variant[:, :4] != world.env.outcomes.variant[:, 4:]).all(), (
        "half of them lowered, half of them lifted"
    )


def test_who_is_stuck_asks_about_the_wholly_filtered_input():
    """Only all eight patches together do it: 1 look, 10 steps in vain, 1 leap, and everything
    stands.
    """
    world = searched(all_of_them, GRAY.expand(3, 1, 16), torch.inf, patience=10)
    assert (
        world.ledger.best.first_success.tolist() == [12] * 3
        and (world.env.outcomes.variant != CLEAN).all()
    )
    assert not searched(all_of_them, GRAY, torch.inf, patience=0).env.outcomes.success.any()


def test_no_leap_beyond_the_budget():
    """All patches are sqrt(16) / 8 = 0.5 away, which a budget of 0.45 does not allow whole, so it
    is not asked about."""
    world = searched(all_of_them, GRAY, 0.45, patience=10)
    changed = torch.cat(world.model.calls) != 0.5
    assert not changed.flatten(1).all(1)[:12].any()


def test_an_episode_towards_a_target_class_ends_when_that_class_leads():
    """Patches 0 to 2 raise class 1, the nearest one, and 3 to 7 class 2 half as fast: class 1 in
    the lead is no success.
    """

    def logits(x):
        change = (x - GRAY).view(len(x), 8, 2).sum(2)
        return torch.stack(
            [torch.ones(len(x)), 4 * change[:, :3].sum(1), 2 * change[:, 3:].sum(1)], 1
        )

    world = start_world(
        Recorder(logits, SIGNAL, classes=3),
        GRAY.repeat(2, 1, 1),
        rules=SLOW,
        criterion=Targeted(torch.tensor([2, 1])),
    )
    for patches, over in (([0, 1, 2], [False, True]), ([3, 4, 5, 6, 7], [True, True])):
        world.env.step(act(world.env, add=patches))
        assert (~world.env.alive).tolist() == world.ledger.fooled.tolist() == over
