"""MART: inputs that are misclassified to begin with count more.

Wang et al. 2020, Improving adversarial robustness requires revisiting misclassified examples, eq. 11: a cross-entropy of the
adversarial input that also pushes the best wrong class down, and the divergence between the answers to the clean and to the
adversarial input, weighted by how unsure the network is of the clean one.

Deviations:
- The length of a step is a fraction of eps, 2.5 / steps of it.
- The start is moved into the bounds of the data before the first gradient, and not after it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import above_zero
from brinell.defences._steps import OnGradients, check_steps, climb, cross_entropy, divergence, near, with_more

__all__ = ["MART"]

SLACK = 1e-4
"""Keeps the logarithm of 1 - p finite where a wrong class is certain."""


@dataclass(frozen=True, kw_only=True)
class MART(OnGradients):
    """Learn adversarial inputs by a boosted cross-entropy, and unsure ones to be answered alike."""

    weight: float = 5.0
    """Weight of the divergence (lambda)."""
    steps: int = 10
    """Gradient steps of the attack."""
    step_size: float | None = None
    """Length of a step as a fraction of eps; none means 2.5 / steps."""

    def __post_init__(self) -> None:
        above_zero(self, "weight")
        check_steps(self.steps, self.step_size)

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """PGD on the cross-entropy, from close to the clean input."""
        loss, start = cross_entropy(batch.y), near(batch, threat, rng)
        return climb(network, batch, threat, start, steps=self.steps, step_size=self.step_size, loss=loss)

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) the boosted cross-entropy, and the weighted divergence."""
        clean, attacked = network(batch.x), network(x_adv)
        wrong = attacked.softmax(1).scatter(1, batch.y[:, None], 0.0).amax(1)
        boosted = F.cross_entropy(attacked, batch.y, reduction="none") - torch.log(1 + SLACK - wrong)
        unsure = 1 - clean.softmax(1).gather(1, batch.y[:, None])[:, 0]
        return boosted + self.weight * divergence(clean, attacked) * unsure

    def cost(self) -> tuple[int, int]:
        """The steps, and two of each for the update."""
        return self.steps + 2, self.steps + 2

    def safer(self) -> str:
        """More steps."""
        return with_more("mart", self.steps, weight=self.weight)
