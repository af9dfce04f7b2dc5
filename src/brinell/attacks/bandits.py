"""Bandits: a gradient estimated from two queries a step, and remembered from step to step.

Ilyas, Engstrom & Madry 2019, Prior convictions: black-box adversarial attacks with bandits and priors, Algorithms 1 to 3. What is
remembered is the time-dependent prior; it is constant on tiles, which is the data-dependent one.

Deviations:
- Both queries of a step are about inputs within the threat: what leaves ball or box is projected back.
- The iterates themselves are not asked about, only the two inputs beside each, and the last one. The paper looks at every
  iterate for success and does not count that query.
- Step lengths are shares of eps, those of the paper's experiments at eps 0.05 in Linf and 5 in L2; in Linf finite differences are
  taken over a share of the longest perturbation's Euclidean length.
- The slope is divided by the root mean square of those seen on the sample so far, so that the prior's step fits any model. With
  the paper's slopes the prior either stands still or goes to its ends at once: ResNet-20 at L2 1, 60 samples, 1,000 queries: 47
  fooled with the paper's step, 58 with one fitted to the model, all of 40 with slopes divided.
- The loss to raise is the margin; the paper's is the cross-entropy (`loss=ce`), which is flat where the model is sure.
- Tiles are half as many as there are values along an axis, and 50 at most, which is the paper's number on ImageNet.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind
from brinell.core.contracts import Access, Batch, Domain, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.norms import l2, per_sample
from brinell.core.patches import PatchGrid
from brinell.core.settings import Count, Positive

__all__ = ["Bandits"]

TILES = 50
"""Most tiles along an axis."""


@dataclass(frozen=True, kw_only=True)
class Bandits(EveryKind):
    """Bandits with time and data priors: no gradients, two queries a step."""

    steps: Count = 2500
    """Steps of two queries each; one more query is for the last input."""
    step_size: Positive | None = None
    """Length of a step as a share of eps; none means 0.2 in Linf and 0.1 in L2."""
    prior_step_size: Positive | None = None
    """Length of a step of the prior, as a share of its random vector; none means 0.1 in Linf and 1 in L2."""
    exploration: Positive | None = None
    """Length of the random vectors that are added to the prior; none means 1 in Linf and 0.01 in L2."""
    difference: Positive = 0.002
    """Over which length finite differences are taken, as a share of the longest perturbation's Euclidean length."""
    tile: Count | None = None
    """Values along each side of a tile; none means a fiftieth of an axis, and at least 2. A vector has none."""
    loss: Literal["margin", "ce"] = "margin"
    """Loss to raise: margin or ce (cross-entropy, the paper's)."""

    access = Access.SCORES
    distances = frozenset({"linf", "l2"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """Two forwards a step and one for the last input."""
        return 2 * self.steps + 1, 0

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Algorithm 3 on all samples."""
        linf, loss = threat.distance.name == "linf", LOSSES[self.loss]
        step_size, rate = self.step_size or (0.2 if linf else 0.1), self.prior_step_size or (0.1 if linf else 1.0)
        exploration = self.exploration or (1.0 if linf else 0.01)
        tiles = _Tiles(threat.domain, self.tile, batch.x.device)
        prior, x, squares = torch.zeros(len(batch), tiles.count, device=batch.x.device), batch.x, torch.zeros_like(threat.eps)
        for step in range(self.steps):
            pair_ids = torch.cat([batch.ids, batch.ids])
            first, second = oracle.active(pair_ids).chunk(2)
            if not second.all():
                _last(oracle, batch.ids, x, first & ~second)
                batch, threat, rng = batch.select(second), threat.select(second), rng.select(second)
                x, prior, squares = x[second], prior[second], squares[second]
                if not len(batch):
                    return
                pair_ids = torch.cat([batch.ids, batch.ids])
            noise = rng.fold(step).normal(tiles.count).mul_(exploration / math.sqrt(tiles.count))
            length = self.difference * _reach(threat)
            probes = [
                threat.project(x + per_sample(length, x) * _unit(tiles.spread(beside)), batch.x)
                for beside in (prior + noise, prior - noise)
            ]
            up, down = oracle.loss(pair_ids, torch.cat(probes), loss).chunk(2)
            squares += (up - down) ** 2
            slope = (up - down) / (squares / (step + 1)).sqrt().clamp_min(1e-30)
            prior = _ascend(prior, rate * slope[:, None] * noise, linf)
            direction = tiles.spread(prior)
            x = threat.project(x + per_sample(step_size * threat.eps, x) * threat.distance.ascent(direction), batch.x)
        _last(oracle, batch.ids, x, oracle.active(batch.ids))


class _Tiles:
    """Values shared by neighbours: one for each channel and tile."""

    def __init__(self, domain: Domain, side: int | None, device: torch.device) -> None:
        self._shape = domain.shape
        sides = tuple(min(length, side or max(2, -(-length // TILES))) for length in domain.grid)
        patches = PatchGrid(domain.shape, (1,) if domain.kind == "vector" else sides)
        self._over = patches.covers[:, 0].to(device)
        self._channels, self.count = patches.channels, patches.channels * len(patches)

    def spread(self, values: Tensor) -> Tensor:
        """(n, count) to (n, *shape): each tile's value at all its places."""
        return values.reshape(len(values), self._channels, -1)[:, :, self._over].reshape(-1, *self._shape)


def _reach(threat: Threat) -> Tensor:
    """(n,): Euclidean length of the longest perturbation that eps allows."""
    return threat.eps * (math.sqrt(math.prod(threat.domain.shape)) if threat.distance.name == "linf" else 1.0)


def _unit(direction: Tensor) -> Tensor:
    """(n, *shape): directions scaled to Euclidean length 1."""
    return direction / per_sample(l2(direction).clamp_min(1e-30), direction)


def _ascend(prior: Tensor, change: Tensor, linf: bool) -> Tensor:
    """The prior after one step: exponentiated gradients on (-1, 1) in Linf, a plain sum in L2."""
    if not linf:
        return prior + change
    # With p = (1 + prior) / 2 the paper's p exp(g) / (p exp(g) + (1 - p) exp(-g)) is the logistic function of logit(p) + 2 g.
    return torch.tanh(torch.atanh(prior.clamp(-1 + 1e-6, 1 - 1e-6)) + change)


def _last(oracle: Oracle, ids: Tensor, x: Tensor, rows: Tensor) -> None:
    """Look at the inputs that no step will look beside any more."""
    if rows.any():
        oracle.scores(ids[rows], x[rows])
