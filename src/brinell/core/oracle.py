"""Inputs of an attack: a batch, and an oracle in place of the model, with the ledger behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.model import Model


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
    """(n, *shape) inputs within the threat from which an attack may begin, such as the best of
    an earlier one; None if there are none."""

    @classmethod
    def of(cls, x: Tensor, y: Tensor, start: Tensor | None = None) -> "Batch":
        """Inputs with their labels, numbered from 0 as a ledger needs them."""
        return cls(ids=torch.arange(len(x), device=x.device), x=x, y=y, start=start)

    def __len__(self) -> int:
        """Number of inputs."""
        return len(self.ids)

    def select(self, keep: Tensor) -> "Batch":
        """The rows that `keep` (bool, or indices) names; nothing is changed in place."""
        start = None if self.start is None else self.start[keep]
        return Batch(ids=self.ids[keep], x=self.x[keep], y=self.y[keep], start=start)


class GradientAnswer(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class Oracle:
    """Access of an attack to the model.

    Rows of `ids` (n,) and `x` (n, *shape) correspond; an id may occur several times.

    The shape is that of `Ledger.batch`, which leaves out values that may not change.

    The stated costs are those of one evaluation: with EOT, each evaluation of the ledger costs as
    much.
    """

    scores: Callable[[Tensor, Tensor], Tensor]
    """`scores(ids, x)`: (n, classes) logits. One forward each. Needs access SCORES."""
    loss: Callable[..., Tensor]
    """`loss(ids, x, loss)`: (n,) values of `loss(logits, y)`, with the sign of the criterion;
    `loss(ids, x)`: the criterion's margin. One forward each. Needs access SCORES."""
    labels: Callable[[Tensor, Tensor], Tensor]
    """`labels(ids, x)`: (n,) predicted classes. One forward each. Needs access LABELS."""
    gradient: Callable[..., GradientAnswer]
    """`gradient(ids, x, loss)`: value and input gradient of `loss(logits, y)`, with the sign of
    the criterion: higher values lead to adversarial inputs; `gradient(ids, x, loss, *extra)` of
    `loss(logits, y, *extra)` as it is, where `extra` are per-sample tensors; `gradient(ids, x)`
    of the criterion's margin. One forward and one backward each. Needs access GRADIENTS."""
    differences: Callable[[Tensor, Tensor, Tensor], Differences]
    """`differences(ids, x, classes)`: logits of `classes` (n, k) minus the true one, with their
    input gradients. One forward and k backwards each. Needs access GRADIENTS."""
    active: Callable[..., Tensor]
    """`active(ids, stop_at_eps=False)`: (n,) bool, which samples are still worth a query: with
    budget left and not yet fooled. A minimal attack goes on with the fooled ones, to come
    closer, unless it says that it stops at eps: then until they are within the smallest budget."""
    remaining: Callable[..., Tensor | None]
    """`remaining(ids, stop_at_eps=False)`: the rows (m,) int64 that are active, None where all
    are. It reads nothing back from a device as long as no sample was fooled since the last call
    for the same `ids`."""
    affordable: Callable[[Tensor], Tensor]
    """`affordable(ids)`: (n,) bool, which rows have budget left for a query, fooled or not."""
    classes: int
    """Number of classes of the model."""
    surrogates: int
    """Number of surrogates: other networks of the task whose gradients the attack may follow
    (Papernot et al. 2017)."""
    slopes: Callable[[Tensor, Tensor, Tensor], Tensor]
    """`slopes(ids, x, weights)`: (n, surrogates, *shape), the gradients of the surrogates'
    logits, weighted by `weights` (n, classes). No query of the model: its passes are counted
    apart."""
    follow: Callable[[Sequence[Model]], "Oracle"]
    """`follow(models)`: the same oracle with surrogates that the attack brings, behind those of
    the run."""
