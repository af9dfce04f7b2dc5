"""Rollouts of the current policy, and the advantages of their actions."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from brinell.rlab.interface import Action, Environment, Heads, Observation, mapped
from brinell.rlab.layers import seeded
from brinell.rlab.sampling import best, gumbel
from brinell.rlab.training import Tally, device_of, first_observation


class Rollout(NamedTuple):
    """m steps of single slots, in no order that matters. Overwritten by the next rollout."""

    observation: Observation
    heads: Heads
    """What the network answered when it acted."""
    action: Action
    advantage: Tensor
    """(m,): how much better the action was than the network expected."""
    returns: Tensor
    """(m,): what the value should have been."""

    def select(self, rows: Tensor) -> "Rollout":
        """The chosen steps."""
        chosen: Rollout = mapped(lambda one: one[rows], self)
        return chosen


def advantages(reward: Tensor, value: Tensor, after: Tensor, ended: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, High-dimensional continuous control, equation 16).

    Args:
        reward: (T, n).
        value: (T, n), of the states acted in.
        after: (T, n), of the states after the action: 0 where the episode terminated, the last
            state's own where it was cut off.
        ended: (T, n) bool: nothing later belongs to this episode.
        gamma: discount of a step.
        gae_lambda: 0 looks one step ahead, 1 to the end of the rollout.
    """
    errors = reward + gamma * after - value
    decay = gamma * gae_lambda * (~ended).to(errors.dtype)
    gains, last = torch.empty_like(errors), torch.zeros_like(errors[0])
    for step in reversed(range(len(errors))):
        last = torch.addcmul(errors[step], decay[step], last)
        gains[step] = last
    return gains


class Rollouts:
    """Runs an environment with a network's policy, one rollout after another."""

    def __init__(self, environment: Environment, network: nn.Module, length: int, seed: int) -> None:
        """Begin the first episodes; each rollout is `length` steps of all slots."""
        self._environment, self._network, self._length = environment, network, length
        self._generator = seeded(seed, device_of(network))
        self._observation = first_observation(environment)
        self.tally = Tally(environment.alive)
        observation, slots = self._observation, len(environment.alive)
        self._observations: Observation = mapped(lambda one: one.new_empty(length, *one.shape), observation)
        self._heads = Heads(self._float(slots), tuple(self._float(*one.shape) for one in observation.allowed))
        self._actions = tuple(
            one.new_empty(length, slots, choices, dtype=torch.int64)
            for one, choices in zip(observation.allowed, environment.choices, strict=True)
        )
        self._reward, self._last = self._float(slots), self._float(slots)
        self._alive, self._ended = (torch.empty_like(self._reward, dtype=torch.bool) for _ in range(2))

    def _float(self, *shape: int) -> Tensor:
        return torch.empty(self._length, *shape, device=self._generator.device)

    @torch.no_grad()
    def collect(self, gamma: float, gae_lambda: float) -> Rollout:
        """One rollout."""
        self._last.zero_()
        noise = [gumbel(torch.rand(one.shape, generator=self._generator, device=one.device)) for one in self._heads.branches]
        for step in range(self._length):
            self._step(step, [one[step] for one in noise])
        value = self._heads.value
        following = torch.cat([value[1:], self._network(self._observation.features).value[None]])
        after = torch.where(self._ended, self._last, following)
        advantage = advantages(self._reward, value, after, self._ended, gamma, gae_lambda)
        steps = Rollout(self._observations, self._heads, self._actions, advantage, advantage + value)
        rollout: Rollout = mapped(lambda one: one.flatten(0, 1), steps)
        alive = self._alive.flatten()
        return rollout if bool(alive.all()) else rollout.select(alive)

    def _step(self, step: int, noise: list[Tensor]) -> None:
        """Act once in all slots, and note everything."""
        environment, observation = self._environment, self._observation
        heads: Heads = self._network(observation.features)
        action = best((logits + one for logits, one in zip(heads.branches, noise, strict=True)), observation, environment.choices)
        self._keep(step, (self._observations, self._heads), (observation, heads))
        self._alive[step] = environment.alive
        _, reward, terminated, truncated = after = environment.step(action)
        # Only now: the environment may have replaced choices without effect.
        self._keep(step, self._actions, action)
        self._reward[step], self._observation = reward, after.observation
        ended = torch.logical_or(terminated, truncated, out=self._ended[step])
        if self.tally.count(reward, self._alive[step], ended):
            cut = truncated & ~terminated
            if cut.any():
                self._last[step, cut] = self._network(
                    {name: feature[cut] for name, feature in after.observation.features.items()}
                ).value
            self._observation = environment.reset(ended)

    @staticmethod
    def _keep(step: int, kept: Any, new: Any) -> None:
        mapped(lambda one, tensor: one[step].copy_(tensor), kept, new)

    def shuffled(self, count: int) -> Tensor:
        """0 to count-1 in random order."""
        return torch.randperm(count, generator=self._generator, device=self._generator.device)
