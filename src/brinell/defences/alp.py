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
from brinell.defences._steps import OnGradients, check_steps, climb, cross_entropy, noise, with_more

__all__ = ["ALP"]


@dataclass(frozen=True, kw_only=True)
class ALP(OnGradients):
    """Learn clean and adversarial inputs, and to give both the same logits."""

    weight: float = 0.5
    """Weight of the pairing (lambda)."""
    steps: int = 10
    """Gradient steps of the attack."""
    step_size: float | None = None
    """Length of a step as a fraction of eps; none means 2.5 / steps."""

    def __post_init__(self) -> None:
        above_zero(self, "weight")
        check_steps(self.steps, self.step_size)

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """PGD on the cross-entropy."""
        start = noise(batch, threat, rng).add_(batch.x)
        loss = cross_entropy(batch.y)
        return climb(network, batch, threat, start, steps=self.steps, step_size=self.step_size, loss=loss)

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) half the cross-entropy of either input, and the weighted squared difference of their logits."""
        clean, attacked = network(batch.x), network(x_adv)
        both = [F.cross_entropy(logits, batch.y, reduction="none") for logits in (clean, attacked)]
        return (both[0] + both[1]) / 2 + self.weight * (clean - attacked).square().mean(1)

    def cost(self) -> tuple[int, int]:
        """The steps, and two of each for the update."""
        return self.steps + 2, self.steps + 2

    def safer(self) -> str:
        """More steps."""
        return with_more("alp", self.steps, weight=self.weight)
