"""How a question is put to the model: once, or several times over.

Several evaluations of an input are expectation over transformation (Athalye et al. 2018,
Synthesizing robust adversarial examples, section 2): a model that draws random numbers is judged by
the mean of its answers, and attacked along the mean of its gradients.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from brinell.core.errors import ModelError
from brinell.core.model import Model, ask

Precision = Literal["float32", "tf32"]


class EOT:
    """Asks a model `count` times about each input."""

    def __init__(self, model: Model, count: int = 1) -> None:
        self.model, self.count = model, count

    def _checked(self, logits: Tensor, x: Tensor) -> Tensor:
        """The answer to inputs, if it is a row of logits for each."""
        expected = (len(x), self.model.classes)
        if logits.shape != expected:
            raise ModelError(
                f"model {self.model.name} answered {tuple(logits.shape)} to "
                f"{len(x)} inputs, not {expected}"
            )
        return logits

    def answers(self, x: Tensor) -> Tensor:
        """(count, n, classes): the answers of all evaluations to inputs (n, *shape).

        Raises:
            ModelError: an answer is not a row of logits for each input.
        """
        return torch.stack([self._checked(ask(self.model, x), x) for _ in range(self.count)])

    def mean(self, x: Tensor) -> Tensor:
        """(n, classes): the mean answer of all evaluations."""
        if self.count == 1:
            return self._checked(ask(self.model, x), x)
        return self.answers(x).mean(0)

    def mean_in_batches(self, x: Tensor, batch_size: int) -> Tensor:
        """(n, classes): the mean answers to inputs (n, *shape), batch after batch."""
        if not len(x):
            return torch.zeros(0, self.model.classes, device=x.device)
        with torch.no_grad():
            return torch.cat([self.mean(part) for part in torch.split(x, batch_size)])

    def differentiate(
        self, x: Tensor, derive: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> list[Tensor]:
        """The logits at `x`, and the values and gradients that `derive` makes of logits and inputs.

        All are means over the evaluations.
        """
        sums: list[Tensor] = []
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            for _ in range(self.count):
                logits = self._checked(ask(self.model, leaf), leaf)
                # A copy: the loss is the attack's own code and may write into what it is given.
                look = [logits.detach().clone(), *derive(logits, leaf)]
                sums = (
                    [total + term for total, term in zip(sums, look, strict=True)] if sums else look
                )

        # A sum of one is the value itself: dividing would copy it.
        return sums if self.count == 1 else [total / self.count for total in sums]


def question_cost(eot: int, precision: Precision) -> int:
    """Largest number of forwards for one query about a sample.

    In TF32 an answer may be computed a second time.
    """
    return eot if precision == "float32" else 2 * eot
