"""The queries of a plug-in in a child process about one group, validated and passed on to the oracle."""

from collections.abc import Callable
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from torch import Tensor

from brinell.core.contracts import Oracle
from brinell.core.frames import Frame, PipeError
from brinell.core.oracle import Batch
from brinell.core.settings import MOST_COUNT
from brinell.isolation.process import PluginProcess
from brinell.manifest import Content, fault

FREE_QUERIES = 8
"""Queries that cost nothing, for each forward of each sample."""

AskLoss = Callable[..., tuple[Tensor, Tensor]]
"""Asks the child for the values (m,) of its loss and the derivatives (m, classes) of their sum."""


class Question(Content):
    """Fields of a query, in addition to its arrays."""

    loss: bool
    """True if the plug-in supplies a loss."""
    extra: Annotated[int, Field(ge=0, le=64)]
    """Number of additional arrays that the loss takes."""


def child_loss(process: PluginProcess) -> AskLoss:
    """A function that asks the child for the loss that a query of it names."""

    def ask(**arrays: Tensor) -> tuple[Tensor, Tensor]:
        """Values and derivatives at `logits` (m, classes) and labels `y` (m,)."""
        process.send("loss", arrays)
        answer, logits = process.receive(), arrays["logits"]
        value, grad = (answer.arrays.get(name) for name in ("value", "grad"))
        if answer.op != "value" or value is None or grad is None:
            raise PipeError("it was asked for a loss and said something else")
        if (
            value.shape != logits.shape[:1] + logits.shape[2:]
            or grad.shape != logits.shape
            or not (grad.dtype == logits.dtype and value.is_floating_point())
        ):
            raise PipeError(f"its loss of {tuple(logits.shape)} logits has shape {tuple(value.shape)}")
        return value.to(logits.device), grad.to(logits.device)

    return ask


class OracleProxy:
    """Validates the child's queries about one group and passes them to the oracle.

    Args:
        oracle: the oracle.
        batch: the samples of the group.
        limit: most forwards of a sample, as the plug-in declares them; None if it declares none.
    """

    def __init__(self, oracle: Oracle, batch: Batch, limit: int | None) -> None:
        self._oracle, self._batch, self._limit = oracle, batch, limit
        self._counts = torch.zeros(len(batch), dtype=torch.int64)
        self._free = FREE_QUERIES * (1 + len(batch)) * (1 + (limit or MOST_COUNT))
        """Queries left that cost nothing."""

    def answer(self, frame: Frame, loss: AskLoss) -> dict[str, Tensor]:
        """Answer a query; raises PipeError if it is invalid or exceeds the declared cost."""
        op, oracle = frame.op, self._oracle
        if reason := fault(frame.fields, Question):
            raise PipeError(f"it asked by something in which {reason}")
        ids = self._ids(frame.arrays.get("ids"))
        if op in ("active", "stopped", "affordable"):
            self._count_free()
        if op in ("active", "stopped"):
            return {"found": oracle.active(ids, op == "stopped")}
        if op == "affordable":
            return {"found": oracle.affordable(ids)}
        x = self._inputs(frame.arrays.get("x"), len(ids))
        self._count(ids)
        if op in ("scores", "labels"):
            return {"found": oracle.scores(ids, x) if op == "scores" else oracle.labels(ids, x)}
        if op == "differences":
            return oracle.differences(ids, x, self._classes(frame.arrays.get("classes"), len(ids)))._asdict()
        own_loss = (lambda logits, y, *extra: _differentiable(logits, y, extra, loss)) if frame.fields["loss"] else None
        if op == "loss":
            return {"found": oracle.loss(ids, x, own_loss)}
        if op == "gradient":
            return cast(dict[str, Tensor], oracle.gradient(ids, x, own_loss, *self._extra(frame, len(ids)))._asdict())
        raise PipeError(f"it asked for {op[:40]!r}, which no oracle answers")

    def _ids(self, ids: Tensor | None) -> Tensor:
        """(n,) int64: the sample ids of a question, checked."""
        if ids is None or ids.dtype != torch.int64 or ids.ndim != 1 or not len(ids):
            raise PipeError("it asked without the ids of samples")
        if int(ids.min()) < 0 or int(ids.max()) >= len(self._batch):
            raise PipeError("it asked about a sample that is none of its group")
        return ids.to(self._batch.x.device)

    def _inputs(self, x: Tensor | None, n: int) -> Tensor:
        """(n, *shape): the inputs of a question, checked."""
        if x is None or x.dtype != self._batch.x.dtype or x.shape != (n, *self._batch.x.shape[1:]):
            raise PipeError("it asked about inputs of another shape or type than its samples")
        return x.to(self._batch.x.device)

    def _classes(self, classes: Tensor | None, n: int) -> Tensor:
        """(n, k) int64: the classes of a question, checked."""
        if classes is None or classes.dtype != torch.int64 or classes.ndim != 2 or len(classes) != n or not classes.shape[1]:
            raise PipeError("it asked for differences without classes")
        if int(classes.min()) < 0 or int(classes.max()) >= self._oracle.classes:
            raise PipeError("it asked about a class that there is not")
        return classes.to(self._batch.x.device)

    def _extra(self, frame: Frame, n: int) -> list[Tensor]:
        """Per-sample tensors of the loss of a question, checked."""
        arrays = [frame.arrays.get(f"extra{number}") for number in range(frame.fields["extra"])]
        if any(array is None or not array.ndim or len(array) != n for array in arrays):
            raise PipeError("what it gave to its loss has not a row for each input")
        return [array.to(self._batch.x.device) for array in arrays if array is not None]

    def _count_free(self) -> None:
        """Count a query that costs nothing; raises PipeError if no attack would need so many."""
        self._free -= 1
        if self._free < 0:
            raise PipeError("it asks without end which samples are active")

    def _count(self, ids: Tensor) -> None:
        """Count queries per sample; raises PipeError above the declared cost."""
        self._counts.index_add_(0, ids.cpu(), torch.ones(len(ids), dtype=torch.int64))
        if self._limit is not None and int(self._counts.max()) > self._limit:
            raise PipeError(f"it asks about a sample more often than the {self._limit} times that it declares as its cost")


class ChildValues(torch.autograd.Function):
    """Values for which the child computed the derivatives.

    A value (n,) depends on one input (n, ...), and a value (n, h, w) on one pixel of an input (n, channels, h, w).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, grad: Tensor) -> Tensor:
        """The values that the child computed."""
        ctx.save_for_backward(grad)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        """The derivatives that the child computed, times the outer ones."""
        (grad,) = ctx.saved_tensors
        factor = outer[0].reshape(-1, *[1] * (grad.ndim - 1)) if outer[0].ndim == 1 else outer[0].unsqueeze(1)
        return factor.to(grad.dtype) * grad, None, None


def _differentiable(logits: Tensor, y: Tensor, extra: tuple[Tensor, ...], ask: AskLoss) -> Tensor:
    """(n,): the loss that the attack defines in its own process, differentiable here."""
    extra_arrays = {f"extra{number}": array for number, array in enumerate(extra)}
    value, grad = ask(logits=logits.detach(), y=y, **extra_arrays)
    return cast(Tensor, ChildValues.apply(logits, value, grad))
