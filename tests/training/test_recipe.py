"""Effects of recipes on a batch, on the weights and on batch norm, their cost, and the safer
recipe."""

import numpy as np
import pytest
import torch
from torch import nn

from _helpers import distance, mlp
from _training import CPU, EPS, loop
from brinell.core.domain import Domain
from brinell.core.threat import Threat
from brinell.datasets._memory import from_arrays
from brinell.training.data import TrainingSamples
from brinell.training.recipe import Recipe


def test_recipes_share_a_batch():
    training = loop("pgd(steps=2)+plain")
    assert training.recipe.shares(9) == [slice(0, 5), slice(5, 9)] and training.recipe.cost() == (
        2,
        2,
    )
    assert training.recipe.shares(1) == [slice(0, 1), slice(1, 1)], (
        "the attack, and not what stands beside it"
    )
    batch = training._batch(0)
    threat = Threat(distance=distance("linf"), eps=torch.full((32,), EPS), domain=training.domain)
    x_adv = training.recipe.craft(training.trained, batch, threat, training.rng)
    changed = (x_adv != batch.x).any(1)
    assert changed[:16].all() and not changed[16:].any()


def test_awp_leaves_the_step_to_the_optimiser():
    """The update is taken where the weights were moved to, and applied where they were."""
    perturbed, plain = loop("pgd(steps=1)+awp(gamma=1e-9)"), loop("pgd(steps=1)")
    assert perturbed.recipe.cost() == (3, 3) and perturbed.trained.forwards == 0
    a, b = perturbed.run(), plain.run()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-4, rtol=1e-3)


def test_batch_norm_learns_from_what_is_learned_and_not_from_the_attack():
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)
    )
    loop(module=module, epochs=1).run()
    assert int(module[2].num_batches_tracked) == 8


def test_batch_norm_does_not_learn_from_the_pass_that_moves_the_weights():
    def statistics(recipe):
        module = nn.Sequential(nn.Flatten(), mlp(3, 8), nn.BatchNorm1d(8), nn.ReLU(), mlp(8, 2))
        training = loop(recipe, module=module, epochs=1)
        training.trained.module.train()
        training._step(0.5)
        return module[2]

    plain, shifted = statistics("plain"), statistics("plain+awp(gamma=0.5)")
    assert int(shifted.num_batches_tracked) == int(plain.num_batches_tracked) == 1
    assert not torch.equal(plain.running_mean, shifted.running_mean), (
        "the update is taken where the weights were moved to"
    )


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_awp_learns_at_weights_that_were_moved(precision):
    """Under autocast a network answers with half copies of its weights, which must be made anew."""
    plain, perturbed = (
        loop(recipe, precision=precision)
        for recipe in ("pgd(steps=1)", "pgd(steps=1)+awp(gamma=0.5)")
    )
    assert perturbed._step(0.5) > plain._step(0.5) + 0.05


@pytest.mark.parametrize(
    ("recipe", "passes"),
    [
        ("plain", (1, 1)),
        ("pgd(steps=3)", (4, 4)),
        ("trades(steps=2)", (5, 4)),
        ("pgd(steps=3)+plain", (2.5, 2.5)),
        ("pgd(steps=2)+awp", (4, 4)),
        ("trades(steps=2)+awp", (7, 6)),
        ("n-fgsm", (2, 2)),
    ],
)
def test_every_pass_is_counted(recipe, passes):
    """By hooks on the network: what it was asked in the steps, half a batch of 32 where two share
    it, and checks beside.
    """
    training = loop(recipe, epochs=2)
    counts = {"forwards": 0, "on": False}
    step = training._step

    def counted(share):
        counts["on"] = True
        loss = step(share)
        counts["on"] = False
        return loss

    training._step = counted
    training.trained.module.register_forward_pre_hook(
        lambda module, inputs: counts.update(
            forwards=counts["forwards"] + counts["on"] * len(inputs[0])
        )
    )
    training.run()
    assert (training.state.forwards, training.state.backwards) == tuple(
        2 * 8 * 32 * factor for factor in passes
    )
    assert training.state.forwards == counts["forwards"]


def test_the_safer_recipe_keeps_what_stands_beside_it():
    def safer(text):
        return Recipe.of(text).safer()

    assert safer("awp") == "pgd(steps=10)+awp"
    assert safer("pgd(steps=1)+pgd(steps=4)") == "pgd(steps=2)+pgd(steps=8)"
    assert safer("n-fgsm+plain+awp(gamma=0.005)") == "pgd(steps=2)+plain+awp(gamma=0.005)"
    assert safer("trades(beta=3.0,steps=2)") == "trades(beta=3.0,steps=4)" and safer("mart") == ""


def test_ready_made_inputs_are_not_shifted():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (40, 1, 8, 8)).astype(np.float32)
    dataset = from_arrays(x, np.arange(40) % 2, domain=Domain(kind="image", shape=(1, 8, 8)))
    samples, ready = (
        TrainingSamples.of(dataset, np.arange(start, start + 20), CPU) for start in (0, 20)
    )
    training = loop("plain+plain", augment="shift")
    training.samples, training.data, training.per_epoch, training.per_batch = (
        samples,
        [samples, ready],
        1,
        20,
    )
    batch = training._batch(0)
    original_rows = {row.tobytes() for row in x}
    assert all(row.tobytes() in original_rows for row in batch.x[10:].numpy())
    assert not all(row.tobytes() in original_rows for row in batch.x[:10].numpy())
