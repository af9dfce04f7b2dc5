"""Sparse-RS: random search over which few places change, or where a patch is, and their colours.

Croce, Andriushchenko, Singh, Flammarion & Hein 2022, Sparse-RS: a versatile framework for
query-efficient sparse black-box adversarial attacks, Algorithms 1 to 3 with the settings of the
appendix for untargeted attacks.

The paper counts pixels, which change in all channels at once, as the distance `pixels` does. L0
counts values: of C channels, floor(eps / C) places change. In the distance `patch` one patch of
side eps does: a square, a segment of a signal or a vector, a cube of a video, cut where an axis is
shorter. If eps is too small for one place, no query is made.

Colours are corners: each channel at one end of its range. A pixel that would get the colour that it
has in the clean input gets the opposite one, so every place is a real change.

Deviations:
- Pixels: the authors' code makes sure of a new colour only where one pixel changes.
- The patch starts as a chequerboard of squares of side sqrt(s) with random colours. The authors'
  code lays 1,000 random squares with sides below sqrt(s) over one another.
- In one of four steps the patch moves, as in the authors' code for untargeted attacks; it stays
  within the input.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind
from brinell.attacks._windows import strides
from brinell.core.contracts import Access, Batch, Domain, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.settings import Count, Fraction

PIXELS = (
    (0, 2),
    (50, 4),
    (200, 5),
    (500, 6),
    (1000, 8),
    (2000, 10),
    (4000, 12),
    (6000, 15),
    (8000, 20),
)
PATCH = (
    (10, 2),
    (50, 4),
    (200, 8),
    (500, 16),
    (1000, 32),
    (2000, 64),
    (4000, 128),
    (6000, 256),
    (8000, 512),
)
"""After which of 10,000 steps alpha is divided by what."""
COLOUR_DRAWS = 4096
"""Draws of colours from which each tile of a patch takes one."""
TILE_PRIMES = (1, 7919, 104729)
"""Factors of the positions of a tile along the axes, by which distant tiles get other draws."""
REACH = 0.75
"""How far a patch moves at first, as a share of each axis; it falls to 0 along a straight line."""
MOVES = 4
"""Every how many steps a patch moves instead of changing."""
ROOM = 2**24
"""Values of input that are searched together."""


@dataclass(frozen=True, kw_only=True)
class SparseRS(EveryKind):
    """Random search over few pixels anywhere, or one patch; no gradients, one query a step."""

    steps: Count = 5000
    """Proposals; one more query is for the start."""
    p_init: Fraction | None = None
    """Share of the pixels, or of the patch, that the first proposals change; none means the
    paper's, 0.3 and 0.4."""
    loss: Literal["margin", "ce"] = "margin"
    """Loss to raise: margin or ce (cross-entropy)."""
    rescale_schedule: bool = True
    """Divide alpha at the paper's shares of `steps`; otherwise at the paper's steps of 10,000."""

    access = Access.SCORES
    distances = frozenset({"l0", "pixels", "patch"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """One query for the start, and one a proposal."""
        return self.steps + 1, 0

    def share(self, step: int, distance: str) -> float:
        """The paper's alpha at a step, counted from 0."""
        index = (step + 1) * 10_000 // self.steps if self.rescale_schedule else step + 1
        # The paper's first alpha, and the steps after which it falls.
        first, marks = (0.4, PATCH) if distance == "patch" else (0.3, PIXELS)
        divisors = [divisor for mark, divisor in marks if index > mark]
        return (self.p_init or first) / max(divisors, default=1)

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Search on all samples whose eps allows one place."""
        able = (_places(threat) >= 1).nonzero()[:, 0]
        for rows in torch.split(able, max(1, ROOM // math.prod(threat.domain.shape))):
            if len(rows):
                self._run(oracle, batch.select(rows), threat.select(rows), rng.select(rows))

    def _run(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Algorithm 1."""
        loss = LOSSES[self.loss]
        ids = batch.ids
        form = threat.distance.name
        make = _Patch if form == "patch" else _Pixels
        search: _Pixels | _Patch = make(batch, threat, rng.fold("start"))
        highest = oracle.loss(ids, search.x, loss)

        for step in range(self.steps):
            active = oracle.active(ids)
            if not active.all():
                ids = ids[active]
                highest = highest[active]
                rng = rng.select(active)
                if not len(ids):
                    return
                search.select(active)

            # The share of the run that is left, by which patches move less and less far.
            remaining = 1 - (step + 1) / self.steps
            proposal = search.propose(rng.fold(step), self.share(step, form), step, remaining)
            answer = oracle.loss(ids, proposal, loss)
            improved = answer > highest
            highest = torch.where(improved, answer, highest)
            search.settle(improved)


class _Colours:
    """Corners of the range of each place: (n, C) values that differ from the clean ones."""

    def __init__(self, domain: Domain, x: Tensor) -> None:
        places = math.prod(domain.grid)
        shape = (math.prod(domain.shape) // places, places)
        low, high = domain.bounds(x)
        self.low = low.expand(1, *domain.shape).reshape(shape)
        self.high = high.expand(1, *domain.shape).reshape(shape)

    def corners(self, places: Tensor, high: Tensor) -> Tensor:
        """(n, C, k): colours at the places (n, k): the upper bounds where `high` (n, C, k)."""
        return torch.where(
            high, self.high[:, places].movedim(1, 0), self.low[:, places].movedim(1, 0)
        )

    def corners_unlike(self, places: Tensor, high: Tensor, clean: Tensor) -> Tensor:
        """(n, C, k): the corners, or the opposite ones where they equal the clean colour."""
        colour = self.corners(places, high)
        unchanged = (colour == clean).all(1, keepdim=True)
        return torch.where(unchanged, self.corners(places, ~high), colour)


class _Pixels:
    """Algorithm 2: some of the changed places are given up for others, which get new colours."""

    def __init__(self, batch: Batch, threat: Threat, rng: Streams) -> None:
        domain = threat.domain
        self._shape = domain.shape
        self._colours = _Colours(domain, batch.x)
        self._clean = batch.x.reshape(len(batch), *self._colours.low.shape)
        self._count = _places(threat).clamp_max(self._clean.shape[2])
        # The rank of random numbers is a random choice of places, another one for each sample.
        order = rng.uniform(self._clean.shape[2]).argsort(1).argsort(1)
        self._changed = order < self._count[:, None]

        places = torch.arange(self._clean.shape[2], device=batch.x.device).expand_as(order)
        high = rng.fold("colour").bits(*self._clean.shape[1:]) > 0
        colours = self._colours.corners_unlike(places, high, self._clean)
        self._best = torch.where(self._changed[:, None], colours, self._clean)
        self._proposal = self._best
        self._after = self._changed
        self.x = self._best.reshape(-1, *self._shape)

    def select(self, keep: Tensor) -> None:
        """Keep some samples."""
        self._clean = self._clean[keep]
        self._count = self._count[keep]
        self._changed = self._changed[keep]
        self._best = self._best[keep]

    def propose(self, rng: Streams, share: float, step: int, remaining: float) -> Tensor:
        """Exchange a share of the changed places, one at least."""
        channels, places = self._clean.shape[1:]
        swapped = (share * self._count).long().clamp_min_(1)
        swapped = torch.minimum(swapped, (places - self._count).clamp_min_(1))
        most = int(swapped.max())
        # Of `most` places for all samples, those that this sample exchanges.
        counts = torch.arange(most, device=swapped.device) < swapped[:, None]

        # Random numbers below 1, so that 1 more puts changed places in front to leave, and 1 less
        # puts them behind the clean ones to enter. Where all are changed, the same ones get another
        # colour.
        keys = rng.uniform(places)
        leave = (keys + self._changed).topk(most, dim=1).indices
        enter = (keys - self._changed.float()).topk(most, dim=1).indices
        enter = torch.where(self._count[:, None] < places, enter, leave)

        self._proposal = self._best.clone()
        self._after = self._changed.clone()
        self._write(leave, counts, _take(self._clean, leave), changed=False)
        high = rng.fold("colour").bits(channels, most) > 0
        colours = self._colours.corners_unlike(enter, high, _take(self._clean, enter))
        self._write(enter, counts, colours, changed=True)
        return self._proposal.reshape(-1, *self._shape)

    def _write(self, places: Tensor, counts: Tensor, values: Tensor, *, changed: bool) -> None:
        """Write values at the places (n, k) of the proposal that count, (n, k) bool, and mark them
        as changed or as clean.
        """
        content = torch.where(counts[:, None], values, _take(self._proposal, places))
        self._proposal.scatter_(2, places[:, None].expand_as(content), content)
        marks = torch.where(counts, changed, self._after.gather(1, places))
        self._after.scatter_(1, places, marks)

    def settle(self, improved: Tensor) -> None:
        """Keep the proposal where it was better."""
        self._best = torch.where(improved[:, None, None], self._proposal, self._best)
        self._changed = torch.where(improved[:, None], self._after, self._changed)


class _Patch:
    """Algorithm 3: a square of the patch gets another colour, or the patch moves."""

    def __init__(self, batch: Batch, threat: Threat, rng: Streams) -> None:
        domain = threat.domain
        self._grid = domain.grid
        self._shape = domain.shape
        self._colours = _Colours(domain, batch.x)
        self._clean = batch.x.reshape(len(batch), *self._colours.low.shape)
        device = batch.x.device
        self._length = torch.tensor(self._grid, device=device)

        self._sides = _places(threat)[:, None].minimum(self._length)
        self._window = tuple(int(side) for side in self._sides.amax(0))
        axes = (torch.arange(side, device=device) for side in self._window)
        self._offsets = torch.cartesian_prod(*axes).reshape(-1, len(self._window))
        room = self._length - self._sides
        self._corner = (rng.fold("corner").uniform(len(self._grid)) * (room + 1)).long()

        # The content of each patch: which channels are at the upper end of their range, for the
        # largest window of all. It is a chequerboard: each tile has a number, from its position,
        # which picks one of some draws of its colours.
        square = self._sides.amax(1).float().sqrt().long().clamp_min_(1)
        tiles = self._offsets[None] // square[:, None, None]
        primes = torch.tensor(TILE_PRIMES[: len(self._grid)], device=device)
        number = (tiles * primes).sum(2)
        channels = self._clean.shape[1]
        draws = rng.fold("content").bits(channels, COLOUR_DRAWS) > 0
        self._content = draws.gather(2, (number % COLOUR_DRAWS)[:, None].expand(-1, channels, -1))
        self._next = (self._corner, self._content)
        self.x = self._painted(self._corner, self._content)

    def select(self, keep: Tensor) -> None:
        """Keep some samples."""
        self._clean = self._clean[keep]
        self._sides = self._sides[keep]
        self._corner = self._corner[keep]
        self._content = self._content[keep]

    def propose(self, rng: Streams, share: float, step: int, remaining: float) -> Tensor:
        """In one of four steps move, otherwise give a square of the patch another colour."""
        corner = self._corner
        content = self._content
        axes = len(self._grid)
        room = self._length - self._sides
        # The patch moves less and less far: late moves would lose what its content was fitted to.
        reach = (remaining * REACH * self._length).long()
        if (step + 1) % MOVES == 0 and bool((reach > 0).any()):
            shift = (rng.fold("shift").uniform(axes) * (2 * reach + 1)).long() - reach
            corner = (corner + shift).clamp(torch.zeros_like(room), room)
        else:
            content = self._repainted(rng, share)
        self._next = (corner, content)
        return self._painted(corner, content)

    def _repainted(self, rng: Streams, share: float) -> Tensor:
        """The content with one square of another colour.

        All of the square changes, or, where it is one place, one channel.
        """
        axes = len(self._grid)
        channels = self._clean.shape[1]
        # A square of this share of the patch, one place at least.
        side = torch.minimum((share ** (1 / axes) * self._sides).long().clamp_min_(1), self._sides)
        start = (rng.fold("square").uniform(axes) * (self._sides - side + 1)).long()
        end = start + side
        overlap = (self._offsets >= start[:, None]) & (self._offsets < end[:, None])
        covered = overlap.all(2)[:, None]

        high = (rng.fold("high").bits(channels, 1) > 0).expand_as(self._content)
        channel = rng.fold("channel").integers(channels, 1)
        # Of a square of one place one channel turns to its other end (exclusive or).
        single = torch.arange(channels, device=side.device)[:, None] == channel[:, None]
        single_place = (side == 1).all(1)[:, None, None]
        # A square that has this colour already gets the opposite one.
        idle = ((high == self._content) | ~covered).flatten(1).all(1)[:, None, None]
        turned = torch.where(idle, ~high, high)
        turned = torch.where(single_place, self._content ^ single, turned)
        return torch.where(covered, turned, self._content)

    def _painted(self, corner: Tensor, content: Tensor) -> Tensor:
        """(n, *shape): the clean inputs with the patches on them."""
        # For a patch smaller than the largest one, a window of the largest size around it is
        # written, most of it clean.
        window = torch.tensor(self._window, device=corner.device)
        anchor = torch.minimum(corner, self._length - window)
        offsets = self._offsets - (corner - anchor)[:, None]
        covered = ((offsets >= 0) & (offsets < self._sides[:, None])).all(2)

        across = torch.tensor(strides(self._window), device=corner.device)
        down = torch.tensor(strides(self._grid), device=corner.device)
        # Beside the patch any content may be read, as the clean values are written there.
        index = ((offsets * across).sum(2) * covered)[:, None].expand(-1, content.shape[1], -1)

        places = ((self._offsets + anchor[:, None]) * down).sum(2)
        colours = self._colours.corners(places, content.gather(2, index))
        values = torch.where(covered[:, None], colours, _take(self._clean, places))
        painted = self._clean.scatter(2, places[:, None].expand_as(values), values)
        return painted.reshape(-1, *self._shape)

    def settle(self, improved: Tensor) -> None:
        """Keep the proposal where it was better."""
        corner, content = self._next
        self._corner = torch.where(improved[:, None], corner, self._corner)
        self._content = torch.where(improved[:, None, None], content, self._content)


def _places(threat: Threat) -> Tensor:
    """(n,) int64: how many places may change, all channels of each; in patch, along a side."""
    channels = math.prod(threat.domain.shape) // math.prod(threat.domain.grid)
    values = channels if threat.distance.name == "l0" else 1
    return (threat.eps / values).floor().long()


def _take(values: Tensor, places: Tensor) -> Tensor:
    """(n, C, k): the values (n, C, places) at the places (n, k)."""
    return values.gather(2, places[:, None].expand(-1, values.shape[1], -1))
