"""A batch of labelled inputs, as an attack receives it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs with their labels."""

    ids: Tensor
    """(n,) int64: the handles by which the ledger knows the samples."""
    x: Tensor
    """(n, *shape) float32: the clean inputs, within their bounds. Never write into them."""
    y: Tensor
    """(n,) int64: the true labels."""

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, keep: Tensor) -> "Batch":
        """The rows that `keep` (bool, or indices) names; nothing is changed in place."""
        return Batch(ids=self.ids[keep], x=self.x[keep], y=self.y[keep])
