"""States of a network in which it may be right on clean inputs, where it is wrong as it is: its mode and its batch norms."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def untouched_norms(module: nn.Module) -> list[_BatchNorm]:
    """The batch norms whose running mean is 0 and running variance 1 everywhere, as in a new module."""
    return [
        part
        for part in module.modules()
        if isinstance(part, _BatchNorm)
        and part.running_mean is not None
        and part.running_var is not None
        and bool((part.running_mean == 0).all() and (part.running_var == 1).all())
    ]


@contextmanager
def kept_in_evaluation_mode(module: nn.Module) -> Iterator[None]:
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
def by_batch_statistics(norms: Sequence[_BatchNorm]) -> Iterator[None]:
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
