"""Policies: at random, and by a network."""

from dataclasses import dataclass

import torch
from torch import nn

from brinell.core.streams import Streams
from brinell.rlab.interface import Action, Observation
from brinell.rlab.sampling import best, greedy, sampled


@dataclass(frozen=True, kw_only=True)
class Random:
    """Every set of allowed options is as likely as any other: the control that learning is compared with."""

    choices: tuple[int, ...]
    """How many options each branch chooses."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """Uniform sampling without replacement."""
        keys = (rng.fold(branch).uniform(allowed.shape[1]) for branch, allowed in enumerate(observation.allowed))
        return best(keys, observation, self.choices)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Acts by a network: the options of the highest outputs, or a sample."""

    network: nn.Module
    """Answers features with `Heads`."""
    choices: tuple[int, ...]
    """How many options each branch chooses."""
    temperature: float = 0.0
    """0 takes the options of the highest outputs; above 0 they are drawn in proportion to
    exp(output / temperature)."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; it must be at least 0")

    @torch.no_grad()
    def act(self, observation: Observation, rng: Streams) -> Action:
        """One pass of the network for all slots."""
        heads = self.network(observation.features)
        if not self.temperature:
            return greedy(heads, observation, self.choices)
        uniform = [rng.fold(branch).uniform(allowed.shape[1]) for branch, allowed in enumerate(observation.allowed)]
        cooled = heads._replace(branches=tuple(outputs / self.temperature for outputs in heads.branches))
        return sampled(cooled, observation, self.choices, uniform)
