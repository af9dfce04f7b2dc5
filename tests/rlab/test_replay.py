"""Replay memory: what is drawn from it is what happened last."""

import torch

from brinell.rlab.dqn import Replay, Transition
from brinell.rlab.episodes import Observation


def transitions(*numbers):
    """One for each number, by which all of it can be told."""
    states = [
        Observation(
            {"number": torch.tensor([[float(n)] for n in part])},
            (torch.ones(len(part), 2, dtype=torch.bool),),
        )
        for part in (numbers, [n + 1 for n in numbers])
    ]
    number = torch.tensor([float(n) for n in numbers])
    return Transition(
        states[0], ((number.long() % 2)[:, None],), number * 2, number / 100, states[1]
    )


def held(replay):
    """The numbers in memory, each with all its parts in accord."""
    sample = replay.sample(400, torch.Generator().manual_seed(0))
    number = sample.observation.features["number"][:, 0]
    assert torch.equal(sample.later.features["number"][:, 0], number + 1) and torch.equal(
        sample.reward, 2 * number
    )
    assert torch.equal(sample.action[0][:, 0], number.long() % 2) and torch.equal(
        sample.discount, number / 100
    )
    return set(number.tolist())


def test_the_latest_transitions_of_slots_with_an_episode_are_kept_whole():
    replay = Replay(transitions(0, 0, 0), capacity=7, memory=2**20)
    for start in range(0, 60, 3):
        replay.add(
            transitions(start, start + 1, start + 2), torch.tensor([True, start % 2 == 0, True])
        )
    # The second slot rests in every other round.
    written = [
        n
        for start in range(0, 60, 3)
        for n in (start, *([start + 1] if start % 2 == 0 else []), start + 2)
    ]
    assert held(replay) == {float(n) for n in written[-7:]} and len(replay) == 7


def test_half_precision_and_bounds_in_bytes():
    wide = Observation({"wide": torch.rand(2, 1000)}, (torch.ones(2, 10, dtype=torch.bool),))
    template = Transition(
        wide, (torch.zeros(2, 1, dtype=torch.int64),), torch.zeros(2), torch.ones(2), wide
    )
    bytes_each = (
        2 * (2000 + 10) + 8 + 8
    )  # features and mask before and after; action, reward and discount
    replay = Replay(template, capacity=1000, memory=20 * bytes_each)
    assert replay.capacity == 20 and Replay(template, capacity=1000, memory=1).capacity == 4, (
        "two rounds of all slots"
    )
    replay.add(template, torch.tensor([True, True]))
    sample = replay.sample(50, torch.Generator().manual_seed(0))
    assert sample.observation.features["wide"].dtype == torch.float32
    error = torch.cdist(sample.observation.features["wide"], wide.features["wide"]).min(1).values
    assert float(error.max()) < 0.05
