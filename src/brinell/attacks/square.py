"""Square Attack: random search over square-shaped changes, guided by the scores alone.

Andriushchenko, Croce, Flammarion & Hein 2020, Square Attack: a query-efficient black-box adversarial attack via random search,
Algorithms 1 to 3 and section 3.

A proposal changes one window (Linf) or moves budget from one window to another (L2), so only the values in the windows are
read and written: the best input is changed in place, asked about, and put back where the answer was no better. Linf's
proposal clipped to ball and box is x0 + eps or x0 - eps clipped to the box, whatever was there before; Algorithm 3 spends what
it takes away and what box clipping left unused, so its proposals have length eps before clipping. Neither needs a projection
of the whole input.

Beyond images: squares become segments of a signal (C, T) and blocks of a video (C, T, H, W) of the same fraction of the input,
as near to a cube as the axes allow; stripes are constant along all axes but the last. The values of a vector (D,) have no order
and no sign in common, so its windows are segments of a random order with a random sign for each value; both are drawn anew
every 64 steps, and each window is a uniformly random subset of the values.

Deviations:
- A Linf proposal that would change nothing (one in 2**C where the window has one colour already) has all its signs turned: a
  query saved.
- p is halved after the paper's iterations and after 500 of 10,000, as in the authors' code; `rescale_schedule=false` counts
  iterations as they are, which is how AutoAttack runs 5,000.
- L1 is Algorithm 3 with absolute sums in place of Euclidean lengths and a start of absolute sum eps. Croce & Hein 2021, Mind
  the box, project onto the intersection of ball and box at each step; here what the box cuts off is handed to the next proposal.
- In L2 and L1 a vector starts with one change of equal size in every value, and its windows hold equal sizes: bumps mean nothing
  without an order.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from brinell.core import windows
from brinell.core.batch import Batch
from brinell.core.contracts import Family
from brinell.core.domain import KINDS, Domain, Kind
from brinell.core.ledger import Desk
from brinell.core.losses import LOSSES
from brinell.core.norms import per_sample
from brinell.core.streams import Streams
from brinell.core.target import Access
from brinell.core.threat import Threat

__all__ = ["Square"]

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Section 4: after how many of 10,000 iterations p is halved."""
TILES = 5
"""Section 3.3: tiles along each axis of the L2 start."""
LEAST = {"linf": 1, "l2": 3, "l1": 3}
"""Section 3: the shortest side of a window."""
BLOCK = 64
"""Steps whose random numbers are drawn together; it is part of what a seed means."""


@dataclass(frozen=True, kw_only=True)
class Square:
    """Square Attack: no gradients, one query a step."""

    steps: int = 5000
    """Proposals of each restart; one more query is for the start."""
    p_init: float = 0.8
    """Fraction of the input that the first windows cover."""
    loss: Literal["margin", "ce"] = "margin"
    """Loss to raise: margin or ce (cross-entropy)."""
    restarts: int = 1
    """Random starting points, tried one after another on what still stands."""
    rescale_schedule: bool = True
    """Halve the fraction at the paper's shares of `steps`; otherwise at the paper's iterations of 10,000."""

    access: ClassVar[Access] = Access.SCORES
    distances: ClassVar[frozenset[str]] = frozenset({"linf", "l2", "l1"})
    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    family: ClassVar[Family] = "budgeted"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise ValueError(f"steps is {self.steps} and restarts {self.restarts}; both must be at least 1")
        if not 0 < self.p_init <= 1:
            raise ValueError(f"p_init is {self.p_init}, a fraction above 0 and at most 1")
        if self.loss not in ("margin", "ce"):
            raise ValueError(f"loss is {self.loss!r}, not margin or ce")

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward at the start and one a step."""
        return self.restarts * (self.steps + 1), 0

    def __call__(self, ledger: Desk, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Run the restarts one after another on what still stands."""
        for restart in range(self.restarts):
            stands = ledger.standing(batch.ids)
            if not stands.any():
                return
            self._run(ledger, batch.select(stands), threat.select(stands), rng.select(stands).fold(restart))

    def fraction(self, step: int) -> float:
        """The paper's p at a step, counted from 0."""
        at = step * 10_000 // self.steps if self.rescale_schedule else step
        return self.p_init * 0.5 ** sum(at >= mark for mark in HALVINGS)

    def _run(self, ledger: Desk, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Algorithm 1."""
        loss, ids, y = LOSSES[self.loss], batch.ids, batch.y
        search: _Search = _Linf(batch, threat, rng) if threat.distance.name == "linf" else _Mass(batch, threat, rng)
        deals = search.deals
        highest = loss(ledger.scores(ids, search.x), y)
        for step in range(self.steps):
            stands = ledger.standing(ids)
            if not stands.all():
                ids, y, highest = ids[stands], y[stands], highest[stands]
                if not len(ids):
                    return
                search.select(stands)
            if step % BLOCK == 0:
                fractions = [self.fraction(later) for later in range(step, min(step + BLOCK, self.steps))]
                deals.draw(step // BLOCK, fractions)
                search.refresh()
            search.propose(deals.deal(step % BLOCK))
            answer = loss(ledger.scores(ids, search.x), y)
            better = answer > highest
            highest = torch.where(better, answer, highest)
            search.settle(better)


@dataclass(frozen=True, kw_only=True)
class _Deal:
    """What chance decides in one step."""

    first: Tensor
    """(n, channels * volume) int64: places in the flat input of one window, all of whose channels are covered."""
    second: Tensor
    """(n, channels * volume) int64: another one, of the same sides."""
    signs: Tensor
    """(n, channels, 1 or volume) float: +-1 for each channel of a window; for vectors, for each value."""
    shape: Tensor
    """(n, 1, volume) float: what fills a window in L2."""


class _Deals:
    """Windows and signs, drawn for `BLOCK` steps at once: a pure function of the streams and the step."""

    def __init__(self, domain: Domain, threat: Threat, rng: Streams) -> None:
        self._vector = domain.kind == "vector"
        self.grid = domain.shape if self._vector else domain.shape[1:]
        self.channels = math.prod(domain.shape) // math.prod(self.grid)
        self._least, self._rng = LEAST[threat.distance.name], rng
        self._device = rng.keys.device
        self._order = self._flips = torch.zeros(0)
        self._first = self._second = self._turns = self._signs = torch.zeros(0)
        self._sides: list[windows.Sides] = []
        self._cut: tuple[windows.Sides, Tensor, Tensor] | None = None

    def select(self, keep: Tensor) -> None:
        self._rng = self._rng.select(keep)
        for name in ("_first", "_second", "_turns", "_signs", "_order", "_flips"):
            value = getattr(self, name)
            setattr(self, name, value[keep] if len(value) else value)

    def draw(self, block: int, fractions: list[float]) -> None:
        """Draw for the steps of a block, whose windows cover these fractions."""
        rng, axes = self._rng.fold(f"block {block}"), len(self.grid)
        self._sides = [windows.sides(self.grid, fraction, self._least) for fraction in fractions]
        room = torch.tensor([windows.starts(self.grid, side) for side in self._sides], device=self._device)
        stride = torch.tensor(windows.strides(self.grid), device=self._device)
        numbers = rng.integers(1 << 40, len(fractions), 2 * axes + 1 + self.channels)
        self._first = (numbers[..., :axes] % room * stride).sum(2)
        self._second = (numbers[..., axes : 2 * axes] % room * stride).sum(2)
        self._turns = numbers[..., 2 * axes]
        self._signs = 1.0 - 2.0 * (numbers[..., 2 * axes + 1 :] & 1)
        if self._vector:
            shuffle = rng.fold("order").bits(self.grid[0])
            self._order, self._flips = shuffle.argsort(1), 1.0 - 2.0 * (shuffle & 1)

    def deal(self, step: int) -> _Deal:
        """What the step of this block is given."""
        if self._cut is None or self._cut[0] != self._sides[step]:
            self._cut = self._sides[step], *self._shapes(self._sides[step])
        _, offsets, shapes = self._cut
        first, second = self._first[:, step, None] + offsets, self._second[:, step, None] + offsets
        signs = self._signs[:, step, :, None]
        if self._vector:
            first, second = self._order.gather(1, first), self._order.gather(1, second)
            signs = signs * self._flips.gather(1, first)[:, None]
        return _Deal(first=first, second=second, signs=signs, shape=shapes[self._turns[:, step] % len(shapes), None])

    def _shapes(self, sides: windows.Sides) -> tuple[Tensor, Tensor]:
        """(channels * volume,) offsets of a window's values in the flat input, and (orientations, volume) what fills it."""
        offsets = windows.offsets(self.grid, sides)
        channels = math.prod(self.grid) * torch.arange(self.channels)
        shapes = torch.ones(1, len(offsets)) if self._vector else windows.opposite_bumps(sides)
        return (channels[:, None] + offsets).flatten().to(self._device), shapes.to(self._device)

    def tiled(self) -> Tensor:
        """(n, *shape): section 3.3's start in L2, before it is scaled: a bump and a hole with a random sign in each tile."""
        n, rng = len(self._rng), self._rng.fold("start")
        if self._vector:
            return _signs(rng, self.grid[0])
        sides, place, tile, inside = (t.to(self._device) if isinstance(t, Tensor) else t for t in windows.tiles(self.grid, TILES))
        shapes = windows.opposite_bumps(sides).to(self._device)
        count = int(tile[-1]) + 1
        turns = rng.fold("turns").integers(len(shapes), count)
        delta = torch.zeros(n, self.channels, math.prod(self.grid), device=self._device)
        delta[:, :, place] = shapes[turns[:, tile], inside][:, None] * _signs(rng, self.channels, count)[:, :, tile]
        return delta.reshape(n, -1, *self.grid)


class _Search(Protocol):
    """The best inputs so far, and how to try others in their place."""

    x: Tensor
    deals: _Deals

    def select(self, keep: Tensor) -> None: ...

    def refresh(self) -> None: ...

    def propose(self, deal: _Deal) -> None: ...

    def settle(self, better: Tensor) -> None: ...
