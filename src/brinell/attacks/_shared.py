"""What attacks share: what nearly all of them declare, and the step in which samples that need no further query leave."""

from typing import Any, ClassVar

from torch import Tensor

from brinell.core.contracts import KINDS, Batch, Kind, Oracle


class EveryKind:
    """Declares that an attack works on every kind of input, and can lead to a target class."""

    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    targeted: ClassVar[bool] = True


def still_active(oracle: Oracle, batch: Batch, *aligned: Any) -> tuple[Any, ...]:
    """The rows of `batch`, and of what is aligned with it (tensors, threats, streams), that are still worth a query."""
    keep = oracle.active(batch.ids)
    if keep.all():
        return batch, *aligned
    return batch.select(keep), *(one[keep] if isinstance(one, Tensor) else one.select(keep) for one in aligned)
