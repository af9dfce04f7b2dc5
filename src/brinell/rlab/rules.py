"""How an episode of RLAB goes: its length, its pace, what a step may clear, and its reward."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.settings import at_least, one_of
from brinell.rlab.rewards import REWARDS, RewardName

PACE = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of an episode after which half as many patches are changed at once: Square's schedule
(Andriushchenko et al. 2020)."""

SHRINK = 0.95
"""From the distance of one success to the one within which the next is looked for."""
CLOSER = 1 / 64
"""The least share of the patches that a step changes after the first success."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How an episode goes."""

    steps: int = 1000
    """Queries after the first one until an episode is given up."""
    p_init: float = 0.5
    """Share of the patches that the first steps change."""
    removals: float = 0.5
    """How many patches a step may clear, as a share of those it changes; 0 only adds."""
    temperature: float = 0.3
    """How far chance moves the choice of a variant, in deviations of what is not known about it."""
    candidates: int = 4
    """Patches that are compared for each one that a step changes: those of the best predictions are changed."""
    offers: int = 32
    """Variants that are compared for a patch in one step."""
    patience: int = 50
    """Queries without a gain after which an episode is stuck (`rlab.restart`); 0 for never."""
    refine: int = 0
    """Queries after the first success that look for one at a smaller distance."""
    reward: RewardName = "margin"
    """What a step pays: margin, dilution or projected (`rlab.rewards`)."""

    def __post_init__(self) -> None:
        at_least(self, steps=1, candidates=1, offers=1, refine=0, patience=0)
        if not 0 < self.p_init <= 1 or not 0 <= self.removals <= 1 or not self.temperature >= 0:
            raise ValueError("p_init must be above 0 and at most 1, removals from 0 to 1, temperature at least 0")
        one_of(self, reward=tuple(REWARDS))

    def changes(self, age: Tensor, patches: int) -> Tensor:
        """(n,): how many patches a step changes at most, after `age` (n,) steps."""
        halvings = (age[:, None] > self.steps * torch.tensor(PACE, device=age.device)).sum(1)
        return (self.p_init * patches * 0.5**halvings).round().long().clamp_min(1)


USUAL = Rules()
"""The rules where none are given."""
