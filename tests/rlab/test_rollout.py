"""Advantages by hand, alone and out of whole rollouts."""

import pytest
import torch

from _environments import OVER, Linear, Swaps, Table
from brinell.rlab.rollout import Rollouts, advantages


def column(*values):
    return torch.tensor([[float(value)] for value in values])


def test_advantages_by_hand():
    reward, value, after = column(1, 2, 3), column(10, 20, 30), column(20, 30, 40)
    never = torch.zeros(3, 1, dtype=torch.bool)
    # One-step errors with gamma 0.5: 1+10-10, 2+15-20, 3+20-30.
    assert advantages(reward, value, after, never, 0.5, 0.0)[:, 0].tolist() == [1, -3, -7]
    # Summed with 0.5 * 0.5.
    assert advantages(reward, value, after, never, 0.5, 0.5)[:, 0].tolist() == [1 + 0.25 * (-3 + 0.25 * -7), -3 + 0.25 * -7, -7]
    # With lambda 1 the discounted rewards and the last value, less the value.
    assert advantages(reward, value, after, never, 0.5, 1.0)[0, 0].item() == pytest.approx(1 + 1 + 0.75 + 0.125 * 40 - 10)


def test_nothing_flows_across_the_end_of_an_episode():
    reward, value = column(1, 2, 3), column(10, 20, 30)
    after, ended = column(20, 0, 40), torch.tensor([[False], [True], [False]])
    assert advantages(reward, value, after, ended, 0.5, 1.0)[:, 0].tolist() == [1 + 10 - 10 + 0.5 * (2 - 20), 2 - 20, 3 + 20 - 30]


def chain(**options):
    """0 to 1 to 2 to 3 and over, whatever is picked; rewards 1, 2, 4, 8; state s is worth 10 (s + 1)."""
    following = torch.tensor([[1, 1], [2, 2], [3, 3], [OVER, OVER]])
    environment = Table(following, torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0], [8.0, 8.0]]), slots=1, **options)
    network = Linear("state", 4, (2,))
    with torch.no_grad():
        network.value.weight[0] = torch.tensor([10.0, 20.0, 30.0, 40.0])
    return environment, network


def test_a_terminated_episode_has_no_future():
    environment, network = chain()
    rollout = Rollouts(environment, network, 6, 0).collect(0.5, 1.0)
    # Four steps, over, and two more that go on at state 2.
    expected = [1 + 1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8, 1 + 1 + 0.25 * 30, 2 + 0.5 * 30]
    assert rollout.returns.tolist() == pytest.approx(expected)
    assert rollout.advantage.tolist() == pytest.approx([r - v for r, v in zip(expected, [10, 20, 30, 40, 10, 20], strict=True)])


def test_a_truncated_episode_is_worth_its_last_state():
    environment, network = chain(limit=2)
    player = Rollouts(environment, network, 4, 0)
    rollout = player.collect(0.5, 1.0)
    assert rollout.returns.tolist() == pytest.approx([1 + 1 + 0.25 * 30, 2 + 0.5 * 30] * 2)
    assert rollout.observation.features["state"].argmax(1).tolist() == [0, 1, 0, 1]
    progress = player.tally.progress()
    assert (progress.steps, progress.episodes, progress.mean_return, progress.mean_length) == (4, 2, 3, 2)


def test_a_stretch_goes_on_where_the_last_one_stopped():
    environment, network = chain()
    player = Rollouts(environment, network, 3, 0)
    player.collect(0.5, 1.0)
    assert player.collect(0.5, 1.0).observation.features["state"].argmax(1).tolist() == [3, 0, 1]


def test_idle_slots_are_left_out():
    environment = Swaps(slots=4, work=6)
    player = Rollouts(environment, Linear("values", 6, (6, 6)), 3, 0)
    rollout = player.collect(1.0, 1.0)
    assert len(rollout.advantage) == len(rollout.observation.allowed[0]) == 6
    assert rollout.observation.features["values"].unique(dim=0).shape[0] == 6
    assert player.tally.steps == player.tally.episodes == 6
    assert not environment.alive.any()
