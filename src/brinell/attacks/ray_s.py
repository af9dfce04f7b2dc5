"""RayS: the sign direction along which the decision boundary is nearest, from labels alone.

Chen & Gu 2020, RayS: a ray searching method for hard-label adversarial attack (KDD; arXiv
2006.12792), Algorithms 1 to 3. A direction is a vector of signs, and its radius is the distance to
the boundary along it. A proposal flips the signs of one block of the best direction; at stage s the
flattened input is cut into 2^s blocks. One query at the best radius decides whether the proposal is
nearer; only then is its radius bisected.

The attack reads no scores, so it shows whether robustness rests on scores that say little about the
decision. The authors propose it as a sanity check for falsely robust models (section 5).

Every sample advances at its own pace: one query of each sample is asked together with one of all
others.

Deviations:
- A bisection ends at 1/512 of the largest eps, or at 0.001 of the range of the data if that is
  less. The paper has 0.001 of the range, which is coarse for the budgets of signals and feature
  vectors.
- L2, which the paper does not have: signs are scaled to Euclidean length 1. The shortest L2
  perturbation is seldom of equal size everywhere, so it finds less there.
- After the last stage, at which each block is one value, that stage is repeated, as in the authors'
  code, until no block of it comes nearer. Whatever followed would be asked again.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import per_sample
from brinell.core.settings import Count

COARSEST = 1e-3
"""Largest last interval of a bisection, as a share of the range of the data (authors' code)."""
RESOLUTION = 1 / 512
"""Largest last interval of a bisection, as a share of eps."""


@dataclass(frozen=True, kw_only=True)
class RayS(EveryKind):
    """Decision-based attack along sign directions: the nearest boundary from labels alone."""

    steps: Count = 10_000
    """Queries of each sample."""
    stop_at_eps: bool = False
    """Stop at the first adversarial example within the smallest eps; otherwise a fooled sample
    goes on, to come closer."""

    access = Access.LABELS
    distances = frozenset({"linf", "l2"})
    family = "minimal"
    targeted = False

    def cost(self, classes: int) -> tuple[int, int]:
        """One query a step."""
        return self.steps, 0

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Search until the steps or the queries of every sample are spent.

        It draws no random numbers.
        """
        search = _RaySearch(batch, threat)
        for _ in range(self.steps):
            is_open = oracle.active(search.batch.ids, self.stop_at_eps)
            if not search.keep(is_open & ~search.has_ended):
                return
            search.update(oracle.labels(search.batch.ids, search.proposals()) != search.batch.y)


class _RaySearch:
    """The best direction of each sample, the direction that is tried, and its interval."""

    def __init__(self, batch: Batch, threat: Threat) -> None:
        n = len(batch)
        d = batch.x[0].numel()
        device = batch.x.device
        low, high = threat.domain.bounds(batch.x)
        span = float((high - low).max())
        self.batch = batch
        self._threat = threat
        self._d = d

        # The geometry of directions, and how exactly a radius is found.
        self._length = 1.0 if threat.distance.name == "linf" else d**-0.5
        """Size of each value of a direction."""
        self._resolution = (RESOLUTION * threat.eps).clamp_max(COARSEST * span / self._length)
        self._farthest = span / self._length
        self._last_stage = math.ceil(math.log2(d))

        # What is known: the best direction and its radius; then what is tried.
        self._best = torch.ones(n, d, dtype=torch.int8, device=device)
        self._radius = torch.full((n,), torch.inf, device=device)
        self._direction = self._best.clone()
        self._lower = torch.zeros(n, device=device)
        self._upper = torch.zeros(n, device=device)
        self._bisecting = torch.zeros(n, dtype=torch.bool, device=device)
        self._stage = torch.zeros(n, dtype=torch.int64, device=device)
        self._block = torch.full((n,), -1, dtype=torch.int64, device=device)
        """Block whose signs are flipped; -1 while the first direction, all ones, is tried."""
        self._flips_since_nearer = torch.zeros(n, dtype=torch.int64, device=device)
        """Blocks of the last stage in succession that came no nearer."""

    @property
    def has_ended(self) -> Tensor:
        """(n,) bool: samples of which every block of the last stage came no nearer."""
        return self._flips_since_nearer >= self._d

    def keep(self, active: Tensor) -> bool:
        """Drop the samples that are not active (n,) bool; returns False if none is left."""
        if not active.all():
            self.batch = self.batch.select(active)
            self._threat = self._threat.select(active)

            # Everything that has a row for each sample.
            for name in (
                "_best",
                "_radius",
                "_direction",
                "_lower",
                "_upper",
                "_bisecting",
                "_stage",
                "_block",
                "_flips_since_nearer",
                "_resolution",
            ):
                setattr(self, name, getattr(self, name)[active])
        return bool(active.any())

    def proposals(self) -> Tensor:
        """(n, *shape): the next query of each sample, in its interval or at the best radius."""
        length = per_sample(self._length * self._queried_radius(), self.batch.x)
        direction = self._direction.to(self.batch.x).view_as(self.batch.x)
        return self._threat.domain.clamp(self.batch.x + direction * length)

    def _queried_radius(self) -> Tensor:
        """(n,): the middle of an interval that is bisected, else the best radius."""
        middle = (self._lower + self._upper) / 2
        return torch.where(self._bisecting, middle, self._radius.clamp_max(self._farthest))

    def update(self, adversarial: Tensor) -> None:
        """Take in whether each proposal is adversarial (n,) bool, and choose the next one."""
        queried = self._queried_radius()
        # A proposal that is adversarial at the best radius is nearer: its radius is bisected.
        promising = adversarial & ~self._bisecting
        bisected = self._bisecting | promising
        self._upper = torch.where(adversarial, queried, self._upper)
        self._lower = torch.where(adversarial, self._lower, queried)
        self._lower = torch.where(promising, 0.0, self._lower)

        is_narrow = self._upper - self._lower <= self._resolution
        complete = torch.where(bisected, is_narrow, True)
        nearer = complete & bisected & (self._upper < self._radius)
        self._best = torch.where(nearer[:, None], self._direction, self._best)
        self._radius = torch.where(nearer, self._upper, self._radius)
        self._bisecting = bisected & ~complete

        # Flips of the last stage alone count; block -1 is the first direction, before any flip.
        is_last = complete & (self._block >= 0) & (self._stage == self._last_stage)
        self._flips_since_nearer = torch.where(nearer, 0, self._flips_since_nearer + is_last.long())
        self._advance(complete.nonzero()[:, 0])

    def _advance(self, rows: Tensor) -> None:
        """Flip the next block of the best direction in these rows.

        After its last block the next stage begins.
        """
        self._block[rows] += 1
        size = self._block_size(rows)
        # After the last block of a stage the blocks become half as long, down to single values.
        finished = self._block[rows] * size >= self._d
        following = (self._stage[rows] + 1).clamp_max(self._last_stage)
        self._stage[rows] = torch.where(finished, following, self._stage[rows])
        self._block[rows] = torch.where(finished, 0, self._block[rows])

        # The best direction with the signs of one block turned.
        start = self._block[rows] * self._block_size(rows)
        place = torch.arange(self._d, device=rows.device)
        block = (place >= start[:, None]) & (place < (start + self._block_size(rows))[:, None])
        self._direction[rows] = torch.where(block, -self._best[rows], self._best[rows])

    def _block_size(self, rows: Tensor) -> Tensor:
        """(rows,) int64: values in a block of the stage of each sample."""
        return -(-self._d // 2 ** self._stage[rows])
