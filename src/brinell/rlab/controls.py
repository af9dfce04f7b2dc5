"""Policies that have learned nothing: the controls that learning is measured against."""

from dataclasses import dataclass

import torch

from brinell.core.streams import Streams
from brinell.rlab.env import ENERGY, REMOVAL
from brinell.rlab.interface import Action, Turn
from brinell.rlab.sampling import gumbel, top


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Adds where the prior expects the most, with chance in proportion to it, and removes what is foretold to help most."""

    picks: tuple[int, ...]
    """How many options each branch picks."""

    def act(self, turn: Turn, rng: Streams) -> Action:
        """Patches by energy, without replacement; removals by promise; no choice of distortion."""
        patch = turn.features["patch"]
        adds, removals, family = turn.allowed
        keys = patch[..., ENERGY] + gumbel(rng.fold("add").uniform(adds.shape[1]))
        any_filter = torch.zeros(len(family), 1, dtype=torch.int64, device=family.device)
        return top(keys, adds, self.picks[0]), top(patch[..., REMOVAL], removals, self.picks[1]), any_filter


__all__ = ["Greedy"]
