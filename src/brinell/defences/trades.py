"""TRADES: accuracy on clean inputs, and answers that do not change around them.

Zhang et al. 2019, Theoretically principled trade-off between robustness and accuracy, eq. 5 and
Algorithm 1: the cross-entropy of the clean input plus beta times the largest divergence of the
answers around it from the answer to it.

Deviations:
- The length of a step is a fraction of eps: 2.5 / steps of it, the paper's 0.007 at eps 0.031 in
  ten steps to within a tenth.
- In Linf the start is normal noise of 0.001 as in the paper; of other distances a random point of a
  thousandth of the ball. It is moved into the bounds of the data before the first gradient, and not
  after it.
- The network answers the clean inputs once for the update, and batch norm sees clean and
  adversarial inputs once each; the authors' code answers clean inputs a second time for the
  divergence.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Batch, Network, Threat
from brinell.core.settings import Positive
from brinell.defences._steps import ClimbsTheGradient, divergence, start_near


@dataclass(frozen=True, kw_only=True)
class TRADES(ClimbsTheGradient):
    """Learn the clean inputs, and to answer alike around them."""

    beta: Positive = 6.0
    """Weight of the divergence (1 / lambda of the paper): larger is more robust and less
    accurate."""

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """Inputs whose predictions differ most from the prediction for the clean input."""
        with torch.no_grad():
            clean = network(batch.x)

        def loss(logits: Tensor) -> Tensor:
            """(n,): divergence from the clean answers."""
            return divergence(clean, logits)

        start = start_near(batch, threat, rng)
        return self.climb(network, batch, threat, start, loss)

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) cross-entropy of the clean inputs, and beta times the divergence."""
        clean = network(batch.x)
        attacked = network(x_adv)
        cross_entropy = F.cross_entropy(clean, batch.y, reduction="none")
        return cross_entropy + self.beta * divergence(clean, attacked)

    def cost(self) -> tuple[int, int]:
        """The clean answers, the steps, and two forwards and two backwards for the update."""
        return self.steps + 3, self.steps + 2
