"""Gradients through what a model rounds or detaches, wherever in its code that happens.

The straight-through estimator (Bengio, Léonard & Courville 2013, Estimating or propagating gradients through stochastic neurons,
section 4) in the hands of an attacker, as in backward pass differentiable approximation (Athalye, Carlini & Wagner 2018, section
4.1): a rounding keeps its values and gets the gradient of the identity; what is detached, or computed without gradients, gets
the gradient that it would have had. Torch functions are caught while the model runs, so that no module has to be named; what runs
outside torch, within a custom autograd function or in a compiled graph is not seen.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

ROUNDINGS: frozenset[Callable[..., Any]] = frozenset(
    {torch.round, torch.floor, torch.ceil, torch.trunc, torch.fix}
    | {Tensor.round, Tensor.floor, Tensor.ceil, Tensor.trunc, Tensor.fix}
)
"""Whose values stay, and whose gradient becomes that of the identity."""
SIGNS: frozenset[Callable[..., Any]] = frozenset({torch.sign, torch.sgn, Tensor.sign, Tensor.sgn})
"""Whose gradient becomes that of the identity within 1 of zero (Hubara et al. 2016, Binarized neural networks, section 1.3)."""
DETACHMENTS: frozenset[Callable[..., Any]] = frozenset({torch.detach, Tensor.detach, Tensor.data.__get__})  # type: ignore[attr-defined]
"""Which are left out."""
SWITCHES: frozenset[Callable[..., Any]] = frozenset({torch._C._set_grad_enabled})
"""By which a model computes without gradients; left out as well."""


class StraightThrough(TorchFunctionMode):
    """While it is entered, gradients pass through roundings and, with `attach`, through what is detached.

    Args:
        attach: whether detachments and computing without gradients are left out, too.
    """

    def __init__(self, *, attach: bool) -> None:
        super().__init__()
        self._attach = attach
        self.caught = 0
        """How many calls were changed."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The call as it is, or with another gradient."""
        kwargs = kwargs or {}
        if self._attach and func in DETACHMENTS:
            self.caught += 1
            return args[0].view_as(args[0])
        if self._attach and func in SWITCHES:
            self.caught += 1
            return None
        out = func(*args, **kwargs)
        if func in ROUNDINGS or func in SIGNS:
            x = args[0]
            if isinstance(x, Tensor) and isinstance(out, Tensor) and x.is_floating_point() and kwargs.get("out") is None:
                self.caught += 1
                way = x.clamp(-1, 1) if func in SIGNS else x
                return out.detach() + (way - way.detach())
        return out
