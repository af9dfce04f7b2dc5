"""How a question is put to the model: once or several times over, and gradients in TF32 where that is asked for.

Several looks at each input are expectation over transformation (Athalye et al. 2018, Synthesizing robust adversarial examples,
section 2): a model that draws random numbers is judged by the mean of its answers, and attacked along the mean of its gradients.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from brinell.core.errors import ModelError
from brinell.core.model import Model, ask
from brinell.core.torch_settings import float32_products

Precision = Literal["float32", "tf32"]

NEAR_BOUNDARY = 2.0**-6
"""An answer below float32 whose lead is above minus this share of the largest logit may be a success (design/0008-eot.md)."""
SAME_ANSWER = 1e-3
"""Two answers that differ by less than this share of the largest logit are one answer, rounded differently."""

Differentiate = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""Logits, the inputs, and the rows of the batch that the logits belong to (None for all), to values and input gradients."""
Margin = Callable[[Tensor, Tensor], Tensor]
"""Logits and inputs to the margins (n,) of the criterion."""


class Derivatives(NamedTuple):
    """Answers to a batch, with what was derived from them; means over the looks."""

    logits: Tensor
    """(n, classes)."""
    value: Tensor
    grad: Tensor
    times: int | Tensor
    """Number of evaluations of each input; (n,) if it differs between inputs."""


class EOT:
    """Queries a model `count` times for each input.

    Copies of an input share a call if that fills the batch, but only if the model draws new random numbers for each row.
    A model that draws once for all rows (a random resizing, say) would answer all copies alike. So the first call with room for
    two copies holds two. If their answers are equal, every further query is a separate call.

    Args:
        model: the model.
        count: queries for each input.
        batch_size: the most inputs in a call.
    """

    def __init__(self, model: Model, count: int = 1, batch_size: int = 128) -> None:
        self.model, self.count, self.batch_size = model, count, batch_size
        self._shares: bool | None = None

    def calls(self, x: Tensor) -> Iterator[Tensor]:
        """Answers (copies * n, classes) of calls that together ask each input of `x` (n, *shape) as often as EOT demands.

        Raises:
            ModelError: the model failed, or did not answer each input with a row of logits.
        """
        remaining = self.count
        while remaining:
            copies = 1 if remaining == 1 else self._copies(remaining, len(x))
            logits = ask(self.model, x if copies == 1 else x.repeat(copies, *[1] * (x.ndim - 1)))
            if logits.shape != (copies * len(x), self.model.classes):
                expected = (copies * len(x), self.model.classes)
                raise ModelError(
                    f"model {self.model.name} answered {tuple(logits.shape)} to {expected[0]} inputs, not {expected}"
                )
            if copies > 1 and self._shares is None:
                self._shares = _differ(logits.detach().reshape(copies, len(x), -1))
            remaining -= copies
            yield logits

    def _copies(self, remaining: int, n: int) -> int:
        """Copies of a batch that are asked together."""
        if self._shares is False:
            return 1
        room = max(1, self.batch_size // n)
        return min(remaining, room if self._shares else min(2, room))

    def answers(self, x: Tensor) -> Tensor:
        """(count, n, classes): the answer of each look."""
        return torch.cat(list(self.calls(x))).reshape(self.count, len(x), -1)

    def mean(self, x: Tensor) -> Tensor:
        """(n, classes): the mean over the looks."""
        return next(self.calls(x)) if self.count == 1 else self.answers(x).mean(0)

    def differentiate(self, x: Tensor, differentiate: Differentiate, margin: Margin) -> Derivatives:
        """Logits, values and gradients at `x` (n, *shape), which is at most a batch; `margin` is for `Reduced` alone."""
        sums: list[Tensor] = []
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            for logits in self.calls(leaf):
                copies = len(logits) // len(leaf)
                rows = None if copies == 1 else torch.arange(len(leaf), device=x.device).repeat(copies)
                answer = logits.detach().clone()  # the loss is the attack's own code and may write into what it is given
                value, grad = differentiate(logits, leaf, rows)
                if copies > 1:
                    answer, value = (_sum_of_copies(values, copies) for values in (answer, value))
                terms = [answer, value, grad]
                sums = [total + term for total, term in zip(sums, terms, strict=True)] if sums else terms
        logits, value, grad = sums if self.count == 1 else [total / self.count for total in sums]
        return Derivatives(logits, value, grad, self.count)


class Reduced:
    """Derivatives in TF32, and in float32 at inputs that come near a success, of which only the second answer counts."""

    def __init__(self, exact: EOT) -> None:
        self._exact, self._rough = exact, EOT(exact.model, exact.count, exact.batch_size)

    def differentiate(self, x: Tensor, differentiate: Differentiate, margin: Margin) -> Derivatives:
        """As `EOT.differentiate`; an input is near where `margin` is above a small negative share of the largest logit."""
        with float32_products(tf32=True):
            rough = self._rough.differentiate(x, differentiate, margin)
        near_boundary = margin(rough.logits, x) > -NEAR_BOUNDARY * rough.logits.abs().amax(1)
        rows = near_boundary.nonzero()[:, 0]
        if len(rows):
            exact = self._exact.differentiate(
                x[rows], lambda logits, leaf, index: differentiate(logits, leaf, rows if index is None else rows[index]), margin
            )
            rough.logits[rows], rough.value[rows], rough.grad[rows] = exact.logits, exact.value, exact.grad
        return rough._replace(times=self._exact.count * (1 + near_boundary.long()))


def question_cost(eot: int, precision: Precision) -> int:
    """Largest number of forwards for one query about a sample. In TF32 an answer may be computed a second time."""
    return eot if precision == "float32" else 2 * eot


def _sum_of_copies(values: Tensor, copies: int) -> Tensor:
    return values.reshape(copies, len(values) // copies, *values.shape[1:]).sum(0)


def _differ(answers: Tensor) -> bool:
    """True if the copies got different answers."""
    return bool((answers[1:] - answers[0]).abs().amax() > SAME_ANSWER * answers.abs().amax())
