"""The proxy of a detector in a child process, which asks the guarded model for logits, features and gradients over the pipe.

A detector that an adaptive attack differentiates sends the derivatives of its scores along. On its way back through the model it
asks this process, which holds the weights.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from torch import Tensor

from brinell.core.contracts import Model, Suspicion
from brinell.core.frames import Frame, PipeError
from brinell.core.model import ask
from brinell.isolation.oracle import ChildValues
from brinell.isolation.process import GROUP_SECONDS, PluginProcess
from brinell.isolation.proxy import IsolatedPlugin
from brinell.isolation.witness import choose_rows, compare
from brinell.manifest import Content

INPUTS_PER_INPUT = 10_000
"""Most inputs that a detector may ask about for each of its own in a call."""


class Fitting(Content):
    """The child's message after it has seen the clean inputs."""

    number: Annotated[int, Field(ge=0)]
    """Number of the fitted detector in the child."""


class IsolatedDetector(IsolatedPlugin):
    """A detector in a child process, with the members of `core.contracts.Detector`."""

    def fit(self, x: Tensor, labels: Tensor, model: Model) -> Suspicion:
        """Send the clean inputs to the child, and return its scores as a function."""
        number = _fit(self._process, x, labels, model)
        witness = functools.cache(lambda: (self.witness, _fit(self.witness, x, labels, model)))

        def suspicion(x: Tensor) -> Tensor:
            """(n,): the child's scores of inputs (n, *shape), differentiable."""
            wants_gradient = x.requires_grad and torch.is_grad_enabled()
            value, grad = _score(self._process, number, model, x.detach(), wants_gradient)
            for row in choose_rows(len(x)):
                repeated, _ = _score(*witness(), model, x.detach()[row : row + 1], gradient=False)
                compare(self._process, value[row : row + 1], repeated, float(value.abs().max()))
            return value if grad is None else cast(Tensor, ChildValues.apply(x, value, grad))

        return suspicion


def _fit(process: PluginProcess, x: Tensor, labels: Tensor, model: Model) -> int:
    """Number of the detector that a child fits on clean inputs."""
    facts: dict[str, Any] = {
        "features": model.info.features is not None,
        "classes": model.classes,
        "access": int(model.access),
    }
    facts |= {"name": model.name, "domain": model.domain.to_json()}
    reply = _ModelProxy(model, x).answer
    frame = process.ask("fit", facts, {"x": x, "labels": labels}, form=Fitting, seconds=GROUP_SECONDS, reply=reply)
    return int(frame.fields["number"])


def _score(process: PluginProcess, number: int, model: Model, x: Tensor, gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Scores (n,) of the child, and the derivatives of their sum (n, *shape) if asked for."""
    fields, reply = {"number": number, "gradient": gradient}, _ModelProxy(model, x).answer
    arrays = process.ask("score", fields, {"x": x}, seconds=GROUP_SECONDS, reply=reply).arrays
    value, grad = arrays.get("value"), arrays.get("grad") if gradient else None
    if value is None or value.shape != (len(x),) or not value.is_floating_point() or not value.isfinite().all():
        raise process.failure(f"its scores of {len(x)} inputs are not so many finite numbers")
    if gradient and (grad is None or grad.shape != x.shape or not grad.isfinite().all()):
        raise process.failure("the derivatives of its scores do not have the shape of the inputs, or are not finite")
    return value.to(x.device), None if grad is None else grad.to(x)


class _ModelProxy:
    """Answers the child's questions to the guarded model, after it has checked them.

    Args:
        model: the model.
        x: (n, *shape) the inputs of the call.
    """

    def __init__(self, model: Model, x: Tensor) -> None:
        self._model, self._x = model, x
        self._left = INPUTS_PER_INPUT * (1 + len(x))

    def answer(self, frame: Frame) -> dict[str, Tensor]:
        """Logits or features of inputs, or the derivatives that pass back through them."""
        functions: dict[str, Callable[[Tensor], Tensor]] = {"predict": lambda x: ask(self._model, x)}
        if self._model.info.features is not None:
            functions["features"] = self._model.info.features
        name = frame.op.removesuffix("-back")
        if name not in functions:
            raise PipeError(f"it asked for {frame.op[:40]!r}, which no model answers")
        x = self._inputs(frame.arrays.get("x"))
        if frame.op == name:
            with torch.no_grad():
                return {"found": functions[name](x)}
        with torch.enable_grad():
            out = functions[name](x.requires_grad_())
            outer = frame.arrays.get("grad")
            if outer is None or outer.shape != out.shape or not outer.is_floating_point():
                raise PipeError(f"it sent derivatives that do not have the shape {tuple(out.shape)} of the model's answers")
            return {"found": torch.autograd.grad(out, x, outer.to(out))[0]}

    def _inputs(self, x: Tensor | None) -> Tensor:
        """(m, *shape): the inputs of a question, checked."""
        if x is None or x.dtype != self._x.dtype or x.shape[1:] != self._x.shape[1:] or not len(x):
            raise PipeError("it asked the model about inputs of another shape or type than its own")
        self._left -= len(x)
        if self._left < 0:
            raise PipeError(f"it asked the model about more than {INPUTS_PER_INPUT:,} inputs for each of its own")
        return x.to(self._x.device)
