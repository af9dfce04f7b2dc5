"""States of a network in which it may be right on clean inputs, where it is wrong as it is: its mode and its batch norms."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from brinell.core.model import Model


class ModelState(NamedTuple):
    """A state in which a model is asked again."""

    text: str
    """The state, as a clause that follows «with inputs»."""
    remedy: str
    """What to do if the model is right in this state."""
    applied: Callable[[], AbstractContextManager[None]]
    """Puts the model into the state until the context ends."""


def candidate_states(model: Model) -> list[ModelState]:
    """The states of which the model shows a sign, and a finer precision; none if the model is not a torch module."""
    module, states = model.info.module, []
    if module is None:
        return []
    if model.info.training is not None and model.info.training():
        states.append(
            ModelState(
                "as they are and the model kept in evaluation mode",
                "its forward pass puts it into training mode: take train() out of it",
                lambda: _kept_in_evaluation_mode(module),
            )
        )
    if norms := [part for part in module.modules() if isinstance(part, _BatchNorm) and _is_untouched(part)]:
        states.append(
            ModelState(
                "as they are and the batch norms by the statistics of the batch",
                f"the running means and variances of {len(norms)} batch norms are those of a new network: load the buffers with "
                "the weights (running_mean, running_var)",
                lambda: _by_batch_statistics(norms),
            )
        )
    states.append(
        ModelState(
            "as they are and computed in float64",
            "float32 or less is too coarse for it: compute in float64, such as by model.double()",
            lambda: _in_float64(module),
        )
    )
    return states


def _is_untouched(norm: _BatchNorm) -> bool:
    """True if the running mean is 0 and the running variance 1 everywhere, as in a new module."""
    mean, variance = norm.running_mean, norm.running_var
    return mean is not None and variance is not None and bool((mean == 0).all() and (variance == 1).all())


@contextmanager
def _kept_in_evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Context that keeps all modules in evaluation mode, even if the forward pass calls `train`, and then restores modes."""
    parts = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in parts:
            part.training = False
            part.__dict__["train"] = lambda mode=True, part=part: part
        yield
    finally:
        for part, training in parts:
            part.__dict__.pop("train", None)
            part.training = training


@contextmanager
def _in_float64(module: nn.Module) -> Iterator[None]:
    """Parameters, buffers and inputs in float64; restored at the end."""
    tensors = [*module.parameters(), *module.buffers()]
    values = [(tensor, tensor.data) for tensor in tensors if tensor.is_floating_point()]

    def widen(part: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs in float64."""
        return tuple(x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs)

    hook = module.register_forward_pre_hook(widen)
    try:
        for tensor, value in values:
            tensor.data = value.double()
        yield
    finally:
        hook.remove()
        for tensor, value in values:
            tensor.data = value


@contextmanager
def _by_batch_statistics(norms: list[_BatchNorm]) -> Iterator[None]:
    """Batch norms that use the statistics of the batch; buffers and modes are restored at the end."""
    buffers = [[(buffer, buffer.clone()) for buffer in norm.buffers()] for norm in norms]
    modes = [norm.training for norm in norms]
    try:
        for norm in norms:
            norm.training = True
        yield
    finally:
        with torch.no_grad():
            for pairs, norm, mode in zip(buffers, norms, modes, strict=True):
                norm.training = mode
                for buffer, value in pairs:
                    buffer.copy_(value)
