"""Square Attack: random search over square-shaped changes, guided by the scores alone.

Andriushchenko, Croce, Flammarion & Hein 2020, Square Attack: a query-efficient black-box
adversarial attack via random search, Algorithms 1 to 3 and section 3.

A proposal changes one window (Linf) or moves budget from one window to another (L2), so only the
values in the windows are read and written: the best input is changed in place, asked about, and put
back where the answer was no better. Linf's proposal clipped to ball and box is x0 + eps or x0 - eps
clipped to the box, whatever was there before; Algorithm 3 spends what it takes away and what was
unused, so its proposals never leave the ball. Neither needs a projection of the whole input.

Beyond images: squares become segments of a signal (C, T) and blocks of a video (C, T, H, W) of the
same fraction of the input, as near to a cube as the axes allow; stripes are constant along all axes
but the last. The values of a vector (D,) have no order, and which way is up is a matter of units,
so its windows are segments of a random order with a random sign for each value, both drawn anew
every 64 steps: each window is a uniformly random subset of the values, filled evenly.

Deviations:
- A Linf proposal that would change nothing (one in 2**C where the window has one colour already)
  has all its signs turned: no query is wasted. ResNet-20 at 4/255, 50 samples, 300 steps: 25 fooled
  instead of 23.
- Linf, one channel, and so few values that windows of one value could go round all of them: they
  do, in a random order, and the search ends where a round was no better. Every later proposal would
  turn one value of the same input, which has been asked about: of a model that answers the same
  each time nothing more can come. On digits of 8x8 half of the queries ended there.
- p is also halved after 500 of 10,000 iterations, as in the authors' code. AutoAttack runs 5,000
  with `rescale_schedule=false`.
- L2: what the box cuts off a window's proposal is given to the other values of the window, twice
  over. Algorithm 3 leaves it to the next proposal. `cnn4_pgd` of MNIST at L2 2, 150 samples, 4,000
  steps: 128 fooled instead of 102; the same where the box does not matter (ResNet-20 at L2 0.5).
- L1, which the paper does not have: Algorithm 3 with absolute sums, where the values of a window go
  to the ends of their ranges in the order of its shape until the budget is spent. Croce & Hein
  2021, Mind the box, project each proposal onto the intersection of ball and box instead, to the
  same end: a sparse change that the box cannot cut. ResNet-20 at L1 12, 50 samples, 500 steps: 46
  fooled by either.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind
from brinell.attacks._windows import Box, Deals
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.criterion import Targeted
from brinell.core.losses import LOSSES
from brinell.core.norms import per_sample
from brinell.core.settings import Count, Fraction

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Section 4: after how many of 10,000 iterations p is halved."""
LEAST = {"linf": 1, "l2": 3, "l1": 3}
"""Section 3: the shortest side of a window."""
ROUNDS = 2
"""How often an L2 proposal is scaled up for what the box cut off."""
ROOM = 2**24
"""Values of input that are searched together: the first windows take some 60 bytes for each."""
BLOCK = 64
"""Steps whose random numbers are drawn together; it is part of what a seed means."""


@dataclass(frozen=True, kw_only=True)
class Square(EveryKind):
    """Square Attack: no gradients, one query a step."""

    steps: Count = 5000
    """Proposals of each restart; one more query is for the start."""
    p_init: Fraction = 0.8
    """Fraction of the input that the first windows cover."""
    loss: Literal["margin", "ce"] | None = None
    """Loss to raise: margin or ce (cross-entropy). None: margin; where there is a target class,
    its cross-entropy."""
    restarts: Count = 1
    """Random starting points, tried one after another on the samples that are still active."""
    rescale_schedule: bool = True
    """Halve the fraction at the paper's shares of `steps`; otherwise at the paper's iterations
    of 10,000."""
    patience: Count | None = None
    """Give a sample up once so many proposals in a row were no better; None: all steps, as in
    the paper."""

    access = Access.SCORES
    distances = frozenset({"linf", "l2", "l1"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """The start and the proposals of each restart."""
        return self.restarts * (self.steps + 1), 0

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Search with groups of samples that fit into memory, one restart after another."""
        size = max(1, ROOM // math.prod(threat.domain.shape))
        for restart in range(self.restarts):
            for rows in torch.split(oracle.active(batch.ids).nonzero()[:, 0], size):
                if len(rows):
                    streams = rng.select(rows).fold(restart)
                    self._run(oracle, batch.select(rows), threat.select(rows), streams)

    def fraction(self, step: int) -> float:
        """The paper's p at a step, counted from 0."""
        index = step * 10_000 // self.steps if self.rescale_schedule else step
        return self.p_init * 0.5 ** sum(index >= mark for mark in HALVINGS)

    def _rounds_from(self, deals: Deals) -> int:
        """The step from which windows of one value go round all values.

        It is `steps` where they cannot get round once, or have several channels: a window of more
        than one sign would have to come once for each combination of them.
        """
        if deals.channels != 1:
            return self.steps
        for step in range(self.steps):
            if deals.single(self.fraction(step)):
                return step if step + deals.places < self.steps else self.steps
        return self.steps

    def _run(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Algorithm 1. A search ends early where no window can improve it."""
        # As the authors: the margin, and towards a target class its cross-entropy, which is made to
        # fall.
        loss = LOSSES[self.loss or ("ce" if isinstance(threat.criterion, Targeted) else "margin")]
        ids = batch.ids
        norm = threat.distance.name
        deals = Deals(threat.domain, rng, least=LEAST[norm], weighted=norm == "l1")
        search = _Linf(batch, threat, deals) if norm == "linf" else _Mass(batch, threat, deals)

        highest = oracle.loss(ids, search.x, loss)
        idle = torch.zeros(len(ids), dtype=torch.long, device=highest.device)
        first_step = self._rounds_from(deals) if norm == "linf" else self.steps

        # Every proposal changes one window and is kept where it raises the loss.
        for step in range(self.steps):
            # Samples that no window can improve leave, beside those that are not active.
            active = oracle.remaining(ids)
            has_gone_round = step - first_step >= deals.places
            if has_gone_round or self.patience is not None:
                keep = oracle.active(ids)
                if self.patience is not None:
                    keep &= idle < self.patience
                if has_gone_round:
                    keep &= idle < deals.places
                active = keep.nonzero()[:, 0]
            if active is not None and len(active) < len(ids):
                ids = ids[active]
                highest = highest[active]
                idle = idle[active]
                if not len(ids):
                    break
                deals.select(active)
                search.select(active)

            if step % BLOCK == 0:
                later = range(step, min(step + BLOCK, self.steps))
                fractions = [self.fraction(number) for number in later]
                # Turns of windows of one value, below 0 before they begin.
                turns = torch.tensor(later) - first_step
                deals.draw(step // BLOCK, fractions, turns)

            search.propose(deals, step % BLOCK)
            answer = oracle.loss(ids, search.x, loss)
            improved = answer > highest
            highest = torch.where(improved, answer, highest)
            idle = torch.where(improved, 0, idle + 1)
            search.settle(improved)


class _Linf:
    """Algorithm 2: a window of one colour, each channel at one end of its range."""

    def __init__(self, batch: Batch, threat: Threat, deals: Deals) -> None:
        self.x0 = batch.x.flatten(1)
        self.eps = threat.eps
        self._box = Box(threat.domain, batch.x)
        self._channels = deals.channels
        start = batch.x + deals.stripes() * per_sample(threat.eps, batch.x)
        # Stripes are the start that Andriushchenko et al. 2020 found best in Linf.
        self.x = threat.project(start, batch.x).contiguous()
        # The last proposal: its places, and their values before and after it.
        self._window = torch.zeros(0)
        self._old = torch.zeros(0)
        self._new = torch.zeros(0)

    def select(self, keep: Tensor) -> None:
        """Keep some samples."""
        self.x0 = self.x0[keep]
        self.eps = self.eps[keep]
        self.x = self.x[keep]

    def propose(self, deals: Deals, step: int) -> None:
        """Write a window of another colour into `x`."""
        window = deals.window(step)
        flat = self.x.flatten(1)
        old = _at(flat, window, self._channels)
        clean = _at(self.x0, window, self._channels)
        change = deals.signs(step, window) * self.eps[:, None, None]
        new = self._box.clamp(clean + change, window)

        # A proposal that would change nothing has all its signs turned.
        idle = (new == old).flatten(1).all(1)
        new = torch.where(idle[:, None, None], self._box.clamp(clean - change, window), new)

        self._window = window
        self._old = old
        self._new = new
        flat.scatter_(1, window, new.flatten(1))

    def settle(self, improved: Tensor) -> None:
        """Keep the window where it was better; elsewhere put the old one back."""
        content = torch.where(improved[:, None, None], self._new, self._old)
        self.x.flatten(1).scatter_(1, self._window, content.flatten(1))


class _Mass:
    """Algorithm 3: the budget in two windows, and what is unused, goes into the first of them.

    The budget is counted in powers of the distance, which add up over values: squares in L2,
    absolute values in L1.
    """

    def __init__(self, batch: Batch, threat: Threat, deals: Deals) -> None:
        self._power = {"l2": 2, "l1": 1}[threat.distance.name]
        self.x0 = batch.x.flatten(1)
        self._box = Box(threat.domain, batch.x)
        self._channels = deals.channels
        # Budgets are kept as powers, which windows can exchange by plain sums.
        self.budget = threat.eps**self._power

        everywhere = torch.arange(self.x0.shape[1], device=batch.x.device).expand_as(self.x0)
        clean = _at(self.x0, everywhere, self._channels)
        share = (self.budget / self._channels)[:, None].expand(-1, self._channels)
        start = self._place(deals.bumps().reshape(clean.shape), share, clean, everywhere)
        self.x = threat.project(start.reshape(batch.x.shape), batch.x).contiguous()
        self.cost = self._cost(self.x.flatten(1) - self.x0)
        # What `settle` needs of the last proposal.
        self._undo: tuple[Tensor, ...] = ()

    def select(self, keep: Tensor) -> None:
        """Keep some samples."""
        self.x0 = self.x0[keep]
        self.x = self.x[keep]
        self.budget = self.budget[keep]
        self.cost = self.cost[keep]

    def _cost(self, delta: Tensor) -> Tensor:
        """(..., values) to (...): squares or absolute values added up."""
        return (delta * delta if self._power == 2 else delta.abs()).sum(-1)

    def _place(self, shape: Tensor, budget: Tensor, clean: Tensor, window: Tensor) -> Tensor:
        """The window's values when each channel's budget (n, channels) is spent in a shape.

        The shape is (n, channels, volume).

        In L2 the shape is scaled and clipped, and scaled again for what was cut off. In L1 the
        values go to the ends of their ranges, those where the shape is highest first, until the
        budget of all channels is spent: a corner of ball and box.
        """
        if self._power == 2:
            length = budget.sqrt()[..., None]
            change = shape * (length / _length(shape))
            new = self._box.clamp(clean + change, window)
            for _ in range(ROUNDS):
                # Scaled by k, the clipped change grows by k at most and stays within the budget.
                change.mul_((length / _length(new - clean)).clamp_(1, 100))
                new = self._box.clamp(clean + change, window)
            return new

        # The end of each value's range on the side of its shape: infinity, moved into the bounds.
        ends = self._box.clamp(torch.copysign(torch.full_like(shape, torch.inf), shape), window)
        room = (ends - clean).flatten(1)
        order = shape.abs().flatten(1).argsort(1, descending=True)
        ordered = room.abs().gather(1, order)
        # What the values before each, in this order, leave to it.
        remaining = budget.sum(1, keepdim=True) - (ordered.cumsum(1) - ordered)
        amounts = torch.minimum(remaining.clamp_min_(0), ordered)
        amounts = torch.zeros_like(room).scatter_(1, order, amounts)
        return self._box.clamp(clean + torch.copysign(amounts, room).view_as(clean), window)

    def propose(self, deals: Deals, step: int) -> None:
        """Write both windows into `x`: the second is cleared, the first gets both budgets."""
        first = deals.window(step)
        second = deals.window(step, "second")
        flat = self.x.flatten(1)
        # At the first step of a block the cost is counted anew, before rounding adds up.
        if step == 0:
            self.cost = self._cost(flat - self.x0)

        old_first = _at(flat, first, self._channels)
        clean_first = _at(self.x0, first, self._channels)
        old_second = _at(flat, second, self._channels)
        clean_second = _at(self.x0, second, self._channels)
        flat.scatter_(1, second, clean_second.flatten(1))

        # What both windows held is free again; where they overlap it counts once.
        overlap = self._cost(_at(flat, first, self._channels) - clean_first)
        released = self._cost(old_second - clean_second) + overlap
        unused = (self.budget - self.cost).clamp_min(0)[:, None] / self._channels

        change = old_first - clean_first
        filled = deals.signs(step, first) * deals.shapes(step) + change / _length(change)
        new_first = self._place(filled, released + unused, clean_first, first)
        flat.scatter_(1, first, new_first.flatten(1))
        cost = self.cost - released.sum(1) + self._cost(new_first - clean_first).sum(1)
        self._undo = (first, second, old_first, old_second, new_first, clean_second, cost)

    def settle(self, improved: Tensor) -> None:
        """Keep both windows where they were better; elsewhere put the old ones back."""
        first, second, old_first, old_second, new_first, clean_second, cost = self._undo
        mask = improved[:, None, None]
        flat = self.x.flatten(1)
        # The second first, as in `propose`: where both windows overlap the first one's values stay.
        flat.scatter_(1, second, torch.where(mask, clean_second, old_second).flatten(1))
        flat.scatter_(1, first, torch.where(mask, new_first, old_first).flatten(1))
        self.cost = torch.where(improved, cost, self.cost)


def _at(flat: Tensor, window: Tensor, channels: int) -> Tensor:
    """(n, channels, volume): the values of `flat` (n, values) at the places of a window."""
    return flat.gather(1, window).reshape(len(flat), channels, -1)


def _length(delta: Tensor) -> Tensor:
    """(..., values) to (..., 1): Euclidean length, above 0 so that one can divide by it."""
    length: Tensor = torch.linalg.vector_norm(delta, dim=-1, keepdim=True)
    return length.clamp_min_(1e-30)
