"""Guided backpropagation: the gradient, with negative values dropped at every ReLU on its way back.

Springenberg, Dosovitskiy, Brox & Riedmiller 2015, Striving for simplicity, section 3.4. It is here as a control: it draws the
edges of the input whatever the network has learnt (Adebayo et al. 2018, Sanity checks for saliency maps), which is what the check
by random weights must find. Networks without ReLU, or whose ReLU torch cannot see, are refused. No deviations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.errors import RequestError
from brinell.explainers._asking import class_logit, over_channels

__all__ = ["GuidedBackprop"]


@dataclass(frozen=True, kw_only=True)
class GuidedBackprop:
    """The gradient through positive parts alone (a control)."""

    access = Access.GRADIENTS
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), 0 or more. One forward and one backward.

        Raises:
            RequestError: the model called no ReLU.
        """
        with _Guided() as guided:
            gradient = oracle.gradient(batch.ids, batch.x, class_logit).grad
        if not guided.calls:
            raise RequestError("guided backpropagation needs a network with ReLU, and none was called: leave guided-backprop out")
        return over_channels(gradient.abs(), domain)


class _Positive(torch.autograd.Function):
    """ReLU forwards; backwards it lets through what is positive, where the input was."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        back: Tensor = gradient.clamp_min(0) * (x > 0)
        return back


_RELUS = {torch.relu, torch.relu_, F.relu, F.relu_, Tensor.relu, Tensor.relu_}


class _Guided(TorchFunctionMode):
    """Puts the guided ReLU in the place of every other."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _RELUS:
            self.calls += 1
            return _Positive.apply(args[0])
        return func(*args, **(kwargs or {}))
