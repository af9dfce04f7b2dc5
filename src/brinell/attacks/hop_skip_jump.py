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

from brinell.attacks._label_walk import LabelWalk
from brinell.attacks._shared import EveryKind
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import per_sample
from brinell.core.settings import Count, Positive

BISECTIONS, HALVINGS = 24, 30
"""The most queries of one bisection, and of one jump."""


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
        """Bisect, then estimate, jump and bisect again, step by step (Algorithm 2)."""
        d = math.prod(threat.domain.shape)
        is_linf = threat.distance.name == "linf"
        # The last interval of a bisection, as a share of its first.
        theta = self.gamma / (d * d if is_linf else d**1.5)
        halvings = min(BISECTIONS, math.ceil(math.log2(1 / theta))) if theta < 1 else 0
        low, high = threat.domain.bounds(batch.x)

        def draw(streams: Streams, count: int) -> Tensor:
            """Uniform noise in Linf, normal noise in L2."""
            if is_linf:
                return streams.uniform(count, *threat.domain.shape).mul_(2).sub_(1)
            return streams.normal(count, *threat.domain.shape)

        for walk in LabelWalk.groups(oracle, batch, threat, rng, draw, self.starts):
            walk.descend(halvings)
            # The first noise lies at a tenth of the range, as in the authors' code.
            walk.reach.fill_(0.1 * float((high - low).max()))
            for step in range(1, self.steps + 1):
                if not walk.select(walk.affordable()):
                    break
                direction = threat.distance.ascent(walk.normal(step, self._count(step)))
                # The estimate itself may have spent the last queries of a sample.
                affordable = walk.affordable()
                if not walk.select(affordable):
                    break
                _jump(walk, direction[affordable], step)

                # The distance at which the next estimate takes noise (section 4.1).
                walk.reach = walk.size() * theta * (d if is_linf else math.sqrt(d))
                walk.descend(halvings)


def _jump(walk: LabelWalk, direction: Tensor, number: int) -> None:
    """Step off the boundary by the distance over the root of the step's number, from 1 on.

    The step is halved until the label is wrong; a sample that stays right, or has no query left,
    keeps its input.
    """
    length = walk.size() / math.sqrt(number)

    # Samples whose label is still right.
    open_ = torch.ones_like(length, dtype=torch.bool)
    for _ in range(HALVINGS):
        rows = (open_ & walk.affordable()).nonzero()[:, 0]
        if not len(rows):
            break

        step = per_sample(length[rows], direction) * direction[rows]
        x = walk.domain.clamp(walk.x[rows] + step)
        wrong = walk.fooled(rows, x)
        # Who is wrong has jumped; the others try half of the length.
        walk.x[rows[wrong]] = x[wrong]
        open_[rows[wrong]] = False
        length[rows] /= 2
