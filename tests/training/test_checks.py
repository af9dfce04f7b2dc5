"""Checks during training: overfitting to the attack, a collapse, no gain; and the choice of the
kept weights.
"""

import pytest
import torch
from torch import nn

from _helpers import distance, mlp
from _refusals import refused
from _training import EPS, IdleAttack, loop, same_state
from brinell.core.errors import StoppedError
from brinell.core.oracle import Batch
from brinell.core.threat import Threat
from brinell.training.checks import AccuracyCheck
from brinell.training.recipe import Recipe


@pytest.mark.parametrize("lucky", [True, False])
def test_at_the_end_all_validation_samples_decide_between_the_best_check_and_the_last(
    lucky, monkeypatch
):
    """A first check of one sample that happens to hold keeps weights that know nothing, and those
    that learned win at the end; weights that were truly better at a check stay."""
    training = loop()
    zeros = {name: torch.zeros_like(value) for name, value in training.best_weights.items()}
    good = loop().run()

    def keep_best(score):
        if training.state.best_step == 0:
            training.best_weights, training.state.best, training.state.best_step = (
                zeros if lucky else good,
                1.0,
                8,
            )

    monkeypatch.setattr(training, "_keep_best", keep_best)
    if not lucky:
        monkeypatch.setattr(training, "_step", lambda share: 0.0)
    weights = training.run()
    assert same_state(weights, zeros if lucky else good) != lucky
    assert (training.state.best_step, training.state.best) == ((48, 1.0) if lucky else (8, 1.0))


def test_overfitting_to_the_attack_is_noticed_within_an_epoch_and_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(Recipe, "safer", lambda self: self.parts[0].safer())
    blind = loop(
        custom=Recipe(text="asleep", parts=(IdleAttack(),)),
        epochs=12,
        ramp=0.0,
        file=tmp_path / "last.safetensors",
    )
    blind.run()
    curve, events = blind.state.curve, blind.state.events
    first_bad = next(index for index, row in enumerate(curve) if not row["good"])
    assert curve[first_bad]["pgd"] < 0.8 * curve[first_bad]["seen"] and curve[first_bad]["pgd"] < 40
    assert (
        len(events) == 1
        and "catastrophic overfitting at step" in events[0]
        and "on with pgd(steps=3)" in events[0]
    )
    good = max((row["step"] for row in curve[:first_bad] if row["good"]), default=0)
    assert f"went back to step {good}" in events[0]
    assert (
        curve[first_bad + 1]["step"] == good + 8
        and curve[first_bad + 1]["recipe"] == "pgd(steps=3)"
    )
    assert curve[-1]["robust"] > 60 and blind.state.recipe == "pgd(steps=3)"


@pytest.mark.parametrize("recipe", ["pgd(steps=3)+plain", "plain+pgd(steps=3)"])
def test_what_shares_a_batch_with_an_attack_is_no_overfitting_to_it(recipe):
    """A network that every attack breaks and that is right on clean inputs: half of the mixed batch
    holds, and none by PGD.
    """
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0, -50.0, 0], [0, 50.0, 0]]))
        module.bias.copy_(torch.tensor([25.0, -25.0]))
    training = loop(recipe, module=module, rate=1e-9, ramp=0.0, epochs=1)
    assert training.checker.check(training.trained, training.recipe, EPS, 64).seen == 32
    training.run()
    row = training.state.curve[-1]
    assert (row["clean"], row["seen"], row["pgd"]) == (64, 0, 0)
    assert row["good"] and not training.state.events
    assert Recipe.of("plain").overfitting_parts() == Recipe.of("plain")


def test_a_gap_that_chance_may_make_is_no_overfitting():
    assert AccuracyCheck(n=64, clean=64, seen=60, attacked=20).overfits
    assert not AccuracyCheck(n=64, clean=64, seen=60, attacked=52).overfits
    assert not AccuracyCheck(n=8, clean=8, seen=6, attacked=3).overfits
    assert not AccuracyCheck(n=64, clean=64, seen=2, attacked=0).overfits


def test_a_training_shorter_than_an_epoch_is_watched_too(monkeypatch):
    """A check after each tenth if steps cost more than the check; otherwise one before and one
    after the training.
    """
    dear = loop("pgd(steps=3)", epochs=0.9, batch_size=2)
    with monkeypatch.context() as patch:
        patch.setattr("brinell.training.loop.CHECK_SHARE", 100.0)
        dear.run()
    assert [row["step"] for row in dear.state.curve] == [0, *range(12, 109, 12), 116]
    cheap = loop("pgd(steps=3)", epochs=0.9)
    cheap.run()
    assert [row["step"] for row in cheap.state.curve] == [0, 8]


def test_a_collapse_in_the_first_epoch_is_noticed():
    """A network that knows everything, and a rate that ruins it within its first steps."""
    network = mlp(3, 2)
    network.load_state_dict(loop(module=mlp(3, 2)).run())
    ruined = loop("plain", module=network, optimizer="sgd", rate=300.0, clip=0.0, ramp=0.0)
    ruined.run()
    first, second = ruined.state.curve[:2]
    assert (
        first["step"] == 0
        and first["clean"] == 64
        and first["loss"] is None
        and second["clean"] < 40
    )
    assert (
        "the training collapsed at step 8" in ruined.state.events[0]
        and "went back to step 0" in ruined.state.events[0]
    )


def test_weights_that_were_better_before_the_training_are_kept():
    network = mlp(3, 2)
    weights = loop(module=mlp(3, 2)).run()
    network.load_state_dict(weights)
    worse = loop(
        "pgd(steps=1)",
        module=network,
        optimizer="sgd",
        rate=3.0,
        clip=0.0,
        epochs=1,
        ramp=0.0,
        average=0.0,
    )
    step = worse._step

    def spoiled(share):
        loss = step(share)
        with torch.no_grad():
            for parameter in worse.trained.parameters:
                parameter.mul_(-1)
        worse.average.update()
        return loss

    worse._step = spoiled
    best_weights = worse.run()
    assert (
        same_state(best_weights, weights) and worse.state.best_step == 0 and worse.state.best == 1
    )


def test_what_is_wrong_at_the_last_check_is_told(monkeypatch):
    monkeypatch.setattr(Recipe, "safer", lambda self: self.parts[0].safer())
    blind = loop(custom=Recipe(text="asleep", parts=(IdleAttack(),)), epochs=1, ramp=0.0)
    blind.run()
    assert not blind.state.curve[-1]["good"]
    (event,) = blind.state.events
    assert (
        "catastrophic overfitting at step 8" in event
        and "at the last check; the weights of step" in event
    )


def test_a_recipe_without_a_budget_keeps_its_last_weights():
    """Robust accuracy by PGD is chance there, and no reason to keep earlier ones."""
    training = loop("plain", epochs=4)
    scores = iter([1.0, 0.0, 0.5, 0.0, 0.0])
    monitored = training._keep_best
    training._keep_best = lambda score: monitored(next(scores))
    weights = training.run()
    assert training.state.best_step == training.state.step == 32 and same_state(
        weights, training.average.full_state()
    )
    assert training.state.best == 0, "nothing was chosen"


def test_what_n_fgsm_is_held_against_stays_within_the_budget():
    """Its noise is learned from beyond the budget; beside PGD it is projected into the budget,
    where a network may hold.
    """
    training = loop("n-fgsm", module=(network := mlp(3, 2)))
    network.load_state_dict(loop(module=mlp(3, 2)).run())
    check = training.checker.check(training.trained, training.recipe, EPS, 64)
    crafted = training.recipe.craft(
        training.trained,
        Batch(ids=torch.arange(64), x=training.checker.x, y=training.checker.y),
        Threat(distance=distance("linf"), eps=torch.full((64,), EPS), domain=training.domain),
        torch.Generator().manual_seed(0),
    )
    assert float((crafted - training.checker.x).abs().max()) > 2 * EPS
    assert check.seen >= check.attacked == 64


def test_a_dead_network_is_not_kept_because_it_names_one_class():
    """A constant answer holds on the half of the samples that are of its class, and the network
    before it on none."""
    fragile = nn.Linear(3, 2)
    with torch.no_grad():
        fragile.weight.copy_(torch.tensor([[0, -50.0, 0], [0, 50.0, 0]]))
        fragile.bias.copy_(torch.tensor([25.0, -25.0]))
    before = {name: value.clone() for name, value in fragile.state_dict().items()}
    dead = loop("pgd(steps=2)", module=fragile, epochs=2, ramp=0.0)
    step = dead._step

    def kill(share):
        loss = step(share)
        with torch.no_grad():
            for parameter in dead.trained.parameters:
                parameter.zero_()
            dead.trained.module.bias.copy_(torch.tensor([1.0, 0.0]))
        for name, value in dead.trained.module.state_dict().items():
            dead.average.state[name].copy_(value)
        return loss

    dead._step = kill
    weights = dead.run()
    assert [row["good"] for row in dead.state.curve[1:]] == [False] * (len(dead.state.curve) - 1)
    assert same_state(weights, before) and dead.state.best_step == 0
    assert (
        "the training collapsed" in dead.state.events[-1]
        and "the weights of step 0 are kept" in dead.state.events[-1]
    )


def test_weights_that_are_no_numbers_are_never_kept(tmp_path):
    """The loss is that of before the step: weights may be NaN where it was not."""
    broken = loop("plain", epochs=2, file=tmp_path / "last.safetensors")
    step = broken._step

    def spoil(share):
        loss = step(share)
        if broken.state.step == 7:
            with torch.no_grad():
                broken.trained.parameters[0].fill_(float("nan"))
        return loss

    broken._step = spoil
    with pytest.raises(StoppedError, check=refused("training.loop.Loop._stop")):
        broken.run()
    resumed = loop("plain", epochs=2, file=tmp_path / "last.safetensors")
    assert resumed.resume() and resumed.state.step == 0
    assert all(bool(torch.isfinite(value).all()) for value in resumed.best_weights.values())
