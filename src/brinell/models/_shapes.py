"""Other shapes and types of inputs that a network may take, where it fails on the data's."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class ShapeStep(NamedTuple):
    """A change of inputs x, and the expression that makes it."""

    code: str
    apply: Callable[[Tensor], Tensor]


def _resized(size: int) -> ShapeStep:
    code = f"torch.nn.functional.interpolate(x, ({size}, {size}), mode='bilinear')"
    return ShapeStep(code, lambda x: F.interpolate(x, (size, size), mode="bilinear"))


NOTHING = ShapeStep("", lambda x: x)
CHANNELS = (
    NOTHING,
    ShapeStep("x.expand(-1, 3, -1, -1)", lambda x: x.expand(-1, 3, -1, -1)),
    ShapeStep("x.mean(1, keepdim=True)", lambda x: x.mean(1, keepdim=True)),
)
SIZES = (NOTHING, *map(_resized, (28, 32, 64, 96, 128, 160, 224, 299)))
LAYOUTS = (
    NOTHING,
    ShapeStep("x.flatten(1)", lambda x: x.flatten(1)),
    ShapeStep("x.squeeze(1)", lambda x: x.squeeze(1)),
    ShapeStep("x.unsqueeze(1)", lambda x: x.unsqueeze(1)),
    ShapeStep("x.movedim(1, -1)", lambda x: x.movedim(1, -1)),
    ShapeStep("x.double()", lambda x: x.double()),
)
FORMS = sorted(
    itertools.product(CHANNELS, SIZES, LAYOUTS),
    key=lambda steps: sum(step is not NOTHING for step in steps),
)
"""Channels, size and layout, composed; those of few changes first."""


def line_that_fits(ask: Callable[[Tensor], Any], x: Tensor) -> str:
    """The line by which a network that fails on inputs x (n, *shape) answers each with more than
    one score; empty if none of the forms does.
    """
    for steps in FORMS[1:]:
        changes = [step for step in steps if step is not NOTHING]
        try:
            with torch.no_grad():
                inputs = x
                for step in changes:
                    inputs = step.apply(inputs)
                answer = ask(inputs)
        except Exception:
            continue
        # Fewer axes, or another number of rows, is no answer to each input.
        if isinstance(answer, Tensor) and answer.ndim > 1 and len(answer) == len(x):
            return "; ".join(f"x = {step.code}" for step in changes)
    return ""
