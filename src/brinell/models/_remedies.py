"""What to do about a model that cannot take its inputs: it is asked with other types and shapes, and what works is proposed."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from brinell.core.domain import Domain

OWN_SHAPE = "give it its own shape"
"""The remedy where nothing works."""
TYPES = {"float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16, "int64": torch.int64}
METHODS = {"float64": "double", "float16": "half", "bfloat16": "bfloat16", "int64": "long"}
"""Methods of a tensor that convert it to a type."""


def tested_remedy(ask: Callable[[Tensor], Any], domain: Domain, x: Tensor) -> str:
    """What to do about a model that fails on inputs of the domain.

    Args:
        ask: the model's own function of inputs; it may raise anything.
        domain: the domain of the inputs.
        x: (1, *shape) an input.
    """
    for name, dtype in TYPES.items():
        if _answers(ask, x.to(dtype)):
            return f"it takes inputs in {name}: let its forward pass begin with x = x.{METHODS[name]}()"
    if domain.kind == "image" and domain.shape[0] == 4 and _answers(ask, x[:, :3]):
        return "it takes images of 3 channels, and these have 4, as RGBA has: give the data as x[:, :3]"
    if domain.kind == "image" and domain.shape[0] == 3 and _answers(ask, x[:, :1]):
        return "it takes images of 1 channel, and these have 3: read them in grey, image-folder:DIR?mode=L, or give x[:, :1]"
    if domain.kind == "image" and domain.shape[0] == 1 and _answers(ask, x.repeat(1, 3, 1, 1)):
        return "it takes images of 3 channels, and these have 1: let its forward pass begin with x = x.repeat(1, 3, 1, 1)"
    for shape, remedy in _other_shapes(domain):
        if _answers(ask, x.reshape(1, *shape)):
            return f"it takes inputs of shape {shape}: {remedy}"
    return OWN_SHAPE


def _answers(ask: Callable[[Tensor], Any], x: Tensor) -> bool:
    """True if the model answers one input with one row of numbers."""
    try:
        answer = ask(x)
    except Exception:  # whatever the code of a model raises
        return False
    return isinstance(answer, Tensor) and answer.ndim == 2 and len(answer) == 1


def _other_shapes(domain: Domain) -> Iterator[tuple[tuple[int, ...], str]]:
    """Other shapes of an input with as many values, and what to do for each."""
    kind, shape = domain.kind, domain.shape
    if kind == "vector":
        yield (1, *shape), "give the data kind=signal"
        side = round(shape[0] ** 0.5)
        if side * side == shape[0]:
            yield (1, side, side), f"give the data as images, x.reshape(-1, 1, {side}, {side})"
    if kind == "signal":
        yield (1, *shape), "give the data kind=image"
        yield shape[::-1], "let its forward pass begin with x = x.transpose(1, 2)"
        if shape[0] == 1:
            yield shape[1:], "let its forward pass begin with x = x.squeeze(1)"
    if kind == "image" and shape[0] == 1:
        yield shape[1:], "give the data kind=signal, or let its forward pass begin with x = x.squeeze(1)"
    if kind == "image":
        yield (*shape[1:], shape[0]), "it wants channels last: let its forward pass begin with x = x.permute(0, 2, 3, 1)"
    if kind != "vector":
        size = 1
        for side in shape:
            size *= side
        yield (size,), "let its forward pass begin with x = x.flatten(1)"
