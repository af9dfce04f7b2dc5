"""Policies: at random, greedy, and by a network."""

from dataclasses import dataclass

import torch
from torch import nn

from brinell.core.streams import Streams
from brinell.rlab.env import ENERGY, REMOVAL
from brinell.rlab.interface import Action, Observation
from brinell.rlab.sampling import best, gumbel, top

NEVER_ELSE = 1e6
"""An output at which an option is always chosen."""


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
class Greedy:
    """The control without training: adds patches in proportion to the prior's energy, removes those predicted to help most."""

    choices: tuple[int, ...]
    """How many options each branch chooses."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """Patches by energy, without replacement; removals by prediction; any distortion."""
        patch = observation.features["patch"]
        adds, removals, family = observation.allowed
        keys = patch[..., ENERGY] + gumbel(rng.fold("add").uniform(adds.shape[1]))
        any_distortion = torch.zeros(len(family), 1, dtype=torch.int64, device=family.device)
        return top(keys, adds, self.choices[0]), top(patch[..., REMOVAL], removals, self.choices[1]), any_distortion


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Acts by a network: the options of the highest outputs, or a sample."""

    network: nn.Module
    """Answers features with `Heads`; where a branch has other options than it was trained for, the first one is taken."""
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
        keys = list(self.network(observation.features).branches)
        for branch, allowed in enumerate(observation.allowed):
            if keys[branch].shape != allowed.shape:  # trained for other distortions: any of these
                keys[branch] = torch.zeros_like(allowed, dtype=torch.float32)
                keys[branch][:, 0] = NEVER_ELSE
            if self.temperature:
                keys[branch] = keys[branch] / self.temperature + gumbel(rng.fold(branch).uniform(allowed.shape[1]))
        return best(keys, observation, self.choices)
