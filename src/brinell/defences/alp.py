"""ALP, adversarial logit pairing: clean and adversarial inputs are learned alike, and their logits
are pulled together.

Kannan, Kurakin & Goodfellow 2018, Adversarial logit pairing (arXiv 1803.06373), section 3.1: the
cross-entropy of a mixed batch, half clean and half adversarial, plus lambda times the squared L2
distance between the logits of an input and those of its adversarial example.

Engstrom, Ilyas & Athalye 2018 (arXiv 1807.10272) broke the published network: PGD of more steps
left 0.6 % of its accuracy on ImageNet. Pairing can make gradients misleading, so audit a network
that it trained by attacks without gradients too.

Deviations:
- Examples come from PGD of Madry et al. 2018 away from the label; the paper's on ImageNet go
  towards a target.
- The squared distance is a mean over the classes, as in the authors' code, for which the paper's
  weights were chosen.
- The network answers clean and adversarial inputs in two calls, so that batch norm sees them
  apart; in the authors' code they are one batch.
- Labels are not smoothed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import Positive
from brinell.defences._steps import ClimbsTheGradient, cross_entropy, noise


@dataclass(frozen=True, kw_only=True)
class ALP(ClimbsTheGradient):
    """Learn clean and adversarial inputs in equal parts, with similar logits for both."""

    weight: Positive = 0.5
    """Weight of the squared distance of the logits (lambda)."""

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """PGD on the cross-entropy, from a uniform point of the ball."""
        start = noise(batch, threat, rng).add_(batch.x)
        return self.climb(network, batch, threat, start, cross_entropy(batch.y))

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) the mean of both cross-entropies, and the weighted distance of the logits."""
        clean = network(batch.x)
        attacked = network(x_adv)
        distance = (clean - attacked).square().mean(1)
        both = [F.cross_entropy(logits, batch.y, reduction="none") for logits in (clean, attacked)]
        return (both[0] + both[1]) / 2 + self.weight * distance
