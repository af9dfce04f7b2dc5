"""PPO of the benchmarks: likelihoods and advantages beside naive references, and a learner that finds
the one option that pays.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from brinell.core.user_files import import_file
from brinell.rlab.episodes import Observation, StepResult
from brinell.rlab.policy import Heads

ppo = import_file(Path(__file__).parents[2] / "benchmarks" / "rlab" / "policy_gradient.py")


def generator(seed):
    return torch.Generator().manual_seed(seed)


def naive_likelihood(logits, allowed, choices):
    """Each choice is a softmax over the options that are allowed and were not chosen before."""
    total, remaining = 0.0, set(allowed.nonzero()[:, 0].tolist())
    for choice in choices.tolist():
        if choice < 0:
            continue
        weights = {option: float(logits[option].double().exp()) for option in remaining}
        total += float(torch.tensor(weights[choice] / sum(weights.values())).log())
        remaining.remove(choice)
    return total


def test_the_likelihood_is_that_of_draws_without_replacement():
    """Random logits, options and choices, some of which are not made."""
    for seed in range(20):
        rng = generator(seed)
        logits = 2 * torch.randn(5, 7, generator=rng)
        allowed = torch.rand(5, 7, generator=rng) < 0.8
        allowed[:, :2] = True
        order = torch.rand(5, 7, generator=rng).masked_fill(~allowed, -1).topk(2, dim=1).indices
        choices = torch.where(torch.rand(5, 2, generator=rng) < 0.8, order, -1)
        choices[choices[:, 0] < 0, 1] = -1
        heads = Heads(torch.zeros(5), (logits,))
        expected = [naive_likelihood(*row) for row in zip(logits, allowed, choices, strict=True)]
        result = ppo.likelihood(heads, (allowed,), (choices,))
        torch.testing.assert_close(result, torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_advantages_by_hand():
    """Two steps and the end of an episode, with a discount of 0.5 and a decay of 0.5: the errors
    are 1 + 0.5 * 2 - 3, 2 + 0 - 2 and 4 + 0.5 * 6 - 1.
    """
    settings = ppo.PPOSettings(gamma=0.5, gae_lambda=0.5)
    columns = [[1.0, 2, 4], [3.0, 2, 1], [2.0, 0, 6]]
    reward, value, after = (torch.tensor(column)[:, None] for column in columns)
    finished = torch.tensor([[False], [True], [False]])
    gains = ppo.advantages(reward, value, after, finished, settings)
    assert gains[:, 0].tolist() == [-1.0 + 0.25 * 0.0, 0.0, 6.0]


def test_nothing_is_gained_beyond_the_clip():
    change, gain = torch.tensor([0.5, -0.5, 0.1, 0.5]), torch.tensor([1.0, -1.0, 1.0, -1.0])
    expected = [1.2, -0.8, torch.tensor(0.1).exp().item(), -torch.tensor(0.5).exp().item()]
    assert ppo.clipped_gain(change, gain, 0.2).tolist() == pytest.approx(expected)


class Bandit:
    """Episodes of one step in which option 2 of four pays 1."""

    choices = (1,)

    def __init__(self, slots=16):
        self.alive = torch.ones(slots, dtype=torch.bool)

    def reset(self, mask):
        n = len(self.alive)
        return Observation({"x": torch.ones(n, 1)}, (torch.ones(n, 4, dtype=torch.bool),))

    def step(self, action):
        reward = (action[0][:, 0] == 2).float()
        return StepResult(self.reset(self.alive), reward, self.alive, torch.zeros_like(self.alive))


class Logits(nn.Module):
    """Logits and a value that depend on nothing."""

    def __init__(self):
        super().__init__()
        self.logits, self.value = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(1))

    def forward(self, features):
        n = len(features["x"])
        return Heads(self.value.expand(n), (self.logits.expand(n, 4),))


def test_it_learns_the_option_that_pays():
    network, bandit = Logits(), Bandit()
    learner = ppo.PPO(ppo.PPOSettings(length=8, learning_rate=0.02), network, bandit, 0)
    learner.learn(16 * 8 * 20)
    assert learner.steps == 16 * 8 * 20
    assert float(network.logits.softmax(0)[2].detach()) > 0.9
