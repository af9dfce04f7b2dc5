"""CGBA: along a semicircle to the boundary, with nothing but labels.

Reza, Rahmati, Wu & Dai 2023, CGBA: curvature-aware geometric black-box attack (ICCV; arXiv
2308.03163), Algorithm 1. At a boundary point the normal is estimated from the labels of noisy
inputs. The clean input, the boundary point and the normal span a plane. In it the semicircle whose
diameter is the segment from the clean input to the boundary point leads from that point, which is
misclassified, over the side of the normal to the clean input. Wherever the boundary cuts it, the
input there is closer than the one before, however the boundary is curved.

Deviations:
- One bisection of the angle finds the cut. The authors' code first goes towards the clean input by
  the same halvings until the label is right, then bisects all that lies behind it once more.
- Noisy inputs lie at 3/100 of the distance, and a bisection ends where noise of that size tells on
  which side of the boundary it is. The authors have fixed lengths, whatever the distance is.
- The start is noise in squares (`hop-skip-jump`), and the mean label is subtracted in the estimate.
- Vectors get noise of all frequencies. CGBA-H, the variant for target classes, is left out: noise
  seldom has the target class.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.attacks._label_walk import BISECTIONS, REACH, LabelWalk, SmoothNoise
from brinell.attacks._shared import EveryKind
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import per_sample, steepest_l2
from brinell.core.settings import Count, Fraction


@dataclass(frozen=True, kw_only=True)
class CGBA(EveryKind):
    """Decision-based attack in L2: semicircles through the boundary, from labels alone."""

    steps: Count = 60
    """Estimates of the boundary's normal."""
    samples: Count = 30
    """Noisy inputs of the first estimate; the later ones take more, with the square root of the
    step."""
    frequencies: Fraction = 0.25
    """Noise has this share of the frequencies of each axis, the lowest ones; small images of
    undefended networks need more."""
    starts: Count = 100
    """Tries to find noise that is misclassified."""

    access = Access.LABELS
    distances = frozenset({"l2"})
    family = "minimal"
    targeted = False

    def cost(self, classes: int) -> tuple[int, int]:
        """The starts and a bisection, then an estimate and a bisection for each step."""
        estimates = sum(self._count(step) for step in range(1, self.steps + 1))
        return self.starts + estimates + (1 + self.steps) * BISECTIONS, 0

    def _count(self, step: int) -> int:
        """Noisy inputs of the estimate of a step."""
        return int(self.samples * math.sqrt(step))

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Algorithm 1."""
        noise = SmoothNoise(threat.domain, self.frequencies)
        for walk in LabelWalk.groups(oracle, batch, threat, rng, noise, self.starts):
            walk.descend(noise.halvings())
            for step in range(1, self.steps + 1):
                if not walk.affordable().any():
                    break
                walk.reach = REACH * walk.size()
                _turn(walk, walk.normal(step, self._count(step)), noise.halvings())


def _turn(walk: LabelWalk, normal: Tensor, halvings: int) -> None:
    """Follow the semicircle from each boundary point to where its label becomes right."""
    clean = walk.batch.x
    distance = walk.size()
    way = steepest_l2(walk.x - clean)
    along = (normal * way).flatten(1).sum(1)
    side = steepest_l2(normal - per_sample(along, way) * way)

    def path(angle: Tensor, rows: Tensor) -> Tensor:
        """Inputs at angles between the way to the boundary point and that to the input."""
        ray = (
            per_sample(angle.cos(), clean) * way[rows] + per_sample(angle.sin(), clean) * side[rows]
        )
        length = distance[rows] * angle.cos()
        return walk.domain.clamp(clean[rows] + per_sample(length, clean) * ray)

    # At a right angle the semicircle ends in the clean input.
    quarter = torch.full_like(distance, math.pi / 2)
    angle = walk.bisect(path, quarter, torch.zeros_like(distance), halvings)
    # Angle 0 is the boundary point itself: nothing nearer was found.
    walk.move(path, angle, angle > 0)
