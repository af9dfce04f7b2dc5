"""Helpers that several attacks share: declarations, active samples, the criterion, noise."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from brinell.core.contracts import (
    KINDS,
    Access,
    Batch,
    Domain,
    Family,
    Kind,
    Oracle,
    Streams,
    Threat,
)
from brinell.core.norms import per_sample
from brinell.core.patches import PatchGrid
from brinell.core.settings import Checked


class EveryKind(Checked):
    """Declares that an attack works on every kind of input, and can lead to a target class."""

    access: ClassVar[Access]
    distances: ClassVar[frozenset[str]]
    family: ClassVar[Family]
    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    targeted: ClassVar[bool] = True


def still_active(
    oracle: Oracle, batch: Batch, *aligned: Any, stop_at_eps: bool = False
) -> tuple[Any, ...]:
    """The rows of `batch` that are still worth a query, and what is aligned with them.

    That may be tensors, threats and streams. `stop_at_eps` is that of `Oracle.remaining`.
    """
    rows = oracle.remaining(batch.ids, stop_at_eps)
    return (batch, *aligned) if rows is None else select_rows(rows, batch, *aligned)


def replace_rows(target: Tensor, mask: Tensor, values: Tensor) -> None:
    """Write into `target` the rows of `values`, both (n, ...), where `mask` (n,) bool is True.

    A device is not waited for.
    """
    if target.device.type == "cpu":
        rows = mask.nonzero()[:, 0]
        target[rows] = values[rows]
    else:
        torch.where(per_sample(mask, target), values, target, out=target)


def select_rows(keep: Tensor, *aligned: Any) -> tuple[Any, ...]:
    """The selected rows of each argument (batch, tensor, threat or streams of n rows).

    `keep` is (n,) bool or int64.
    """
    return tuple(rows[keep] if isinstance(rows, Tensor) else rows.select(keep) for rows in aligned)


def adversarial(batch: Batch, threat: Threat, x: Tensor, logits: Tensor) -> Tensor:
    """(n,) bool: which of `x` (n, *shape), answered with `logits`, meet the criterion.

    Their distance plays no part.
    """
    margin = threat.criterion.margin(logits, batch.y, x)
    return threat.criterion.is_met(margin, logits, batch.y)


def over_places(values: Tensor, threat: Threat) -> Tensor:
    """Values (n, *shape) added up over what L0 counts as one: (n, 1, *places) in pixels.

    In L0 each value stands alone, and they stay as they are.
    """
    is_single = threat.distance.name == "l0" or values.ndim == 2
    return values if is_single else values.sum(1, keepdim=True)


def largest(scores: Tensor, count: Tensor) -> Tensor:
    """(n, *places) bool: the places with the floor(count) (n,) largest scores (n, *places)."""
    # The order of an order is the rank of each place, 0 for the largest score.
    ranks = scores.flatten(1).argsort(dim=1, descending=True).argsort(dim=1)
    return (ranks < count.floor()[:, None]).reshape(scores.shape)


def noise_squares(domain: Domain, rng: Streams, trial: int, reference: Tensor) -> Tensor:
    """(n, *shape): uniform noise within the bounds, constant on squares.

    Their side doubles from one trial to the next, and begins at 1 again beyond the longest axis.

    The device is that of `reference`.
    """
    shape = domain.shape
    grid = domain.grid
    # Squares of each size in turn: large ones fool networks that fine noise does not, and the
    # reverse.
    side = 2 ** (trial % (1 + int(math.log2(max(grid)))))
    squares = PatchGrid(grid, tuple(min(side, length) for length in grid))
    uniform = rng.uniform(math.prod(shape) // math.prod(grid), len(squares))

    low, high = domain.bounds(reference)
    # Squares side by side do not overlap: each value has one of them, the first in its list.
    noise = uniform[:, :, squares.covers[:, 0].to(uniform.device)].reshape(-1, *shape)
    return domain.clamp(low + (high - low) * noise)


def cosine(first: float, last: float, share: float) -> float:
    """Cosine annealing (Loshchilov & Hutter 2017): from `first` at share 0 to `last` at 1."""
    return last + 0.5 * (first - last) * (1 + math.cos(math.pi * share))


def cosines(side: int) -> Tensor:
    """(side, side): row f is the wave of frequency f of the orthonormal DCT-II."""
    place = torch.arange(side, dtype=torch.float64)
    frequency = torch.arange(side, dtype=torch.float64)[:, None]
    waves = torch.cos(torch.pi / side * (place + 0.5) * frequency) * math.sqrt(2 / side)
    waves[0] = side**-0.5
    return waves.float()
