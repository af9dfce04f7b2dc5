"""The training loop: what it learns, that a stop changes nothing, what it does about overfitting to its attack and about NaN."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from _helpers import distance, mlp
from brinell import plugins
from brinell.core.batch import Batch
from brinell.core.domain import Domain
from brinell.core.errors import StoppedError
from brinell.core.threat import Threat
from brinell.datasets._memory import ArrayDataset
from brinell.models._torch_model import TorchModel
from brinell.store import files
from brinell.training.average import Average
from brinell.training.checks import Check, Checker
from brinell.training.data import Samples, augmented, order
from brinell.training.loop import Loop, Settings
from brinell.training.recipe import Recipe, Trained
from brinell.training.schedule import START, ramped, rate_factor

EPS = 0.15
CPU = torch.device("cpu")
USUAL = Settings(
    eps=EPS,
    epochs=6,
    seconds=None,
    batch_size=32,
    optimizer="adamw",
    rate=0.02,
    weight_decay=0.0,
    ramp=0.3,
    average=0.9,
    patience=None,
    augment="none",
    clip=1.0,
    precision="float32",
    seed=0,
)


SESSIONS = ExitStack()


@pytest.fixture(autouse=True)
def sessions():
    """Every network of a loop is in a session, as in a hardening; without one it would answer in evaluation mode alone."""
    with SESSIONS:
        yield


def problem(n=320):
    """Class 1 where the first value is above the middle, by a robust margin of 0.2; the second value says it too, by 0.01."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = np.stack([0.5 + (2 * y - 1) * rng.uniform(0.2, 0.4, n), 0.5 + 0.01 * (2 * y - 1), rng.uniform(0, 1, n)], 1)
    return ArrayDataset(x.astype(np.float32), y, domain=Domain(kind="vector", shape=(3,)))


def loop(recipe="pgd(steps=3)", module=None, file=None, own=None, **settings):
    dataset = problem()
    learned, held = np.arange(256), np.arange(256, 320)
    module = module or mlp(3, 2)
    module.requires_grad_(True)
    samples, kept = Samples.of(dataset, learned, CPU), Samples.of(dataset, held, CPU)
    checker = Checker(
        x=kept.load(torch.arange(64)),
        y=kept.labels,
        distance=distance("linf"),
        domain=dataset.domain,
        strong=plugins.build("defence", "pgd", {"steps": 10}),
        batch_size=64,
        seed=0,
    )
    made = own or Recipe.of(recipe).fitted(dataset.domain, distance("linf"))
    model = TorchModel(module, dataset.domain, 2)
    SESSIONS.enter_context(model.session())
    trained = Trained.of(model)
    data = [samples] * len(made.parts)
    return Loop(trained, samples, data, checker, made, distance("linf"), replace(USUAL, **settings), file)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_learns_to_hold():
    plain, hardened = loop("plain"), loop()
    plain.run()
    hardened.run()
    assert hardened.state.curve[-1]["robust"] == 64 and hardened.state.best == 1
    assert plain.state.curve[-1]["clean"] == 64 and plain.state.curve[-1]["robust"] < 60
    assert hardened.state.step == 6 * 8 and hardened.state.forwards == 48 * 32 * 4


def test_the_same_seed_makes_the_same_weights_and_draws_nothing_global():
    loops = loop(), loop(), loop(seed=1)
    before = torch.get_rng_state()
    one, two, other = (each.run() for each in loops)
    assert same(one, two) and not same(one, other)
    assert torch.equal(before, torch.get_rng_state())


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


def chancy(seed=0):
    return nn.Sequential(mlp(3, 16, seed=seed), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), mlp(16, 2, seed=seed))


def bare(seed=0):
    return mlp(3, 2, seed=seed)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize(("at", "network"), [(1, bare), (4, bare), (4, chancy)])
def test_a_stop_changes_nothing(tmp_path, optimizer, at, network):
    """Stopped in the middle of an epoch, the training goes back to the last checkpoint and ends with the same bits."""
    whole = loop(optimizer=optimizer, module=network()).run()
    file = tmp_path / "last.safetensors"
    stopped = loop(optimizer=optimizer, file=file, module=network())
    step, calls = stopped._step, iter(range(10**6))

    def killed(share):
        if next(calls) == 8 * at + 3:
            raise KeyboardInterrupt
        return step(share)

    stopped._step = killed
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    resumed = loop(optimizer=optimizer, file=file, module=network(9))
    assert resumed.resume() and resumed.state.step == 8 * at
    assert same(resumed.run(), whole)


def test_without_a_checkpoint_there_is_nothing_to_go_on_with(tmp_path):
    assert not loop(file=tmp_path / "last.safetensors").resume()


@dataclass(frozen=True, kw_only=True)
class Asleep:
    """An attack that does nothing: whoever trains by it comes to hold against it, and against nothing else."""

    domains: ClassVar = frozenset({"vector"})
    distances: ClassVar = frozenset({"linf"})
    budgeted: ClassVar = True

    def craft(self, network, batch, threat, rng):
        return batch.x

    def loss(self, network, batch, x_adv):
        return F.cross_entropy(network(x_adv), batch.y, reduction="none")

    def cost(self):
        return 1, 1

    def safer(self):
        return "pgd(steps=3)"


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


def test_a_loss_that_is_no_number_stops_it_with_the_good_weights_kept(tmp_path):
    file = tmp_path / "last.safetensors"
    broken = loop(file=file)
    step = broken._step
    broken._step = lambda share: float("nan") if broken.state.step == 11 else step(share)
    with pytest.raises(StoppedError, match=r"the loss is nan at step 12 .*the weights of step 8 are kept in .*smaller --rate"):
        broken.run()
    kept = loop(file=file)
    assert kept.resume() and kept.state.step == 8
    assert all(bool(torch.isfinite(value).all()) for value in kept.kept.values())


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    file = tmp_path / "last.safetensors"
    full = loop(file=file)
    replaced, saved = files.write_atomically, []

    def write(path, put):
        if len(saved) == 3:

            def no_room(temporary):
                raise OSError(28, "No space left on device")

            return replaced(path, no_room)
        saved.append(path)
        return replaced(path, put)

    monkeypatch.setattr("brinell.training.checkpoint.write_atomically", write)
    with pytest.raises(StoppedError, match="the disk is full; make room, then go on with --resume"):
        full.run()
    monkeypatch.undo()
    resumed = loop(file=file)
    assert resumed.resume() and resumed.state.step == 16
    assert same(resumed.run(), loop().run())


def test_patience_ends_a_training_that_gets_no_better():
    short = loop(epochs=200, patience=3, ramp=0.0)
    short.run()
    assert short.state.step < 200 and "brought no better robust accuracy" in short.state.events[0]


def test_a_time_limit_ends_it():
    timed = loop(seconds=0.3, epochs=1)
    timed.run()
    assert 0.3 <= timed.state.seconds < 3 and timed.state.over


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


def test_the_average_is_that_of_the_weights():
    module = nn.Linear(1, 1, bias=False)
    average = Average(module, 0.5)
    total = float(module.weight.detach())
    for value in (1.0, 2.0, 4.0, 8.0):
        with torch.no_grad():
            module.weight.fill_(value)
        average.update()
        keep = min(0.5, average.steps / (10 + average.steps))
        total = keep * total + (1 - keep) * value
    assert float(average.whole()["weight"]) == pytest.approx(total)
    with average.shown():
        assert float(module.weight.detach()) == pytest.approx(total)
    assert float(module.weight.detach()) == 8.0


def test_schedules():
    assert [ramped(share, 0.5) for share in (0, 0.25, 0.5, 1)] == [0, 0.5, 1, 1] and ramped(0.0, 0.0) == 1
    assert rate_factor(0) == START and rate_factor(0.2) == pytest.approx(1) and rate_factor(1) == 0


def test_shifted_images_are_windows_of_the_image_mirrored_at_its_edge():
    x = torch.arange(2 * 64, dtype=torch.float32).reshape(2, 1, 8, 8)
    rng = torch.Generator().manual_seed(0)
    windows = []  # by image: 9 places of the window, straight and mirrored
    for whole in x[:, 0].numpy():
        padded = np.pad(whole, 1, mode="reflect")
        places = [padded[top : top + 8, left : left + 8] for top in range(3) for left in range(3)]
        windows.append([one.tobytes() for one in places] + [one[:, ::-1].tobytes() for one in places])
    seen = {which: set() for which in ("shift", "shift-flip")}
    for which, found in seen.items():
        for _ in range(80):
            for image, own in zip(augmented(x, which, rng).numpy(), windows, strict=True):
                found.add(own.index(image.tobytes()))
    assert seen["shift"] == set(range(9)) and seen["shift-flip"] == set(range(18))
    assert augmented(x, "none", rng) is x


def test_the_order_of_an_epoch_follows_from_seed_and_number():
    assert torch.equal(order(50, 0, 3), order(50, 0, 3))
    assert not torch.equal(order(50, 0, 3), order(50, 0, 4)) and not torch.equal(order(50, 0, 3), order(50, 1, 3))


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


def test_what_the_network_leaves_to_chance_follows_from_the_seed():
    """Dropout draws from the global generator, wherever that is, and leaves it as it was."""

    def dropped():
        return nn.Sequential(mlp(3, 16), nn.ReLU(), nn.Dropout(0.3), mlp(16, 2))

    loops = loop(module=dropped()), loop(module=dropped()), loop(module=dropped(), seed=1)
    before = torch.get_rng_state()
    one = loops[0].run()
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    two, other = (each.run() for each in loops[1:])
    assert same(one, two) and not same(one, other)


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
    assert "catastrophic overfitting at step 8" in event and "where the training ended; the weights of step" in event


def test_a_recipe_without_a_budget_keeps_its_last_weights():
    """Robust accuracy by PGD is chance there, and no reason to keep earlier ones."""
    made = loop("plain", epochs=4)
    scores = iter([1.0, 0.0, 0.5, 0.0, 0.0])
    monitored = made._keep_best
    made._keep_best = lambda score, whole: monitored(next(scores), whole)
    kept = made.run()
    assert made.state.best_step == made.state.step == 32 and same(kept, made.average.whole())


def test_the_safer_recipe_keeps_what_stands_beside_it():
    def safer(text):
        return Recipe.of(text).safer()

    assert safer("awp") == "pgd(steps=10)+awp"
    assert safer("pgd(steps=1)+pgd(steps=4)") == "pgd(steps=2)+pgd(steps=8)"
    assert safer("fgsm-rs+plain+awp(gamma=0.005)") == "n-fgsm+plain+awp(gamma=0.005)"
    assert safer("trades(beta=3.0,steps=2)") == "trades(beta=3.0,steps=4)" and safer("mart") == ""
    assert Recipe.of(safer("alp(weight=0.25,steps=1)")).parts[0].weight == 0.25


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
