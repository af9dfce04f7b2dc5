"""AWP: the weights are attacked too, so that the loss is low in a neighbourhood of weights.

Wu, Xia & Wang 2020, Adversarial weight perturbation helps robust generalization, section 4.3: on
the adversarial batch the weights of each layer move along the gradient by gamma times the layer's
norm, the update is computed there, and applied to the weights as they were.

Deviations:
- The move is one step of exactly this length, from the first step on; the authors' code for TRADES
  begins after ten epochs.
- In place of the proxy network of that code the network itself is asked; batch norm does not learn
  from that pass.
- Weights of one dimension are left alone, biases and normalisation layers, as there; a position
  embedding is moved too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Kind
from brinell.core.settings import Checked, Positive


@dataclass(frozen=True, kw_only=True)
class AWP(Checked):
    """Perturb the weights to increase the loss during an update; combines with any other recipe."""

    gamma: Positive = 0.01
    """Length of the move of each layer, as a share of the norm of its weights; the paper takes
    0.005 with TRADES."""

    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    distances: ClassVar[frozenset[str]] = frozenset({"linf", "l2", "l1", "l0"})
    budgeted: ClassVar[bool] = False

    @contextmanager
    def perturbed(self, parameters: Sequence[Tensor], loss: Callable[[], Tensor]) -> Iterator[None]:
        """The weights moved along the gradient of the loss; the context restores them exactly."""
        weights = [parameter for parameter in parameters if parameter.ndim > 1]
        with torch.enable_grad():
            grads = torch.autograd.grad(loss(), weights, allow_unused=True)

        before = [weight.detach().clone() for weight in weights]
        with torch.no_grad():
            for weight, grad in zip(weights, grads, strict=True):
                if grad is not None:
                    # gamma times the norm of the weights, whatever that of the gradient.
                    length = self.gamma * weight.norm() / grad.norm().clamp_min(1e-20)
                    weight.add_(grad * length)
        # Under autocast the network would answer with a copy of its old weights otherwise, here and
        # when they are back.
        torch.clear_autocast_cache()

        try:
            yield
        finally:
            with torch.no_grad():
                for weight, old in zip(weights, before, strict=True):
                    weight.copy_(old)
            torch.clear_autocast_cache()

    def cost(self) -> tuple[int, int]:
        """The loss once more, for the gradient to the weights: of a loss on one input."""
        return 1, 1
