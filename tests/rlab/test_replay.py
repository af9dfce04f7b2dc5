"""Replay memory: n-step ways by hand, and against a plain record of what happened."""

import torch

from brinell.rlab.dqn import END, Replay
from brinell.rlab.episodes import Observation


def observation(*numbers):
    return Observation({"number": torch.tensor([[float(n)] for n in numbers])}, (torch.ones(len(numbers), 2, dtype=torch.bool),))


def action(*choices):
    return (torch.tensor([[choice] for choice in choices]),)


def memory(slots=1, capacity=100, memory=2**20):
    return Replay(observation(*[0] * slots), action(*[0] * slots), capacity=capacity, memory=memory)


def all_rows(replay, n_step, gamma=0.5):
    """Every transition in memory by the number of the state it begins in: (action, reward, discount, later number)."""
    transitions = {}
    for seed in range(40):
        sample = replay.sample(20, n_step, gamma, torch.Generator().manual_seed(seed))
        numbers = sample.observation.features["number"][:, 0].tolist()
        later = sample.later.features["number"][:, 0].tolist()
        columns = (
            numbers,
            sample.action[0][:, 0].tolist(),
            sample.reward.tolist(),
            sample.discount.tolist(),
            later,
            sample.weight.tolist(),
        )
        for number, choice, reward, discount, after, weight in zip(*columns, strict=True):
            if weight:
                transitions[number] = (choice, reward, discount, after if discount else None)
    return transitions


def write(replay, steps, mask=None):
    """Write steps of one slot: (number, choice, reward, what follows: None to go on, END, or the number of a last state)."""
    alive = torch.tensor([True])
    row = replay.add(observation(steps[0][0]), alive)
    for index, (_, choice, reward, last) in enumerate(steps):
        following = steps[index + 1][0] if index + 1 < len(steps) else 77
        if last is None:
            after = replay.add(observation(following), alive)
            replay.link(row, action(choice), torch.tensor([reward]), after)
            row = after
        else:
            after = torch.tensor([END]) if last == END else replay.add(observation(last), alive)
            replay.link(row, action(choice), torch.tensor([reward]), after)
            row = replay.add(observation(following), alive)


EPISODES = [(1, 0, 1.0, None), (2, 1, 2.0, None), (3, 0, 4.0, END), (4, 1, 8.0, None), (5, 0, 16.0, 55), (6, 1, 32.0, None)]


def test_ways_of_one_step_by_hand():
    replay = memory()
    write(replay, EPISODES)
    assert all_rows(replay, 1) == {
        1: (0, 1, 0.5, 2),
        2: (1, 2, 0.5, 3),
        3: (0, 4, 0, None),
        4: (1, 8, 0.5, 5),
        5: (0, 16, 0.5, 55),
        6: (1, 32, 0.5, 77),
    }


def test_ways_of_three_steps_end_with_the_episode_and_at_the_present():
    replay = memory()
    write(replay, EPISODES)
    assert all_rows(replay, 3) == {
        1: (0, 1 + 0.5 * 2 + 0.25 * 4, 0, None),
        2: (1, 2 + 0.5 * 4, 0, None),
        3: (0, 4, 0, None),
        4: (1, 8 + 0.5 * 16, 0.25, 55),
        5: (0, 16, 0.5, 55),
        6: (1, 32, 0.5, 77),
    }


def test_what_is_overwritten_is_gone_and_the_rest_is_whole():
    replay = memory(capacity=7)
    write(replay, [(n, n % 2, float(n), END if n % 4 == 0 else None) for n in range(1, 60)])
    transitions = all_rows(replay, 2)
    # 7 rows: the present (77) and the six states before it.
    assert transitions == {
        54: (0, 54 + 0.5 * 55, 0.25, 56),
        55: (1, 55 + 0.5 * 56, 0, None),
        56: (0, 56, 0, None),
        57: (1, 57 + 0.5 * 58, 0.25, 59),
        58: (0, 58 + 0.5 * 59, 0.25, 77),
        59: (1, 59, 0.5, 77),
    }
    assert len(replay) == 7


def test_slots_keep_apart_and_idle_ones_leave_no_trace():
    replay = memory(slots=3)
    alive = torch.tensor([True, False, True])
    rows = replay.add(observation(1, 99, 11), alive)
    assert rows.tolist() == [0, END, 1]
    after = replay.add(observation(2, 99, 12), alive)
    replay.link(rows, action(0, 1, 1), torch.tensor([1.0, 99.0, 3.0]), after)
    assert all_rows(replay, 2) == {1: (0, 1, 0.5, 2), 11: (1, 3, 0.5, 12)}


def test_half_precision_and_bounds_in_bytes():
    wide = Observation(
        {"wide": torch.rand(2, 1000), "kind": torch.tensor([[3], [70_000]])}, (torch.ones(2, 10, dtype=torch.bool),)
    )
    choices = (torch.zeros(2, 1, dtype=torch.int64),)
    # 2 bytes a feature, 8 for the whole number, 10 of mask, 4 of action, 12 of reward and successor.
    bytes_each = 2000 + 8 + 10 + 4 + 12
    replay = Replay(wide, choices, capacity=1000, memory=20 * bytes_each)
    assert replay.capacity == 20
    rows = replay.add(wide, torch.tensor([True, True]))
    replay.link(rows, choices, torch.zeros(2), torch.tensor([END, END]))
    states, actions = replay.columns
    stored_tensors = [*states.features.values(), *states.allowed, *actions, replay.reward, replay.following]
    assert sum(column.numel() * column.element_size() for column in stored_tensors) == 20 * bytes_each
    sample = replay.sample(50, 1, 1.0, torch.Generator().manual_seed(0))
    first = sample.observation.features["kind"][:, 0] == 3
    assert set(sample.observation.features["kind"][:, 0].tolist()) == {3, 70_000}
    assert torch.allclose(sample.observation.features["wide"][first], wide.features["wide"][0], atol=1e-3)
    assert sample.observation.features["wide"].dtype == torch.float32
    assert Replay(wide, choices, capacity=1000, memory=7 * bytes_each).capacity == 8, "four states of each slot"
