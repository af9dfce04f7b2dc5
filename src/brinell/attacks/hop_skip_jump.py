"""HopSkipJump: along the boundary towards the clean input, with nothing but labels.

Chen, Jordan & Wainwright 2020, HopSkipJumpAttack: a query-efficient decision-based attack,
Algorithms 1 and 2. From a start that the model gets wrong each step bisects to the boundary,
estimates its normal from the labels of noisy inputs (eq. 9 and 16), jumps off along it (section
4.2) and bisects again.

The estimate sits on differences that are small next to the input, so on large inputs single labels
hang on the rounding of float32: another batch size then gives another run of the same quality.

Deviations:
- Uniform noise comes in squares of 1, 2, 4, ... values a side, in turn, until one is misclassified.
  Many networks call all fine noise by one name, and the paper starts samples of that class from an
  image of another.
- A bisection ends after 24 halvings, which float32 cannot tell apart any more, and a jump after 30,
  with the input as it was. The paper has no such limits.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, noise_squares
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import l2, per_sample
from brinell.core.settings import Count, Positive

BISECTIONS, HALVINGS = 24, 30
"""The most queries of one bisection, and of one jump."""
BLOCK = 32
"""Noisy inputs of each sample that are drawn together; it is part of what a seed means."""
ROOM = 2**24
"""Values of noisy inputs that are held at once; samples beyond that are attacked one group after
another."""


@dataclass(frozen=True, kw_only=True)
class HopSkipJump(EveryKind):
    """Decision-based attack: the closest adversarial input from labels alone."""

    steps: Count = 30
    """Estimates of the boundary's normal."""
    samples: Count = 100
    """Noisy inputs of the first estimate; the later ones take more, with the square root of the
    step."""
    most_samples: Count = 10_000
    """Noisy inputs of an estimate at most."""
    starts: Count = 100
    """Tries to find noise that is misclassified."""
    gamma: Positive = 1.0
    """Accuracy of the bisections: their last interval as a share of the distance, times d^1.5 in
    L2 and d^2 in Linf."""

    access = Access.LABELS
    distances = frozenset({"linf", "l2"})
    family = "minimal"
    targeted = False

    def cost(self, classes: int) -> tuple[int, int]:
        """The starts and a bisection, then for each step an estimate, a jump and a bisection."""
        estimates = sum(self._count(step) for step in range(1, self.steps + 1))
        return self.starts + BISECTIONS + estimates + self.steps * (HALVINGS + BISECTIONS), 0

    def _count(self, step: int) -> int:
        """Noisy inputs of the estimate of a step."""
        return min(int(self.samples * math.sqrt(step)), self.most_samples)

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Walk with groups of samples whose noisy inputs fit into memory."""
        size = max(1, ROOM // (BLOCK * batch.x[0].numel()))
        for rows in torch.split(torch.arange(len(batch), device=batch.x.device), size):
            walk = _LabelWalk(oracle, batch.select(rows), threat, rng.select(rows), self.gamma)
            if walk.start(self.starts):
                for step in range(1, self.steps + 1):
                    if not walk.step(step, self._count(step)):
                        break


class _LabelWalk:
    """Adversarial inputs on their way to the clean ones.

    Each method asks only about samples with queries left.
    """

    def __init__(
        self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, gamma: float
    ) -> None:
        self._ledger = oracle
        self._batch = batch
        self._rng = rng
        self._distance = threat.distance
        self._domain = threat.domain
        self._linf = threat.distance.name == "linf"

        d = math.prod(threat.domain.shape)
        self._theta = gamma / (d * d if self._linf else d**1.5)
        low, high = threat.domain.bounds(batch.x)
        reach = 0.1 * float((high - low).max())
        self._reach = torch.full((len(batch),), reach, device=batch.x.device)
        """(n,): how far noisy inputs lie from the current ones: delta of the paper."""
        self._x = batch.x

    def _fooled(self, rows: Tensor, x: Tensor) -> Tensor:
        """(n,) bool: whether the model is wrong about `x`, of the samples in these rows."""
        return self._ledger.labels(self._batch.ids[rows], x) != self._batch.y[rows]

    def _affordable(self) -> Tensor:
        """(n,) bool: samples with queries left."""
        return self._ledger.active(self._batch.ids)

    def _select(self, keep: Tensor) -> bool:
        """Keep some samples; returns False if none is left."""
        if not keep.all():
            self._batch = self._batch.select(keep)
            self._rng = self._rng.select(keep)
            self._x = self._x[keep]
            self._reach = self._reach[keep]
        return bool(keep.any())

    def start(self, tries: int) -> bool:
        """Bisect from misclassified noise to the boundary; False where none is found."""
        success = torch.zeros_like(self._batch.ids, dtype=torch.bool)
        self._x = self._batch.x.clone()
        for trial in range(tries):
            rows = (~success & self._affordable()).nonzero()[:, 0]
            if not len(rows):
                break
            streams = self._rng.select(rows).fold(f"start {trial}")
            noise = noise_squares(self._domain, streams, trial, self._x)
            wrong = self._fooled(rows, noise)
            self._x[rows[wrong]] = noise[wrong]
            success[rows[wrong]] = True

        if not self._select(success):
            return False
        self._bisect()
        return self._select(self._affordable())

    def _bisect(self) -> None:
        """Move each input to within theta of the boundary, towards the clean one (Algorithm 1)."""
        clean = self._batch.x
        offset = self._x - self._batch.x
        low = torch.zeros_like(self._reach)
        high = torch.ones_like(self._reach)
        size = self._distance.size(offset)

        def interpolate(share: Tensor, rows: Tensor) -> Tensor:
            """Inputs at shares of the way: on the segment, or in Linf by cutting changes off."""
            if self._linf:
                points = self._distance.project(offset[rows], share * size[rows])
            else:
                points = offset[rows] * per_sample(share, offset)
            return self._domain.clamp(points + clean[rows])

        halvings = math.ceil(math.log2(1 / self._theta)) if self._theta < 1 else 0
        for _ in range(min(BISECTIONS, halvings)):
            rows = self._affordable().nonzero()[:, 0]
            if not len(rows):
                break
            middle = (low[rows] + high[rows]) / 2
            wrong = self._fooled(rows, interpolate(middle, rows))
            high[rows] = torch.where(wrong, middle, high[rows])
            low[rows] = torch.where(wrong, low[rows], middle)

        nearest = interpolate(high, torch.arange(len(offset), device=offset.device))
        self._x = torch.where(per_sample(high < 1, offset), nearest, self._x)

    def step(self, number: int, count: int) -> bool:
        """One iteration of Algorithm 2; returns False if no sample has queries left for another."""
        direction = self._distance.ascent(self._normal(number, count))
        affordable = self._affordable()
        if not self._select(affordable):
            return False
        self._jump(direction[affordable], number)

        # The distance at which the next estimate takes noise (section 4.1).
        d = self._x[0].numel()
        size = self._distance.size(self._x - self._batch.x)
        self._reach = size * self._theta * (d if self._linf else math.sqrt(d))
        self._bisect()
        return self._select(self._affordable())

    def _normal(self, number: int, count: int) -> Tensor:
        """(n, *shape): which way off the boundary, from the labels of noisy inputs (eq. 16)."""
        n = len(self._x)
        shape = self._x.shape[1:]
        reach = self._reach.clamp_min(1e-12)
        # Sums over the noisy inputs: of their changes, of changes times signs, of signs,
        # and how many.
        changes = torch.zeros_like(self._x)
        weighted = torch.zeros_like(self._x)
        signs = torch.zeros_like(reach)
        answers = torch.zeros_like(reach)

        for block, start in enumerate(range(0, count, BLOCK)):
            size = min(BLOCK, count - start)
            rng = self._rng.fold(number).fold(block)
            if self._linf:
                noise = rng.uniform(size, *shape).mul_(2).sub_(1)
            else:
                noise = rng.normal(size, *shape)
            noise = noise.flatten(0, 1)
            rows = torch.arange(n, device=noise.device).repeat_interleave(size)
            noise *= per_sample(reach[rows] / l2(noise), noise)
            probes = self._domain.clamp(noise.add_(self._x[rows]))
            able = self._ledger.active(self._batch.ids[rows])
            if not able.any():
                break

            # 1 where the label is wrong, -1 where it is right, 0 where no query was left.
            index = able.nonzero()[:, 0]
            answered = probes if len(index) == len(rows) else probes[index]
            sign = torch.zeros(len(rows), device=noise.device)
            sign[index] = 1 - 2 * (~self._fooled(rows[index], answered)).float()
            change = probes.sub_(self._x[rows]).reshape(n, size, -1)
            sign = sign.reshape(n, 1, size)
            weight = able.float().reshape(n, 1, size)
            weighted += (sign @ change).reshape(weighted.shape)
            changes += (weight @ change).reshape(changes.shape)
            signs += sign.sum((1, 2))
            answers += weight.sum((1, 2))

        mean = signs / answers.clamp_min(1)
        # If all labels agree, the baseline would leave nothing: the mean of the noise itself,
        # towards or away.
        baseline = torch.where(mean.abs() < 1, mean, 0.0)
        return weighted - per_sample(baseline, changes) * changes

    def _jump(self, direction: Tensor, number: int) -> None:
        """Step off the boundary by the distance over the root of the step's number.

        The step is halved until the label is wrong.
        """
        length = self._distance.size(self._x - self._batch.x) / math.sqrt(number)

        # Samples whose label is still right.
        open_ = torch.ones_like(length, dtype=torch.bool)
        for _ in range(HALVINGS):
            rows = (open_ & self._affordable()).nonzero()[:, 0]
            if not len(rows):
                break

            step = per_sample(length[rows], direction) * direction[rows]
            x = self._domain.clamp(self._x[rows] + step)
            wrong = self._fooled(rows, x)
            self._x[rows[wrong]] = x[wrong]
            open_[rows[wrong]] = False
            length[rows] /= 2
