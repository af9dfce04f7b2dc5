"""MART: inputs that are misclassified to begin with count more.

Wang et al. 2020, Improving adversarial robustness requires revisiting misclassified examples, eq.
11: a cross-entropy of the adversarial input that also pushes the best wrong class down, and the
divergence between the answers to the clean and to the adversarial input, weighted by how unsure the
network is of the clean one.

Deviations:
- The length of a step is a fraction of eps, 2.5 / steps of it.
- The start is moved into the bounds of the data before the first gradient, and not after it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import Positive
from brinell.defences._steps import ClimbsTheGradient, cross_entropy, divergence, start_near

SLACK = 1e-4
"""Keeps the logarithm of 1 - p finite where a wrong class is certain."""


@dataclass(frozen=True, kw_only=True)
class MART(ClimbsTheGradient):
    """Learn adversarial inputs by a boosted cross-entropy, and unsure ones to be answered alike."""

    weight: Positive = 5.0
    """Weight of the divergence (lambda)."""

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """PGD on the cross-entropy, from close to the clean input."""
        loss = cross_entropy(batch.y)
        start = start_near(batch, threat, rng)
        return self.climb(network, batch, threat, start, loss)

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) the boosted cross-entropy, and the weighted divergence."""
        clean = network(batch.x)
        attacked = network(x_adv)
        # The probability of the likeliest wrong class.
        wrong = attacked.softmax(1).scatter(1, batch.y[:, None], 0.0).amax(1)
        boosted = F.cross_entropy(attacked, batch.y, reduction="none")
        boosted = boosted - torch.log(1 + SLACK - wrong)
        unsure = 1 - clean.softmax(1).gather(1, batch.y[:, None])[:, 0]
        return boosted + self.weight * divergence(clean, attacked) * unsure
