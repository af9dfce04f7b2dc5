"""Gradients through the roundings and detachments of a model, anywhere in its code.

The straight-through estimator (Bengio, Léonard & Courville 2013, Estimating or propagating
gradients through stochastic neurons, section 4) in the hands of an attacker, as in backward pass
differentiable approximation (Athalye, Carlini & Wagner 2018, section 4.1): a rounding keeps its
values and gets the gradient of the identity; what is detached, or computed without gradients, gets
the gradient that it would have had; a comparison that is made a number gets that of a sigmoid, and
a one-hot code of a largest value that of a softmax. Torch functions are caught while the model
runs, so that no module has to be named; what runs outside torch, within a custom autograd function
or in a compiled graph is not seen.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from brinell.core.recorder import Recorder

ROUNDINGS: frozenset[Callable[..., Any]] = frozenset(
    {torch.round, torch.floor, torch.ceil, torch.trunc, torch.fix}
    | {Tensor.round, Tensor.floor, Tensor.ceil, Tensor.trunc, Tensor.fix}
)
"""Functions that keep their values and get the gradient of the identity."""
SIGNS: frozenset[Callable[..., Any]] = frozenset({torch.sign, torch.sgn, Tensor.sign, Tensor.sgn})
"""Functions that get the gradient of the identity within 1 of zero (Hubara et al. 2016,
Binarized neural networks, section 1.3)."""
NUMBERS = frozenset({Tensor.item, Tensor.__float__, Tensor.__int__})
"""Functions that make a number of a tensor, with which no gradient goes on."""
DETACHMENTS: frozenset[Callable[..., Any]] = frozenset(
    {torch.detach, Tensor.detach, Tensor.data.__get__}  # type: ignore[attr-defined]
)
"""Functions that are skipped."""
IN_PLACE: dict[Callable[..., Any], Callable[..., Any]] = {
    getattr(room, f"{name}_"): getattr(Tensor, name)
    for name in ("round", "floor", "ceil", "trunc", "fix", "sign", "sgn")
    for room in (torch, Tensor)
    if f"{name}_" in dir(room)
} | {torch.detach_: Tensor.detach, Tensor.detach_: Tensor.detach}
"""Functions that write into their input, each with the one that does not."""
SWITCHES: frozenset[Callable[..., Any]] = frozenset({torch._C._set_grad_enabled})
"""Functions that switch gradients off; skipped as well."""
COMPARISONS: dict[Callable[..., Any], int] = {
    getattr(room, name): sign
    for sign, names in (
        (1, ("gt", "ge", "__gt__", "__ge__")),
        (-1, ("lt", "le", "__lt__", "__le__")),
    )
    for name in names
    for room in (torch, Tensor)
    if hasattr(room, name)
}
"""Comparisons, each with the sign of its left side."""
CONVERSIONS: frozenset[Callable[..., Any]] = frozenset(
    {
        Tensor.float,
        Tensor.double,
        Tensor.to,
        Tensor.type,
        Tensor.type_as,
        Tensor.mul,
        Tensor.__mul__,
        Tensor.__rmul__,
        torch.mul,
    }
)
"""Functions that convert a decision to a number, directly or in a product."""
STEEPNESS = 4.0
"""Steepness of the sigmoid that stands for a comparison, for differences in units of their spread."""


class StraightThrough(Recorder):
    """A context in which gradients pass straight through roundings.

    With `attach`, detachments and switches to no-gradient mode are skipped as well. With `decide`,
    comparisons and argmax that become numbers get a gradient.
    """

    def __init__(self, *, attach: bool, decide: bool = False) -> None:
        super().__init__()
        self._attach, self._decide = attach, decide
        self.changed_calls = 0
        self._soft: dict[int, tuple[Tensor, Tensor]] = {}
        """Decisions of the model, each with its smooth values, by id."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}

        if func in IN_PLACE:
            return self._write(func, types, args, kwargs)
        if self._attach and func in DETACHMENTS:
            self.changed_calls += 1
            return args[0].view_as(args[0])
        if self._attach and func in SWITCHES:
            self.changed_calls += 1
            return None
        if func in NUMBERS:
            args = (args[0].detach(), *args[1:])
        out = func(*args, **kwargs)

        if not isinstance(out, Tensor) or kwargs.get("out") is not None:
            return out
        if (func in ROUNDINGS or func in SIGNS) and _floats(args[0]):
            self.changed_calls += 1
            # The gradient of a sign is that of clamping, as in Hubara et al. 2016: none far from
            # zero.
            identity = args[0].clamp(-1, 1) if func in SIGNS else args[0]
            return out.detach() + (identity - identity.detach())
        return self._soften_decision(func, args, kwargs, out) if self._decide else out

    def settings(self) -> dict[str, Any]:
        """Its arguments."""
        return {"attach": self._attach, "decide": self._decide}

    def outcome(self, answer: Tensor) -> tuple[dict[str, Any], list[Tensor]]:
        """How many calls it changed."""
        return {"changed_calls": self.changed_calls}, []

    def accept(self, facts: Mapping[str, Any], arrays: Sequence[Tensor], answer: Tensor) -> None:
        """Count the calls that another one changed."""
        self.changed_calls += facts["changed_calls"]

    def _write(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The call of a function that writes into its input, with the gradient of the one that does
        not.
        """
        if IN_PLACE[func] is Tensor.detach and self._attach:
            self.changed_calls += 1
            return args[0]
        if IN_PLACE[func] is Tensor.detach or not _floats(args[0]):
            return func(*args, **kwargs)
        return args[0].copy_(
            self.__torch_function__(IN_PLACE[func], types, (args[0].clone(), *args[1:]), kwargs)
        )

    def _soften_decision(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> Tensor:
        """Record a decision, or give a number made from one the gradient of its smooth values."""
        if func in COMPARISONS and any(_floats(arg) for arg in args):
            lead = COMPARISONS[func] * (args[0] - args[1])
            # In units of the spread, so that the step is as soft for large numbers as for small
            # ones. Of a single number the deviation by n - 1 is NaN.
            spread = lead.detach().std(correction=0).clamp_min(1e-6)
            self._soft[id(out)] = out, torch.sigmoid(STEEPNESS * lead / spread)
        elif (
            func in (torch.argmax, Tensor.argmax)
            and _floats(args[0])
            and len([*args[1:], *kwargs.values()]) == 1
        ):
            # The only further argument is the axis: keepdim would give another shape.
            axis = next(iter([*args[1:], *kwargs.values()]))
            self._soft[id(out)] = out, args[0].movedim(axis, -1).softmax(-1)
        elif (
            func is torch.nn.functional.one_hot and (soft := self._soft_values(args[0])) is not None
        ):
            if soft.shape == out.shape:
                self._soft[id(out)] = out, soft
        elif (
            func is torch.where
            and _floats(out)
            and (soft := self._soft_values(args[0])) is not None
        ):
            # The value stays; the gradient is that of a mean of both branches by the soft decision.
            self.changed_calls += 1
            move = soft * (torch.as_tensor(args[1]) - torch.as_tensor(args[2])).detach().to(out)
            return out + (move - move.detach())
        elif func in CONVERSIONS and _floats(out):
            return self._soften_conversion(args, out)
        return out

    def _soften_conversion(self, args: tuple[Any, ...], out: Tensor) -> Tensor:
        """The output of a type conversion with the gradient of the soft value."""
        for position, arg in enumerate(args[:2]):
            soft = self._soft_values(arg)
            if soft is None:
                continue
            # Of a product with a decision the other factor is a constant for this gradient.
            factor: Any = args[1 - position] if len(args) > 1 else 1.0
            move = (
                soft * factor.detach()
                if _floats(factor)
                else soft * factor
                if isinstance(factor, float)
                else soft
            )
            if move.shape == out.shape:
                self.changed_calls += 1
                return out + (move - move.detach())
        return out

    def _soft_values(self, decision: Any) -> Tensor | None:
        """The smooth values that were recorded for a decision; None for any other object."""
        entry = self._soft.get(id(decision))
        return None if entry is None else entry[1]


def _floats(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()
