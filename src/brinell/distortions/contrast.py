"""Contrast: haze, a weak signal, a gain set too low."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from brinell.core.contracts import Access, Kind, Streams
from brinell.distortions._shared import Scale, opaque, per_sample

__all__ = ["Contrast"]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Every value moves towards the mean of its channel."""

    domains: ClassVar[frozenset[Kind]] = frozenset({"image", "video", "signal"})
    access: ClassVar[Access] = Access.LABELS
    scale: ClassVar[Scale] = Scale(small=(0.28, 0.38, 0.49, 0.61, 0.73), large=(0.3, 0.4, 0.52, 0.64, 0.76))
    """Share of the contrast that is lost."""

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """One: nothing is random."""
        return 1

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1], flatter."""
        return self.distort(x, self.scale(severity, x), rng)

    def distort(self, x: Tensor, loss: Tensor, rng: Streams) -> Tensor:
        """`x` with this share (n,) of its contrast lost."""
        mean = x.mean(tuple(range(2, x.ndim)), keepdim=True)
        return opaque(mean, per_sample(loss, x), x).clamp(0, 1)
