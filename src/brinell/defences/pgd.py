"""Adversarial training by PGD: each batch is replaced by its iterates of gradient ascent.

Madry et al. 2018, Towards deep learning models resistant to adversarial attacks, section 2.1 and
eq. 2.1.

Deviations:
- The attack meets the network in evaluation mode, as whoever attacks it later does; the paper's
  code attacks in training mode.
- Seven steps of 2.5 / steps of eps by default, as the paper does for CIFAR-10 (7 steps of 2/255 at
  8/255, which is the same).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import Count
from brinell.defences._steps import ClimbsTheGradient, LearnsTheWorst, cross_entropy, noise


@dataclass(frozen=True, kw_only=True)
class PGD(ClimbsTheGradient, LearnsTheWorst):
    """Learn from the last iterate of projected gradient ascent on the cross-entropy."""

    steps: Count = 7
    """Gradient steps of the attack."""

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """Gradient ascent on the cross-entropy from a uniform point of the ball."""
        start = noise(batch, threat, rng).add_(batch.x)
        loss = cross_entropy(batch.y)
        return self.climb(network, batch, threat, start, loss)

    def cost(self) -> tuple[int, int]:
        """The steps, and a forward and a backward for the update."""
        return self.steps + 1, self.steps + 1
