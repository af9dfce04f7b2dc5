"""The training loop: what it learns, that a stop changes nothing, what follows from the seed, and
what it does about NaN.
"""

import numpy as np
import pytest
import torch
from torch import nn

from _helpers import mlp
from _refusals import refused
from _training import loop, same_state
from brinell.core.errors import StoppedError
from brinell.store import files
from brinell.training.average import Average, swap_state
from brinell.training.data import augment, order
from brinell.training.loop import START_FACTOR, ramp_factor, rate_factor


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
    first, second, third = (training.run() for training in loops)
    assert same_state(first, second) and not same_state(first, third)
    assert torch.equal(before, torch.get_rng_state())


def chancy(seed=0):
    return nn.Sequential(
        mlp(3, 16, seed=seed), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), mlp(16, 2, seed=seed)
    )


def bare(seed=0):
    return mlp(3, 2, seed=seed)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize(("epoch", "network"), [(1, bare), (4, bare), (4, chancy)])
def test_a_stop_changes_nothing(tmp_path, optimizer, epoch, network):
    """Stopped in the middle of an epoch, the training goes back to the last checkpoint and ends
    with the same bits."""
    expected = loop(optimizer=optimizer, module=network()).run()
    file = tmp_path / "last.safetensors"
    stopped = loop(optimizer=optimizer, file=file, module=network())
    step, calls = stopped._step, iter(range(10**6))

    def killed(share):
        if next(calls) == 8 * epoch + 3:
            raise KeyboardInterrupt
        return step(share)

    stopped._step = killed
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    resumed = loop(optimizer=optimizer, file=file, module=network(9))
    assert resumed.resume() and resumed.state.step == 8 * epoch
    assert same_state(resumed.run(), expected)


def test_without_a_checkpoint_there_is_nothing_to_go_on_with(tmp_path):
    assert not loop(file=tmp_path / "last.safetensors").resume()


def test_a_loss_that_is_no_number_stops_it_with_the_good_weights_kept(tmp_path):
    file = tmp_path / "last.safetensors"
    broken = loop(file=file)
    step = broken._step
    broken._step = lambda share: float("nan") if broken.state.step == 11 else step(share)
    with pytest.raises(StoppedError, check=refused("training.loop.Loop._stop")):
        broken.run()
    reloaded = loop(file=file)
    assert reloaded.resume() and reloaded.state.step == 8
    assert all(bool(torch.isfinite(value).all()) for value in reloaded.best_weights.values())


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    file = tmp_path / "last.safetensors"
    full = loop(file=file)
    replaced, saved = files.write_atomically, []

    def write(path, writer):
        if len(saved) == 3:

            def no_room(temporary):
                raise OSError(28, "No space left on device")

            return replaced(path, no_room)
        saved.append(path)
        return replaced(path, writer)

    monkeypatch.setattr("brinell.training.checkpoint.write_atomically", write)
    with pytest.raises(StoppedError, check=refused("store.files.write_atomically")):
        full.run()
    monkeypatch.undo()
    resumed = loop(file=file)
    assert resumed.resume() and resumed.state.step == 16
    assert same_state(resumed.run(), loop().run())


def test_a_time_limit_ends_it():
    timed = loop(seconds=0.3, epochs=1)
    timed.run()
    assert 0.3 <= timed.state.seconds < 3 and timed.state.finished


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
    assert float(average.full_state()["weight"]) == pytest.approx(total)
    with swap_state(module, average.full_state()):
        assert float(module.weight.detach()) == pytest.approx(total)
    assert float(module.weight.detach()) == 8.0


def test_schedules():
    assert [ramp_factor(share, 0.5) for share in (0, 0.25, 0.5, 1)] == [
        0,
        0.5,
        1,
        1,
    ] and ramp_factor(0.0, 0.0) == 1
    assert (
        rate_factor(0) == START_FACTOR
        and rate_factor(0.2) == pytest.approx(1)
        and rate_factor(1) == 0
    )


def test_shifted_images_are_windows_of_the_image_mirrored_at_its_edge():
    x = torch.arange(2 * 64, dtype=torch.float32).reshape(2, 1, 8, 8)
    rng = torch.Generator().manual_seed(0)
    windows = []  # by image: 9 places of the window, straight and mirrored
    for picture in x[:, 0].numpy():
        padded = np.pad(picture, 1, mode="reflect")
        places = [
            padded[top : top + 8, column : column + 8] for top in range(3) for column in range(3)
        ]
        windows.append(
            [place.tobytes() for place in places] + [place[:, ::-1].tobytes() for place in places]
        )
    indices_by_augmentation = {augmentation: set() for augmentation in ("shift", "shift-flip")}
    for augmentation, indices in indices_by_augmentation.items():
        for _ in range(80):
            for image, image_windows in zip(
                augment(x, augmentation, rng).numpy(), windows, strict=True
            ):
                indices.add(image_windows.index(image.tobytes()))
    assert indices_by_augmentation["shift"] == set(range(9)) and indices_by_augmentation[
        "shift-flip"
    ] == set(range(18))
    assert augment(x, "none", rng) is x


def test_the_order_of_an_epoch_follows_from_seed_and_number():
    assert torch.equal(order(50, 0, 3), order(50, 0, 3))
    assert not torch.equal(order(50, 0, 3), order(50, 0, 4)) and not torch.equal(
        order(50, 0, 3), order(50, 1, 3)
    )


def test_what_the_network_leaves_to_chance_follows_from_the_seed():
    """Dropout draws from the global generator, wherever that is, and leaves it as it was."""

    def dropped():
        return nn.Sequential(mlp(3, 16), nn.ReLU(), nn.Dropout(0.3), mlp(16, 2))

    loops = loop(module=dropped()), loop(module=dropped()), loop(module=dropped(), seed=1)
    before = torch.get_rng_state()
    first = loops[0].run()
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    second, third = (training.run() for training in loops[1:])
    assert same_state(first, second) and not same_state(first, third)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_another_autocast_around_it_changes_nothing(precision):
    """Torch forgets the half copies of weights at the end of the outermost autocast alone: they
    must not outlive a step.
    """
    first = loop(precision=precision).run()
    with torch.autocast("cpu", enabled=False):
        second = loop(precision=precision).run()
    assert same_state(first, second)
