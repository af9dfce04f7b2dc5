"""The greedy policy: the control, without any training, that learned policies are compared with."""

from dataclasses import dataclass

import torch

from brinell.core.streams import Streams
from brinell.rlab.env import ENERGY, REMOVAL
from brinell.rlab.interface import Action, Observation
from brinell.rlab.sampling import gumbel, top


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Adds patches at random in proportion to the prior's energy, and removes those whose removal is predicted to help most."""

    choices: tuple[int, ...]
    """How many options each branch chooses."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """Patches by energy, without replacement; removals by prediction; any distortion."""
        patch = observation.features["patch"]
        adds, removals, family = observation.allowed
        keys = patch[..., ENERGY] + gumbel(rng.fold("add").uniform(adds.shape[1]))
        any_distortion = torch.zeros(len(family), 1, dtype=torch.int64, device=family.device)
        return top(keys, adds, self.choices[0]), top(patch[..., REMOVAL], removals, self.choices[1]), any_distortion


__all__ = ["Greedy"]
