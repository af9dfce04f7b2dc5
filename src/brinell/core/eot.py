"""How a question is put to the model: once or several times over, in float32 or in bf16.

Several looks at each input are expectation over transformation (Athalye et al. 2018, Synthesizing robust adversarial examples,
section 2): a model that draws random numbers is judged by the mean of its answers, and attacked along the mean of its gradients.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from brinell.core.errors import ModelError
from brinell.core.model import Model, ask

Precision = Literal["float32", "bf16"]

NEAR = 2.0**-6
"""An answer in bf16 whose lead is above minus this share of the largest logit may be a success (design/0008-eot.md)."""
SAME = 1e-3
"""Two answers that differ by less than this share of the largest logit are one answer, rounded differently."""


class EOT:
    """Asks a model `count` times about each input.

    Copies of an input share a call where that fills the batch, but only if the model draws anew for each row of a call. One that
    draws once for all of them (a random resizing, say) would answer all copies alike, and twenty looks would be one. So the first
    call that has room holds two copies, and unless they are answered differently every further look is a call of its own.

    Args:
        model: the model.
        count: looks at each input.
        batch_size: the most inputs shown to the model at once.
        precision: that of the passes; answers are float32 in any case.
    """

    def __init__(self, model: Model, count: int = 1, batch_size: int = 128, precision: Precision = "float32") -> None:
        self.model, self.count, self.batch_size, self.precision = model, count, batch_size, precision
        self._shares: bool | None = None

    def calls(self, x: Tensor) -> Iterator[Tensor]:
        """(copies * n, classes) for each call, until all looks are taken; `x` (n, *shape) is at most a batch.

        Raises:
            ModelError: the model failed, or did not answer each input with a row of logits.
        """
        left = self.count
        while left:
            copies = 1 if left == 1 else self._copies(left, len(x))
            logits = self._ask(x if copies == 1 else x.repeat(copies, *[1] * (x.ndim - 1)))
            if logits.shape != (copies * len(x), self.model.classes):
                expected = (copies * len(x), self.model.classes)
                raise ModelError(
                    f"model {self.model.name} answered {tuple(logits.shape)} to {expected[0]} inputs, not {expected}"
                )
            if copies > 1 and self._shares is None:
                self._shares = _differ(logits.detach().reshape(copies, len(x), -1))
            left -= copies
            yield logits

    def _copies(self, left: int, n: int) -> int:
        if self._shares is False:
            return 1
        room = max(1, self.batch_size // n)
        return min(left, room if self._shares else min(2, room))

    def _ask(self, x: Tensor) -> Tensor:
        if self.precision == "float32":
            return ask(self.model, x)
        try:
            with torch.autocast(x.device.type, dtype=torch.bfloat16):
                return ask(self.model, x).float()
        except ModelError as error:
            raise ModelError(f"in bf16: {error}; a model that cannot do with bf16 needs precision float32") from error

    def every(self, x: Tensor) -> Tensor:
        """(count, n, classes): the answer of each look."""
        return torch.cat(list(self.calls(x))).reshape(self.count, len(x), -1)

    def mean(self, x: Tensor) -> Tensor:
        """(n, classes): the mean over the looks."""
        return next(self.calls(x)) if self.count == 1 else self.every(x).mean(0)


def _differ(answers: Tensor) -> bool:
    return bool((answers[1:] - answers[0]).abs().amax() > SAME * answers.abs().amax())
