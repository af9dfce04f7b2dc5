"""The step that ends each iteration of an attack: samples that need no further query leave."""

from typing import Any

from torch import Tensor

from brinell.core.contracts import Batch, Oracle


def still_active(oracle: Oracle, batch: Batch, *aligned: Any) -> tuple[Any, ...]:
    """The rows of `batch`, and of what is aligned with it (tensors, threats, streams), that are still worth a query."""
    keep = oracle.active(batch.ids)
    if keep.all():
        return batch, *aligned
    return batch.select(keep), *(one[keep] if isinstance(one, Tensor) else one.select(keep) for one in aligned)
