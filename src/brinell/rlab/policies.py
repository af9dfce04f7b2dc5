"""Policies: by chance, and by a network."""

from dataclasses import dataclass

import torch
from torch import nn

from brinell.core.streams import Streams
from brinell.rlab.interface import Action, Turn
from brinell.rlab.sampling import best, greedy, sampled


@dataclass(frozen=True, kw_only=True)
class Random:
    """Every set of allowed picks is as likely as any other: what learning is measured against."""

    picks: tuple[int, ...]
    """How many options each branch picks."""

    def act(self, turn: Turn, rng: Streams) -> Action:
        """Uniform picks without replacement."""
        keys = (rng.fold(branch).uniform(allowed.shape[1]) for branch, allowed in enumerate(turn.allowed))
        return best(keys, turn, self.picks)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A network's picks: the best ones, or a sample of them."""

    network: nn.Module
    """Answers features with `Heads`."""
    picks: tuple[int, ...]
    """How many options each branch picks."""
    temperature: float = 0.0
    """0 picks the options with the highest outputs; above 0 draws them in proportion to exp(output / temperature)."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; it must be at least 0")

    @torch.no_grad()
    def act(self, turn: Turn, rng: Streams) -> Action:
        """One pass of the network for all slots."""
        heads = self.network(turn.features)
        if not self.temperature:
            return greedy(heads, turn, self.picks)
        uniform = [rng.fold(branch).uniform(allowed.shape[1]) for branch, allowed in enumerate(turn.allowed)]
        cooled = heads._replace(branches=tuple(outputs / self.temperature for outputs in heads.branches))
        return sampled(cooled, turn, self.picks, uniform)
