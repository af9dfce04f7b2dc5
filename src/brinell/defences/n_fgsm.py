"""N-FGSM: one step from an input with strong noise, and nothing clipped to the ball.

de Jorge et al. 2022, Make some noise: reliable and efficient single-step adversarial training,
Algorithm 1. The noise is drawn from a cube of k times eps and stays in the input that is learned
from, which keeps single-step training from overfitting to its own step (catastrophic overfitting)
over a wide range of eps.

Deviations:
- Noise and step are kept within the bounds of the data, as in the authors' code; the paper leaves
  that open.
- The attack meets the network in evaluation mode.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import Positive
from brinell.defences._steps import (
    LearnsTheWorst,
    OnGradients,
    cross_entropy,
    gradient,
    noise,
    restore_fixed,
    stepped,
)


@dataclass(frozen=True, kw_only=True)
class NFGSM(OnGradients, LearnsTheWorst):
    """Learn from one gradient step that begins at strong noise; twice the time of plain
    training.
    """

    noise: Positive = 2.0
    """The noise (k of the paper): a cube of this many times eps."""
    step_size: Positive = 1.0
    """Length of the step as a multiple of eps (alpha)."""

    distances = frozenset({"linf"})

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """One step from noise, within the bounds of the data alone."""
        x = threat.domain.clamp(noise(batch, threat, rng).mul_(self.noise).add_(batch.x))
        x = restore_fixed(x, batch, threat)
        grad = gradient(network, x, cross_entropy(batch.y))
        x = threat.domain.clamp(stepped(x, grad, threat, self.step_size))
        return restore_fixed(x, batch, threat)

    def cost(self) -> tuple[int, int]:
        """A forward and a backward for the step, and for the update."""
        return 2, 2

    def safer(self) -> str:
        """Two steps of PGD."""
        return "pgd(steps=2)"
