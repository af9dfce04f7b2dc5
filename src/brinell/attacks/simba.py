"""SimBA: one direction after another, each kept with the sign that lowers the true class.

Guo, Gardner, You, Wilson & Weinberger 2019, Simple black-box adversarial attacks, Algorithm 1. The
directions are single values (`basis=pixel`) or, SimBA-DCT, the cosines of section 3.3 along all
axes but the channels, the lowest eighth of the frequencies of each axis first, and a thirty-second
more whenever all are used.

Samples advance through their directions each at its own pace, so every query of a step belongs to
another sample.

Deviations:
- The paper has no budget: its norm grows with the number of steps. Here each proposal is projected,
  so on the sphere of radius eps a step that helps is paid for by all steps before it.
- When all directions are used they are gone through once more, in the same order; the paper stops.
- A step that would change nothing, because the value is at its bound already, is left out. The
  paper spends a query on it.
- The loss to raise is the margin, not minus the probability of the true class (`loss=ce`), which is
  the same number for every input that the model is sure about: ResNet-20 at L2 1, 60 samples, 1,000
  queries: 59 fooled instead of 40, with cosines 55 instead of 39.
- Linf, which the paper does not have: a step is as long as eps in its largest value, half as long
  with cosines, which touch all values, and the ball cuts off what is too much.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, cosines, still_active
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.norms import per_sample
from brinell.core.settings import Count, Positive

FIRST = 1 / 8
MORE = 1 / 32
"""Section 4.1: the share of the frequencies of each axis to begin with, and what is added
whenever all are used."""
SKIPS = 4
"""How many steps that change nothing are left out before one is asked about all the same."""
ROOM = 2**24
"""Values of input that are searched together: the order of the directions takes eight bytes for
each."""


@dataclass(frozen=True, kw_only=True)
class SimBA(EveryKind):
    """Simple black-box attack over cosines or single values: no gradients, one query a step."""

    basis: Literal["pixel", "dct"] = "pixel"
    """Directions: pixel (single values) or dct (cosines, low frequencies first; SimBA-DCT), for
    large inputs."""
    steps: Count = 5000
    """Proposals; one more query is for the clean input."""
    step_size: Positive | None = None
    """Length of a step as a share of eps; none means 0.2 in L2, the paper's at eps 1; in Linf 1,
    and 0.5 with dct."""
    loss: Literal["margin", "ce"] = "margin"
    """Loss to raise: margin or ce (cross-entropy: the paper's probability of the true class)."""

    access = Access.SCORES
    distances = frozenset({"linf", "l2"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """The clean input, and one query a proposal."""
        return self.steps + 1, 0

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Search with groups of samples that fit into memory."""
        size = max(1, ROOM // math.prod(threat.domain.shape))
        for rows in torch.split(torch.arange(len(batch), device=batch.x.device), size):
            self._run(oracle, batch.select(rows), threat.select(rows), rng.select(rows))

    def _run(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Algorithm 1, each sample at its own pace."""
        loss = LOSSES[self.loss]
        directions = _Directions(self.basis, threat, rng)
        usual = 0.2 if threat.distance.name == "l2" else 1.0 if self.basis == "pixel" else 0.5
        share = self.step_size or usual
        x = batch.x
        # Even turns step along a direction, odd ones against it.
        turn = torch.zeros_like(batch.ids)
        highest = oracle.loss(batch.ids, x, loss)

        for _ in range(self.steps):
            batch, threat, x, turn, highest, directions = still_active(
                oracle, batch, threat, x, turn, highest, directions
            )
            if not len(batch):
                return

            proposal, turn = _proposal(batch, threat, directions, x, turn, share)
            answer = oracle.loss(batch.ids, proposal, loss)
            improved = answer > highest
            highest = torch.where(improved, answer, highest)
            x = torch.where(per_sample(improved, x), proposal, x)
            # A direction that helped is done with; any other has its second sign still to come.
            turn = torch.where(improved, turn - turn % 2 + 2, turn + 1)


def _proposal(
    batch: Batch, threat: Threat, directions: "_Directions", x: Tensor, turn: Tensor, share: float
) -> tuple[Tensor, Tensor]:
    """(n, *shape): the next step of each sample that changes anything, and (n,): its turn."""

    def step(turn: Tensor) -> Tensor:
        """The step of a turn (n,): along direction turn // 2 if it is even, against it if odd."""
        length = (1 - 2 * (turn % 2)) * share * threat.eps
        return threat.project(x + per_sample(length, x) * directions.direction(turn // 2), batch.x)

    proposal = step(turn)
    for _ in range(SKIPS):
        # A step that clamping takes back changes nothing, and would waste a query.
        idle = (proposal == x).flatten(1).all(1)
        if not idle.any():
            break
        turn = turn + idle
        proposal = step(turn)
    return proposal, turn


class _Directions:
    """Directions of length 1, shuffled for each sample: in L2, or in Linf."""

    def __init__(self, basis: str, threat: Threat, rng: Streams) -> None:
        domain = threat.domain
        self._shape = domain.shape
        self._linf = threat.distance.name == "linf"
        keys = rng.fold("order").uniform(math.prod(domain.shape))
        self._grid = domain.grid
        self._waves: list[Tensor] = []
        if basis == "dct":
            self._waves = [cosines(side).to(keys.device) for side in self._grid]
            # Low frequencies first, each block of them in a random order.
            channels = math.prod(domain.shape) // math.prod(self._grid)
            keys += _blocks(self._grid).to(keys.device).repeat(channels)
        self._order = keys.argsort(1)

    def select(self, keep: Tensor) -> "_Directions":
        """Keep some samples."""
        self._order = self._order[keep]
        return self

    def direction(self, number: Tensor) -> Tensor:
        """(n, *shape): the direction of this number (n,) of each sample."""
        n = len(number)
        places = math.prod(self._grid)
        directions = self._order.gather(1, number[:, None] % self._order.shape[1])
        # Without waves a direction is a single value.
        gains = torch.zeros(n, self._order.shape[1], device=directions.device)
        if not self._waves:
            return gains.scatter_(1, directions, 1.0).reshape(n, *self._shape)

        # The wave of a frequency is the product of the waves of its axes.
        wave = torch.ones(n, 1, device=directions.device)
        remainder = directions[:, 0] % places
        for side, waves in zip(reversed(self._grid), reversed(self._waves), strict=True):
            wave = (waves[remainder % side][:, :, None] * wave[:, None]).flatten(1)
            remainder = remainder // side
        if self._linf:
            wave = wave / wave.abs().amax(1, keepdim=True)
        rows = torch.arange(n, device=directions.device)
        # A number is a channel and a frequency: the wave goes to this channel.
        gains.view(n, -1, places)[rows, directions[:, 0] // places] = wave
        return gains.reshape(n, *self._shape)


def _blocks(grid: tuple[int, ...]) -> Tensor:
    """(places,): when each frequency's turn comes.

    It is 0 for those within the first eighth along all axes, then 1, 2, ...
    """
    latest = torch.zeros(1)
    for side in grid:
        share = torch.arange(1, side + 1) / side
        # A little less first: a share that rounds above the end of its block stays in it.
        frequencies = ((share - FIRST) / MORE).sub_(1e-6).ceil_().clamp_min_(0)
        latest = torch.maximum(latest[:, None], frequencies).flatten()
    return latest
