"""FGSM with a random start: one step along the sign of the gradient from a random point, clipped to the ball.

Wong, Rice & Kolter 2020, Fast is better than free: revisiting adversarial training, Algorithm 3. At larger budgets, or when it is
trained for long, it comes to hold against its own step alone (catastrophic overfitting, section 5.4 there); the training loop
notices that, and goes on with N-FGSM.

Deviations: the attack meets the network in evaluation mode.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import Range
from brinell.defences._steps import LearnsTheWorst, OnGradients, climb, cross_entropy, noise

__all__ = ["FGSMRS"]


@dataclass(frozen=True, kw_only=True)
class FGSMRS(OnGradients, LearnsTheWorst):
    """Learn from one clipped gradient step that begins at a random point of the ball."""

    step_size: Annotated[float, Range("(0, 2]")] = 1.25
    """Length of the step as a multiple of eps (alpha)."""

    distances = frozenset({"linf"})

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """A uniform point of the cube, one step, clipped."""
        start = noise(batch, threat, rng).add_(batch.x)
        return climb(network, batch, threat, start, steps=1, step_size=self.step_size, loss=cross_entropy(batch.y))

    def cost(self) -> tuple[int, int]:
        """A forward and a backward for the step, and for the update."""
        return 2, 2

    def safer(self) -> str:
        """N-FGSM, which costs the same."""
        return "n-fgsm"
