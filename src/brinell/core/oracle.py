"""Inputs of an attack: a batch, and an oracle in place of the model, behind which the ledger judges (`core.ledger`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from brinell.core.criterion import Criterion, Loss
from brinell.core.errors import MemoryShortError, ModelError, one_line
from brinell.core.memory import is_memory_short
from brinell.core.model import Access, Model

if TYPE_CHECKING:
    from brinell.core.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs with their labels."""

    ids: Tensor
    """(n,) int64: the handles by which the ledger knows the samples."""
    x: Tensor
    """(n, *shape) float32: the clean inputs, within their bounds. Never write into them."""
    y: Tensor
    """(n,) int64: the true labels."""
    start: Tensor | None = None
    """(n, *shape) inputs within the threat from which an attack may begin, such as the best of an earlier one; None if there are
    none."""

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, keep: Tensor) -> "Batch":
        """The rows that `keep` (bool, or indices) names; nothing is changed in place."""
        start = None if self.start is None else self.start[keep]
        return Batch(ids=self.ids[keep], x=self.x[keep], y=self.y[keep], start=start)


class Gradient(NamedTuple):
    """Answer to a gradient query, every tensor detached."""

    logits: Tensor
    """(n, classes)."""
    loss: Tensor
    """(n,)."""
    grad: Tensor
    """(n, *shape): the gradient of each sample's loss to its own input."""


class Differences(NamedTuple):
    """Answer to a query for differences of logits, every tensor detached."""

    logits: Tensor
    """(n, classes)."""
    lead: Tensor
    """(n, k): logit of each class asked about minus the true one."""
    grad: Tensor
    """(n, k, *shape): the gradient of each difference to the sample's own input."""


class Oracle:
    """Access of an attack to the model. Rows of `ids` (n,) and `x` (n, *shape) correspond; an id may occur several times.

    The shape is that of `Ledger.batch`, which leaves out values that may not change. The stated costs are those of one
    evaluation: with EOT, each evaluation of the ledger costs as much.
    """

    def __init__(self, ledger: "Ledger", surrogates: Sequence[Model]) -> None:
        self._ledger, self._surrogates = ledger, tuple(surrogates)
        self.classes: int = ledger.classes
        """Number of classes of the model."""
        self.surrogates = len(self._surrogates)
        """Number of surrogates: other networks of the task whose gradients the attack may follow (Papernot et al. 2017)."""

    def scores(self, ids: Tensor, x: Tensor) -> Tensor:
        """(n, classes) logits. One forward each. Needs access SCORES."""
        return self._ledger.answer(ids, x, Access.SCORES)

    def labels(self, ids: Tensor, x: Tensor) -> Tensor:
        """(n,) predicted classes. One forward each. Needs access LABELS."""
        return self._ledger.answer(ids, x, Access.LABELS).argmax(1)

    def loss(self, ids: Tensor, x: Tensor, loss: Loss | None = None) -> Tensor:
        """(n,) values of `loss(logits, y)`, with the sign of the criterion; without a loss the criterion's margin.

        One forward each. Needs access SCORES.
        """
        return self._ledger.loss(ids, x, loss)

    def gradient(self, ids: Tensor, x: Tensor, loss: Loss | None = None, *extra: Tensor) -> Gradient:
        """Value and input gradient of `loss(logits, y)`, with the sign of the criterion: higher leads to adversarial inputs.

        With `extra`, per-sample tensors, of `loss(logits, y, *extra)` as it is; without a loss of the criterion's margin. One
        forward and one backward each. Needs access GRADIENTS.
        """

        def derive(criterion: Criterion, logits: Tensor, y: Tensor, leaf: Tensor, *extra: Tensor) -> tuple[Tensor, Tensor]:
            if loss is None:
                value = criterion.margin(logits, y, leaf)
            elif extra:
                value = loss(criterion.logits_for_attack(logits, y), y, *extra)
            else:
                value = criterion.loss(loss, logits, y)
            return value.detach(), gradient_or_zero(value, leaf)

        return Gradient(
            *self._ledger.differentiate(ids, x, derive, extra, self._ledger.gradients, backwards=1, of_margins=loss is None)
        )

    def differences(self, ids: Tensor, x: Tensor, classes: Tensor) -> Differences:
        """Logits of `classes` (n, k) minus the true one, with input gradients. One forward and k backwards each.

        Needs access GRADIENTS.
        """
        k = classes.shape[1]

        def derive(criterion: Criterion, logits: Tensor, y: Tensor, leaf: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
            logits = criterion.logits_for_attack(logits, y)
            lead = logits.gather(1, classes) - logits.gather(1, y[:, None])
            grads = [gradient_or_zero(lead[:, j], leaf, keep=j < k - 1) for j in range(k)]
            return lead.detach(), grads[0][:, None] if k == 1 else torch.stack(grads, 1)

        return Differences(*self._ledger.differentiate(ids, x, derive, (classes,), self._ledger.exact, backwards=k))

    def active(self, ids: Tensor, stop_at_eps: bool = False) -> Tensor:
        """(n,) bool: which samples are still worth a query: with budget left and not yet fooled.

        A minimal attack goes on with the fooled ones, to come closer, unless it says that it stops at eps.
        """
        return self._ledger.active(ids, stop_at_eps)

    def remaining(self, ids: Tensor, stop_at_eps: bool = False) -> Tensor | None:
        """The rows (m,) int64 that are active, None where all are.

        It reads nothing back from a device as long as no sample was fooled since the last call for the same `ids`.
        """
        return self._ledger.remaining(ids, stop_at_eps)

    def affordable(self, ids: Tensor) -> Tensor:
        """(n,) bool: which rows have budget left for a query, fooled or not."""
        return self._ledger.affordable(ids)

    def slopes(self, ids: Tensor, x: Tensor, weights: Tensor) -> Tensor:
        """(n, surrogates, *shape): the gradients of the surrogates' logits, weighted by `weights` (n, classes).

        No query of the model: its passes, each a forward and a backward of one surrogate at one input, are counted apart.
        """
        return self._ledger.slopes(self._surrogates, ids, x, weights)

    def follow(self, models: Sequence[Model]) -> "Oracle":
        """The same oracle with surrogates that the attack brings, behind those of the run."""
        for model in models:
            self._ledger.check_surrogate(model)
        return Oracle(self._ledger, (*self._surrogates, *models))


def gradient_or_zero(value: Tensor, leaf: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient of the summed values (n,); zeros where the model's answer does not depend on its input differentiably.

    Raises:
        ModelError: torch cannot differentiate the model.
        MemoryShortError: the memory does not suffice.
    """
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    try:
        (grad,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True, retain_graph=keep)
    except RuntimeError as error:
        if not is_memory_short(error):
            raise ModelError(f"the model answers, but torch cannot differentiate it ({one_line(error)})") from error
        raise MemoryShortError(f"a gradient at {len(leaf)} inputs does not fit into memory ({one_line(error)})") from error
    return torch.zeros_like(leaf) if grad is None else grad
