"""A trainer that was saved, loaded and continued is the trainer that never stopped, bit by bit."""

import copy
import dataclasses
import json

import pytest
import torch
from safetensors.torch import load, save

from _environments import Linear, Shared, Swaps, Table
from brinell.core.errors import RequestError
from brinell.rl.a2c import A2C, A2CSettings
from brinell.rl.dqn import DQN, DQNSettings
from brinell.rl.interface import State
from brinell.rl.ppo import PPO, PPOSettings
from brinell.rl.training import train

KINDS = [
    (DQN, DQNSettings(batch_size=16, warm_up=40, target_every=7, epsilon_steps=200, priority=0.5, capacity=130, collect=2)),
    (DQN, DQNSettings(batch_size=16, warm_up=40, target_every=7, epsilon_end=0.5, temperature=0.3, updates=2)),
    (PPO, PPOSettings(length=8, epochs=2, batch_size=32, entropy=0.01)),
    (A2C, A2CSettings(length=3)),
]


def written(state):
    """Through the bytes of a file and the text of another."""
    return State(load(save(state.tensors)), json.loads(json.dumps(state.numbers)))


def walk():
    """Six states in a row, better to the right; cut off after 9 steps, so that episodes are caught in the middle."""
    following = torch.tensor([[max(0, s - 1), s + 1 if s < 5 else -1] for s in range(6)])
    return Table(following, following / 5, slots=5, limit=9)


WORLDS = [(lambda: Swaps(limited=True), Shared), (walk, lambda: Linear("state", 6, (2,)))]


@pytest.mark.parametrize(("make", "settings"), KINDS)
@pytest.mark.parametrize(("world", "network"), WORLDS)
def test_a_resumed_run_is_the_run_that_was_never_stopped(make, settings, world, network):
    whole = make(settings, network(), world(), 3)
    for _ in train(whole, steps=240):
        pass
    first = make(settings, network(), world(), 3)
    for _ in train(first, steps=130, every=50):
        pass
    saved, environment = written(first.state()), copy.deepcopy(first.environment)
    for _ in train(first, steps=240):
        pass
    # Another seed and other weights: everything must come from the checkpoint.
    other = network()
    for parameter in other.parameters():
        torch.nn.init.constant_(parameter, 7.0)
    second = make(settings, other, environment, 99, saved)
    for _ in train(second, steps=240):
        pass
    for one in (first, second):
        assert one.tally.progress() == whole.tally.progress()
        states = written(whole.state()), written(one.state())
        assert states[0].numbers == states[1].numbers
        assert states[0].tensors.keys() == states[1].tensors.keys()
        for name, tensor in states[0].tensors.items():
            assert torch.equal(tensor, states[1].tensors[name]), name


@pytest.mark.parametrize(("make", "settings"), KINDS)
def test_a_checkpoint_of_something_else_is_refused(make, settings):
    trainer = make(settings, Shared(), Swaps(), 0)
    trainer.advance()
    state = written(trainer.state())
    with pytest.raises(RequestError, match=r"other settings: gamma was 0.99 and is 0.5; go on with"):
        make(dataclasses.replace(settings, gamma=0.5), Shared(), Swaps(), 0, state)
    with pytest.raises(RequestError, match="of another network: .*add.weight"):
        make(settings, Linear("values", 6, (6, 6)), Swaps(), 0, state)
    with pytest.raises(RequestError, match="of 16 slots and the environment has 12; go on with 16"):
        make(settings, Shared(), Swaps(slots=12), 0, state)
    others = {"dqn": (PPO, PPOSettings()), "ppo": (A2C, A2CSettings()), "a2c": (DQN, DQNSettings())}
    wrong, theirs = others[state.numbers["algorithm"]]
    with pytest.raises(RequestError, match=f"the checkpoint is of {state.numbers['algorithm']}, not of"):
        wrong(theirs, Shared(), Swaps(), 0, state)
