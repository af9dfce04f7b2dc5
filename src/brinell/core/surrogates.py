"""Surrogates: networks of the same task whose gradients an attack without gradients may follow (Papernot et al. 2017).

An attack asks them through its oracle. They answer by gradients alone, and what they cost counts apart from the queries of the
model under test: one pass is one forward and one backward evaluation of one surrogate at one input.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.core.errors import MemoryShortError, ModelError, one_line
from brinell.core.memory import is_memory_short
from brinell.core.model import Model


def slopes(models: Sequence[Model], x: Tensor, weights: Tensor, batch_size: int) -> Tensor:
    """(n, surrogates, *shape): the gradients of each surrogate's logits at inputs (n, *shape), weighted by (n, classes).

    Raises:
        ModelError: a surrogate gives gradients that are not finite.
        MemoryShortError: the memory does not suffice for a batch.
    """
    parts = [slice(start, start + batch_size) for start in range(0, len(x), batch_size)]
    return torch.stack([torch.cat([_slope(model, x[part], weights[part]) for part in parts]) for model in models], 1)


def _slope(model: Model, x: Tensor, weights: Tensor) -> Tensor:
    """(n, *shape): the weighted gradients of one surrogate at one batch."""
    leaf = x.detach().requires_grad_()
    try:
        with torch.enable_grad():
            value = (model.predict(leaf) * weights).sum()
            (grad,) = torch.autograd.grad(value, leaf) if value.requires_grad else (torch.zeros_like(leaf),)
    except RuntimeError as error:
        if not is_memory_short(error):
            raise
        raise MemoryShortError(
            f"gradients of {model.name} at {len(x)} inputs do not fit into memory ({one_line(error)})"
        ) from error
    if not bool(torch.isfinite(grad).all()):
        raise ModelError(f"the surrogate {model.name} gives a gradient of NaN or infinity: leave it out")
    return grad
