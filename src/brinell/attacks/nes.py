"""NES: projected gradient ascent along a gradient estimated from the scores of pairs of noisy inputs.

Ilyas, Engstrom, Athalye & Lin 2018, Black-box adversarial attacks with limited queries and information, Algorithm 1 and section
3.1: natural evolution strategies with antithetic sampling, each estimate averaged with those before it.

Deviations:
- The noisy inputs are projected onto ball and box, so that every query is about an input within the threat.
- The iterates themselves are not asked about, but for the last one. The paper looks at each of them and counts that query.
- Lengths are shares of eps: the noise as in the paper, 0.001 at eps 0.05; in L2, which the paper does not have, its Euclidean
  length is the same share, and steps go along the normalised estimate.
- 20 samples an estimate and steps of a tenth of eps, not 50 and a fifth: ResNet-20 at L2 1, 40 samples, 500 queries: 39 fooled
  instead of 34, in Linf at 4/255 24 instead of 19.
- The loss to raise is the margin; the paper's is minus the probability of the true class (`loss=ce`), which is flat where the
  model is sure.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, still_active
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.norms import per_sample
from brinell.core.settings import Count, Positive, Range

__all__ = ["NES"]

ROOM = 2**23
"""Values of noisy inputs that are held at once; samples beyond that are attacked one group after another."""


@dataclass(frozen=True, kw_only=True)
class NES(EveryKind):
    """Natural evolution strategies: no gradients, `samples` queries a step."""

    steps: Count = 250
    """Steps of `samples` queries each; one more query is for the last input."""
    samples: Count = 20
    """Noisy inputs of each estimate, in pairs on both sides of the current one; an even number."""
    step_size: Positive = 0.1
    """Length of a step as a share of eps."""
    sigma: Positive = 0.02
    """Size of the noise in each value in Linf, and its Euclidean length in L2, as a share of eps."""
    momentum: Annotated[float, Range("[0, 1)")] = 0.9
    """Weight of the estimates before in the direction of a step."""
    loss: Literal["margin", "ce"] = "margin"
    """Loss to raise: margin or ce (cross-entropy: the paper's probability of the true class)."""

    access = Access.SCORES
    distances = frozenset({"linf", "l2"})
    family = "budgeted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples % 2:
            raise ValueError(f"samples is {self.samples}; they come in pairs, so it is an even number from 2")

    def cost(self, classes: int) -> tuple[int, int]:
        """The samples of each step, and one forward for the last input."""
        return self.steps * self.samples + 1, 0

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Climb with every sample until it is fooled or the steps are spent."""
        at_once = max(1, ROOM // (self.samples * math.prod(threat.domain.shape)))
        for rows in torch.split(torch.arange(len(batch), device=batch.x.device), at_once):
            self._run(oracle, batch.select(rows), threat.select(rows), rng.select(rows))

    def _run(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Ascend along estimated gradients."""
        x, direction = batch.x, torch.zeros_like(batch.x)
        for step in range(self.steps):
            direction = self.momentum * direction + (1 - self.momentum) * self._estimate(oracle, batch, threat, rng.fold(step), x)
            batch, threat, rng, x, direction = still_active(oracle, batch, threat, rng, x, direction)
            if not len(batch):
                return
            change = threat.distance.ascent(direction) * per_sample(self.step_size * threat.eps, x)
            x = threat.project(x + change, batch.x)
        oracle.scores(batch.ids, x)

    def _estimate(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, x: Tensor) -> Tensor:
        """(n, *shape): sum over the pairs of the difference of their losses times their noise, which is uphill."""
        shape, pairs = x.shape[1:], self.samples // 2
        scale = self.sigma * threat.eps / (math.sqrt(math.prod(shape)) if threat.distance.name == "l2" else 1.0)
        noise = rng.normal(pairs, *shape).transpose(0, 1)
        step = noise * per_sample(scale, x)
        sides, rows = torch.cat([x + step, x - step]).flatten(0, 1), torch.arange(len(x), device=x.device).repeat(2 * pairs)
        # Rows beyond a sample's budget are not asked: their loss counts as 0, and the sample leaves after the step.
        active = oracle.active(batch.ids[rows]).nonzero()[:, 0]
        indices = rows[active]
        probes = threat.select(indices).project(sides[active], batch.x[indices])
        value = torch.zeros(len(rows), device=x.device)
        value[active] = oracle.loss(batch.ids[indices], probes, LOSSES[self.loss])
        up, down = value.reshape(2, pairs, len(x))
        estimate: Tensor = (per_sample((up - down).flatten(), sides).reshape(pairs, len(x), *[1] * len(shape)) * noise).sum(0)
        return estimate
