"""What a training is watched for: overfitting to its attack, a collapse, no gain; and which weights are kept."""

import pytest
import torch
from torch import nn

from _helpers import distance, mlp
from _training import EPS, Asleep, loop, same
from brinell.core.errors import StoppedError
from brinell.core.oracle import Batch
from brinell.core.threat import Threat
from brinell.training.checks import Check
from brinell.training.recipe import Recipe


@pytest.mark.parametrize("lucky", [True, False])
def test_at_the_end_all_validation_samples_decide_between_the_best_check_and_the_last(lucky, monkeypatch):
    """A first check of one sample that happens to hold keeps weights that know nothing, and those that learned win at the end;
    weights that were truly better at a check stay."""
    made = loop()
    zeros = {name: torch.zeros_like(value) for name, value in made.kept.items()}
    good = loop().run()

    def keep_best(score, whole):
        if made.state.best_step == 0:
            made.kept, made.state.best, made.state.best_step = zeros if lucky else good, 1.0, 8

    monkeypatch.setattr(made, "_keep_best", keep_best)
    if not lucky:
        monkeypatch.setattr(made, "_step", lambda share: 0.0)
    found = made.run()
    assert same(found, zeros if lucky else good) != lucky
    assert (made.state.best_step, made.state.best) == ((48, 1.0) if lucky else (8, 1.0))


def test_overfitting_to_the_attack_is_noticed_within_an_epoch_and_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(Recipe, "safer", lambda self: self.parts[0].safer())
    blind = loop(own=Recipe(text="asleep", parts=(Asleep(),)), epochs=12, ramp=0.0, file=tmp_path / "last.safetensors")
    blind.run()
    curve, events = blind.state.curve, blind.state.events
    caught = next(at for at, row in enumerate(curve) if not row["good"])
    assert curve[caught]["pgd"] < 0.8 * curve[caught]["seen"] and curve[caught]["pgd"] < 40
    assert len(events) == 1 and "catastrophic overfitting at step" in events[0] and "on with pgd(steps=3)" in events[0]
    good = max((row["step"] for row in curve[:caught] if row["good"]), default=0)
    assert f"went back to step {good}" in events[0]
    assert curve[caught + 1]["step"] == good + 8 and curve[caught + 1]["recipe"] == "pgd(steps=3)"
    assert curve[-1]["robust"] > 60 and blind.state.recipe == "pgd(steps=3)"


@pytest.mark.parametrize("recipe", ["pgd(steps=3)+plain", "plain+pgd(steps=3)"])
def test_what_shares_a_batch_with_an_attack_is_no_overfitting_to_it(recipe):
    """A network that every attack breaks and that is right on clean inputs: half of the mixed batch holds, and none by PGD."""
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0, -50.0, 0], [0, 50.0, 0]]))
        module.bias.copy_(torch.tensor([25.0, -25.0]))
    made = loop(recipe, module=module, rate=1e-9, ramp=0.0, epochs=1)
    assert made.checker.check(made.trained, made.recipe, EPS, 64).seen == 32
    made.run()
    row = made.state.curve[-1]
    assert (row["clean"], row["seen"], row["pgd"]) == (64, 0, 0)
    assert row["good"] and not made.state.events
    assert Recipe.of("plain").prone() == Recipe.of("plain")


def test_a_gap_that_chance_may_make_is_no_overfitting():
    assert Check(n=64, clean=64, seen=60, attacked=20).overfits
    assert not Check(n=64, clean=64, seen=60, attacked=52).overfits
    assert not Check(n=8, clean=8, seen=6, attacked=3).overfits
    assert not Check(n=64, clean=64, seen=2, attacked=0).overfits


def test_patience_ends_a_training_that_gets_no_better():
    short = loop(epochs=200, patience=3, ramp=0.0)
    short.run()
    assert short.state.step < 200 and "brought no better robust accuracy" in short.state.events[0]


def test_a_training_shorter_than_an_epoch_is_watched_too(monkeypatch):
    """A check after each tenth where steps are dear beside it; where it costs more than they do, one before and one after."""
    dear = loop("pgd(steps=3)", epochs=0.9, batch_size=2)
    with monkeypatch.context() as patch:
        patch.setattr("brinell.training.loop.CHECKING", 100.0)
        dear.run()
    assert [row["step"] for row in dear.state.curve] == [0, *range(12, 109, 12), 116]
    cheap = loop("pgd(steps=3)", epochs=0.9)
    cheap.run()
    assert [row["step"] for row in cheap.state.curve] == [0, 8]


def test_a_collapse_in_the_first_epoch_is_noticed():
    """A network that knows everything, and a rate that ruins it within its first steps."""
    known = mlp(3, 2)
    known.load_state_dict(loop(module=mlp(3, 2)).run())
    ruined = loop("plain", module=known, optimizer="sgd", rate=300.0, clip=0.0, ramp=0.0)
    ruined.run()
    first, second = ruined.state.curve[:2]
    assert first["step"] == 0 and first["clean"] == 64 and first["loss"] is None and second["clean"] < 40
    assert "the training collapsed at step 8" in ruined.state.events[0] and "went back to step 0" in ruined.state.events[0]


def test_weights_that_were_better_before_the_training_are_kept():
    known = mlp(3, 2)
    weights = loop(module=mlp(3, 2)).run()
    known.load_state_dict(weights)
    worse = loop("pgd(steps=1)", module=known, optimizer="sgd", rate=3.0, clip=0.0, epochs=1, ramp=0.0, average=0.0)
    step = worse._step

    def spoiled(share):
        loss = step(share)
        with torch.no_grad():
            for one in worse.trained.parameters:
                one.mul_(-1)
        worse.average.update()
        return loss

    worse._step = spoiled
    kept = worse.run()
    assert same(kept, weights) and worse.state.best_step == 0 and worse.state.best == 1


def test_what_is_wrong_at_the_last_check_is_told(monkeypatch):
    monkeypatch.setattr(Recipe, "safer", lambda self: self.parts[0].safer())
    blind = loop(own=Recipe(text="asleep", parts=(Asleep(),)), epochs=1, ramp=0.0)
    blind.run()
    assert not blind.state.curve[-1]["good"]
    (event,) = blind.state.events
    assert "catastrophic overfitting at step 8" in event and "at the last check; the weights of step" in event


def test_a_recipe_without_a_budget_keeps_its_last_weights():
    """Robust accuracy by PGD is chance there, and no reason to keep earlier ones."""
    made = loop("plain", epochs=4)
    scores = iter([1.0, 0.0, 0.5, 0.0, 0.0])
    monitored = made._keep_best
    made._keep_best = lambda score, whole: monitored(next(scores), whole)
    kept = made.run()
    assert made.state.best_step == made.state.step == 32 and same(kept, made.average.whole())
    assert made.state.best == 0, "nothing was chosen"


def test_what_n_fgsm_is_held_against_stays_within_the_budget():
    """Its noise is learned from beyond the budget; beside PGD it is projected into the budget, where a network may hold."""
    made = loop("n-fgsm", module=(known := mlp(3, 2)))
    known.load_state_dict(loop(module=mlp(3, 2)).run())
    found = made.checker.check(made.trained, made.recipe, EPS, 64)
    crafted = made.recipe.craft(
        made.trained,
        Batch(ids=torch.arange(64), x=made.checker.x, y=made.checker.y),
        Threat(distance=distance("linf"), eps=torch.full((64,), EPS), domain=made.domain),
        torch.Generator().manual_seed(0),
    )
    assert float((crafted - made.checker.x).abs().max()) > 2 * EPS
    assert found.seen >= found.attacked == 64


def test_a_dead_network_is_not_kept_because_it_names_one_class():
    """A constant answer holds on the half of the samples that are of its class, and the network before it on none."""
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
            for one in dead.trained.parameters:
                one.zero_()
            dead.trained.module.bias.copy_(torch.tensor([1.0, 0.0]))
        for name, value in dead.trained.module.state_dict().items():
            dead.average.state[name].copy_(value)
        return loss

    dead._step = kill
    kept = dead.run()
    assert [row["good"] for row in dead.state.curve[1:]] == [False] * (len(dead.state.curve) - 1)
    assert same(kept, before) and dead.state.best_step == 0
    assert "the training collapsed" in dead.state.events[-1] and "the weights of step 0 are kept" in dead.state.events[-1]


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
    with pytest.raises(StoppedError, match="the loss is nan at step 8"):
        broken.run()
    again = loop("plain", epochs=2, file=tmp_path / "last.safetensors")
    assert again.resume() and again.state.step == 0
    assert all(bool(torch.isfinite(value).all()) for value in again.kept.values())
