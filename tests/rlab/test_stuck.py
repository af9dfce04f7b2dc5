"""Searches that no single step helps: they step back, aim at another class, or ask about the wholly distorted input."""

import torch

from _helpers import Recorder
from _placing import ALL, GRAY, SIGNAL, SLOW, Minus, Plus, act, begun, world
from brinell.core.criterion import Targeted
from brinell.rlab.cache import CLEAN
from brinell.rlab.policies import Random
from brinell.rlab.rules import Rules


def both_of_two(x):
    """Patches 0 and 1: each alone takes a step back, both together are a mistake."""
    one, two = ((x[:, 0, at : at + 2] > 0.55).all(1).float() for at in (0, 2))
    z = -1 - (one + two) + 4 * one * two
    return torch.stack([-z, z], 1)


def all_of_them(x):
    z = (x.flatten(1).amin(1) > 0.55).float() * 2 - 1
    return torch.stack([-z, z], 1)


ONE = (Plus(),)


def searched(model, x, eps, aims=True, distortions=ONE, **rules):
    """A search by chance, one patch a step."""
    rules = Rules(p_init=0.125, removals=0.0, steps=200, **rules)
    made = world(Recorder(model, SIGNAL, model(x).shape[1]), x, eps=eps, rules=rules, distortions=distortions)
    made.env._restarts._aims &= aims
    observation, policy = made.env.reset(torch.ones(len(x), dtype=torch.bool)), Random(choices=made.env.choices)
    while made.env.alive.any():
        observation = made.env.step(policy.act(observation, made.env.streams)).observation
    return made


def test_who_is_stuck_steps_back_and_gets_on():
    """No single step gains, so that without patience's end the search stands still."""
    x = GRAY.expand(8, 1, 16)
    stuck, free = (searched(both_of_two, x, 0.4, patience=patience) for patience in (0, 10))
    assert not stuck.env.outcomes.success.any() and free.env.outcomes.success.all()
    assert free.ledger.fooled.all() and (free.ledger.costs.forwards <= 201).all()
    for made in (stuck, free):
        assert made.model.seen == int(made.ledger.costs.forwards.sum())


def test_a_lead_that_rounding_explains_does_not_end_an_episode():
    """Patch 0 brings a lead that the ledger does not count, patch 1 one that it does."""

    def logits(x):
        one, two = ((x[:, 0, at] > 0.55).float() for at in (0, 2))
        return torch.stack([torch.full_like(one, 10.0), 9 + 1.00005 * one + 0.01 * two], 1)

    made = begun(Recorder(logits, SIGNAL), GRAY, rules=ALL)
    for patch, over in ((0, False), (1, True)):
        step = made.env.step(act(made.env, add=[patch]))
        assert step.terminated.tolist() == made.ledger.fooled.tolist() == [over]


def a_trap(x):
    """Eight patches lifted bring class 1 to -0.6; class 2 leads by 0.4 with the first four lowered and the others lifted.

    Class 1 is nearer at first, and on its top one patch or two towards class 2 make either class worse.
    """
    up, down = (((x[:, 0] - 0.5) * sign > 0.05).view(len(x), 8, 2).all(2).float() for sign in (1, -1))
    second = -6 + 0.8 * (down - up)[:, :4].sum(1) + 0.8 * up[:, 4:].sum(1)
    return torch.stack([torch.zeros_like(second), -3 + 0.3 * up.sum(1), second], 1)


def test_who_is_stuck_goes_for_another_class():
    x = GRAY.expand(2, 1, 16)
    for aims in (False, True):
        made = searched(a_trap, x, torch.inf, aims, distortions=(Plus(), Minus()), patience=30)
        assert made.env.outcomes.success.tolist() == made.ledger.fooled.tolist() == [aims] * 2
        assert made.model.seen == int(made.ledger.costs.forwards.sum()) and bool((made.ledger.costs.forwards <= 201).all())
    assert (made.env.outcomes.variant[:, :4] != made.env.outcomes.variant[:, 4:]).all(), (
        "half of them lowered, half of them lifted"
    )


def test_who_is_stuck_asks_about_the_wholly_filtered_input():
    """Only all eight patches together do it: 1 look, 10 steps in vain, 1 leap, and everything stands."""
    made = searched(all_of_them, GRAY.expand(3, 1, 16), torch.inf, patience=10)
    assert made.ledger.best.first_success.tolist() == [12] * 3 and (made.env.outcomes.variant != CLEAN).all()
    assert not searched(all_of_them, GRAY, torch.inf, patience=0).env.outcomes.success.any()


def test_no_leap_beyond_the_budget():
    """All patches are sqrt(16) / 8 = 0.5 away, which a budget of 0.45 does not allow whole, so it is not asked about."""
    made = searched(all_of_them, GRAY, 0.45, patience=10)
    changed = torch.cat(made.model.calls) != 0.5
    assert not changed.flatten(1).all(1)[:12].any()


def test_an_episode_towards_a_target_class_ends_when_that_class_leads():
    """Patches 0 to 2 raise class 1, the nearest one, and 3 to 7 class 2 half as fast: class 1 in the lead is no success."""

    def logits(x):
        change = (x - GRAY).view(len(x), 8, 2).sum(2)
        return torch.stack([torch.ones(len(x)), 4 * change[:, :3].sum(1), 2 * change[:, 3:].sum(1)], 1)

    made = begun(Recorder(logits, SIGNAL, classes=3), GRAY.repeat(2, 1, 1), rules=SLOW, criterion=Targeted(torch.tensor([2, 1])))
    for patches, over in (([0, 1, 2], [False, True]), ([3, 4, 5, 6, 7], [True, True])):
        made.env.step(act(made.env, add=patches))
        assert (~made.env.alive).tolist() == made.ledger.fooled.tolist() == over
