"""ALP: adversarial logit pairing, which draws the logits of a clean input and of its adversarial one together.

Kannan, Kurakin & Goodfellow 2018, Adversarial logit pairing, section 4: half of the loss is the cross-entropy of clean inputs,
half that of adversarial ones, and the mean squared difference of their logits is added with a weight.

Deviations: PGD of ten steps, as for the other recipes here, so that they can be compared; it meets the network in
evaluation mode.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import above_zero
from brinell.defences._steps import ClimbsTheGradient, cross_entropy, noise

__all__ = ["ALP"]


@dataclass(frozen=True, kw_only=True)
class ALP(ClimbsTheGradient):
    """Learn clean and adversarial inputs, and to give both the same logits."""

    weight: float = 0.5
    """Weight of the pairing (lambda)."""

    def __post_init__(self) -> None:
        above_zero(self, "weight")
        super().__post_init__()

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """PGD on the cross-entropy."""
        start = noise(batch, threat, rng).add_(batch.x)
        loss = cross_entropy(batch.y)
        return self.climb(network, batch, threat, start, loss)

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) half the cross-entropy of either input, and the weighted squared difference of their logits."""
        clean, attacked = network(batch.x), network(x_adv)
        losses = [F.cross_entropy(logits, batch.y, reduction="none") for logits in (clean, attacked)]
        return (losses[0] + losses[1]) / 2 + self.weight * (clean - attacked).square().mean(1)
