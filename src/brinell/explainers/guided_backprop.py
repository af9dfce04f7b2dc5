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
            raise RequestError(
                "guided backpropagation needs a network with ReLU, and none was called, or only within a TorchScript program, "
                "where it is not seen: leave guided-backprop out"
            )
        return over_channels(gradient.abs(), domain)


class _Positive(torch.autograd.Function):
    """ReLU whose backward pass keeps only positive gradients at positive inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """ReLU."""
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Positive gradients at positive inputs."""
        (x,) = ctx.saved_tensors
        guided: Tensor = gradient.clamp_min(0) * (x > 0)
        return guided


_IN_PLACE = {torch.relu_, F.relu_, Tensor.relu_}
_RELUS = {torch.relu, F.relu, Tensor.relu, *_IN_PLACE}


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
            x, kwargs = args[0] if args else (kwargs or {})["input"], kwargs or {}
            if func in _IN_PLACE or kwargs.get("inplace", args[1] if len(args) > 1 else False):
                return x.copy_(_Positive.apply(x.clone()))
            return _Positive.apply(x)
        return func(*args, **(kwargs or {}))
