"""What recipes do to a batch, to the weights and to batch norm, what they cost, and what is safer."""

import numpy as np
import pytest
import torch
from torch import nn

from _helpers import distance, mlp
from _training import CPU, EPS, loop
from brinell.core.domain import Domain
from brinell.core.threat import Threat
from brinell.datasets._memory import ArrayDataset
from brinell.training.data import Samples
from brinell.training.recipe import Recipe


def test_recipes_share_a_batch():
    both = loop("pgd(steps=2)+plain")
    assert both.recipe.shares(9) == [slice(0, 5), slice(5, 9)] and both.recipe.cost() == (2, 2)
    assert both.recipe.shares(1) == [slice(0, 1), slice(1, 1)], "the attack, and not what stands beside it"
    batch = both._batch(0)
    threat = Threat(distance=distance("linf"), eps=torch.full((32,), EPS), domain=both.domain)
    x_adv = both.recipe.craft(both.trained, batch, threat, both.rng)
    changed = (x_adv != batch.x).any(1)
    assert changed[:16].all() and not changed[16:].any()


def test_awp_leaves_the_step_to_the_optimiser():
    """The update is taken where the weights were moved to, and applied where they were."""
    one, two = loop("pgd(steps=1)+awp(gamma=1e-9)"), loop("pgd(steps=1)")
    assert one.recipe.cost() == (3, 3) and one.trained.forwards == 0
    a, b = one.run(), two.run()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-4, rtol=1e-3)


def test_batch_norm_learns_from_what_is_learned_and_not_from_the_attack():
    module = nn.Sequential(nn.Flatten(), nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    loop(module=module, epochs=1).run()
    assert int(module[2].num_batches_tracked) == 8


def test_batch_norm_does_not_learn_from_the_pass_that_moves_the_weights():
    def statistics(recipe):
        module = nn.Sequential(nn.Flatten(), mlp(3, 8), nn.BatchNorm1d(8), nn.ReLU(), mlp(8, 2))
        made = loop(recipe, module=module, epochs=1)
        made.trained.module.train()
        made._step(0.5)
        return module[2]

    plain, moved = statistics("plain"), statistics("plain+awp(gamma=0.5)")
    assert int(moved.num_batches_tracked) == int(plain.num_batches_tracked) == 1
    assert not torch.equal(plain.running_mean, moved.running_mean), "the update is taken where the weights were moved to"


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_awp_learns_at_weights_that_were_moved(precision):
    """Under autocast a network answers with half copies of its weights, which must be made anew."""
    one, two = (loop(recipe, precision=precision) for recipe in ("pgd(steps=1)", "pgd(steps=1)+awp(gamma=0.5)"))
    assert two._step(0.5) > one._step(0.5) + 0.05


@pytest.mark.parametrize(
    ("recipe", "passes"),
    [("plain", (1, 1)), ("pgd(steps=3)", (4, 4)), ("trades(steps=2)", (5, 4)), ("pgd(steps=3)+plain", (2.5, 2.5)),
     ("pgd(steps=2)+awp", (4, 4)), ("trades(steps=2)+awp", (7, 6)), ("n-fgsm", (2, 2))],
)  # fmt: skip
def test_every_pass_is_counted(recipe, passes):
    """By hooks on the network: what it was asked in the steps, half a batch of 32 where two share it, and checks beside."""
    made = loop(recipe, epochs=2)
    asked = {"forwards": 0, "on": False}
    step = made._step

    def counted(share):
        asked["on"] = True
        loss = step(share)
        asked["on"] = False
        return loss

    made._step = counted
    made.trained.module.register_forward_pre_hook(
        lambda module, given: asked.update(forwards=asked["forwards"] + asked["on"] * len(given[0]))
    )
    made.run()
    assert (made.state.forwards, made.state.backwards) == tuple(2 * 8 * 32 * one for one in passes)
    assert made.state.forwards == asked["forwards"]


def test_the_safer_recipe_keeps_what_stands_beside_it():
    def safer(text):
        return Recipe.of(text).safer()

    assert safer("awp") == "pgd(steps=10)+awp"
    assert safer("pgd(steps=1)+pgd(steps=4)") == "pgd(steps=2)+pgd(steps=8)"
    assert safer("fgsm-rs+plain+awp(gamma=0.005)") == "n-fgsm+plain+awp(gamma=0.005)"
    assert safer("trades(beta=3.0,steps=2)") == "trades(beta=3.0,steps=4)" and safer("mart") == ""
    assert Recipe.of(safer("alp(weight=0.25,steps=1)")).parts[0].weight == 0.25


def test_ready_made_inputs_are_not_shifted():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (40, 1, 8, 8)).astype(np.float32)
    dataset = ArrayDataset(x, np.arange(40) % 2, domain=Domain(kind="image", shape=(1, 8, 8)))
    own, ready = (Samples.of(dataset, np.arange(start, start + 20), CPU) for start in (0, 20))
    made = loop("plain+plain", augment="shift")
    made.own, made.data, made.per_epoch, made.per_batch = own, [own, ready], 1, 20
    batch = made._batch(0)
    known = {row.tobytes() for row in x}
    assert all(row.tobytes() in known for row in batch.x[10:].numpy())
    assert not all(row.tobytes() in known for row in batch.x[:10].numpy())
