"""Policies that have learned nothing: the controls that learning is measured against."""

from dataclasses import dataclass

import torch

from brinell.core.streams import Streams
from brinell.rlab.env import ENERGY, REMOVAL
from brinell.rlab.interface import Action, Observation
from brinell.rlab.sampling import gumbel, top


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Adds where the prior expects the most, with chance in proportion to it, and removes what is predicted to help most."""

    choices: tuple[int, ...]
    """How many options each branch chooses."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """Patches by energy, without replacement; removals by promise; no choice of distortion."""
        patch = observation.features["patch"]
        adds, removals, family = observation.allowed
        keys = patch[..., ENERGY] + gumbel(rng.fold("add").uniform(adds.shape[1]))
        any_distortion = torch.zeros(len(family), 1, dtype=torch.int64, device=family.device)
        return top(keys, adds, self.choices[0]), top(patch[..., REMOVAL], removals, self.choices[1]), any_distortion


__all__ = ["Greedy"]
