"""Gradients through what a model rounds or detaches, wherever in its code that happens.

The straight-through estimator (Bengio, Léonard & Courville 2013, Estimating or propagating gradients through stochastic neurons,
section 4) in the hands of an attacker, as in backward pass differentiable approximation (Athalye, Carlini & Wagner 2018, section
4.1): a rounding keeps its values and gets the gradient of the identity; what is detached, or computed without gradients, gets
the gradient that it would have had; a comparison that is made a number gets that of a sigmoid, and a one-hot code of a largest
value that of a softmax. Torch functions are caught while the model runs, so that no module has to be named; what runs
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
COMPARISONS: dict[Callable[..., Any], int] = {
    getattr(room, name): sign
    for sign, names in ((1, ("gt", "ge", "__gt__", "__ge__")), (-1, ("lt", "le", "__lt__", "__le__")))
    for name in names
    for room in (torch, Tensor)
    if hasattr(room, name)
}
"""Each with the sign by which its left side counts."""
CONVERSIONS: frozenset[Callable[..., Any]] = frozenset(
    {Tensor.float, Tensor.double, Tensor.to, Tensor.type, Tensor.type_as, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.mul}
)
"""That make a number of a decision, alone or by a product."""


class StraightThrough(TorchFunctionMode):
    """While it is entered, gradients pass through roundings.

    With `attach` detachments and computing without gradients are left out, too; with `decide` comparisons and largest values
    that become numbers get a gradient, too.
    """

    def __init__(self, *, attach: bool, decide: bool = False) -> None:
        super().__init__()
        self._attach, self._decide = attach, decide
        self.caught = 0
        """How many calls were changed."""
        self._soft: dict[int, tuple[Tensor, Tensor]] = {}
        """By id, the decisions of the model, each with the smooth values behind it."""

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
        if not isinstance(out, Tensor) or kwargs.get("out") is not None:
            return out
        if (func in ROUNDINGS or func in SIGNS) and _floats(args[0]):
            self.caught += 1
            way = args[0].clamp(-1, 1) if func in SIGNS else args[0]
            return out.detach() + (way - way.detach())
        return self._decided(func, args, kwargs, out) if self._decide else out

    def _decided(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> Tensor:
        """Notes a decision, or gives the number that is made of one the gradient of the smooth values behind it."""
        if func in COMPARISONS and any(_floats(one) for one in args):
            lead = COMPARISONS[func] * (args[0] - args[1])
            self._note(out, torch.sigmoid(4 * lead / lead.detach().std().clamp_min(1e-6)))
        elif func in (torch.argmax, Tensor.argmax) and _floats(args[0]) and len([*args[1:], *kwargs.values()]) == 1:
            axis = next(iter([*args[1:], *kwargs.values()]))
            self._note(out, args[0].movedim(axis, -1).softmax(-1))
        elif func is torch.nn.functional.one_hot and (soft := self._behind(args[0])) is not None:
            if soft.shape == out.shape:
                self._note(out, soft)
        elif func is torch.where and _floats(out) and (soft := self._behind(args[0])) is not None:
            self.caught += 1
            move = soft * (torch.as_tensor(args[1]) - torch.as_tensor(args[2])).detach().to(out)
            return out + (move - move.detach())
        elif func in CONVERSIONS and _floats(out):
            return self._converted(args, out)
        return out

    def _converted(self, args: tuple[Any, ...], out: Tensor) -> Tensor:
        for at, one in enumerate(args[:2]):
            soft = self._behind(one)
            if soft is None:
                continue
            factor: Any = args[1 - at] if len(args) > 1 else 1.0
            move = soft * factor.detach() if _floats(factor) else soft * factor if isinstance(factor, float) else soft
            if move.shape == out.shape:
                self.caught += 1
                return out + (move - move.detach())
        return out

    def _note(self, decision: Tensor, soft: Tensor) -> None:
        self._soft[id(decision)] = (decision, soft)

    def _behind(self, decision: Any) -> Tensor | None:
        held = self._soft.get(id(decision))
        return None if held is None else held[1]


def _floats(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()
