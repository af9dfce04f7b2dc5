"""FMN: the shortest adversarial perturbation, by gradient steps inside an adaptive ball.

The ball grows and shrinks around the boundary.

Pintor et al. 2021, Fast minimum-norm adversarial attacks through adaptive norm constraints,
Algorithm 1. One gradient per step gives an upper bound on every sample's distance, and so on the
whole curve of robust accuracy.

Deviations:
- The last iterate is scored; the paper ends with it unseen. One forward more.
- Until an adversarial point is found, the radius is `gamma` more than the distance to the
  linearised boundary. The paper's ends exactly there, and where the model is linear rounding
  decides whether the boundary is ever crossed.
- Step sizes are fractions of the width of the bounds, which is 1 in the paper, and in Linf ten
  times larger: with 10 instead of 1 the mean distance fell by 4 % on resnet4b and by a quarter on
  cnn4_pgd.
- `gamma` starts at 0.2 and not at 0.05: over 50 steps the mean distance fell by 0.4 to 1.6 %
  (resnet4b in Linf, L2 and L1, cnn4_pgd in Linf and L2, 200 samples each), and in L2 on cnn4_pgd
  147 instead of 154 samples robust at 2.
- Untargeted, from the clean input: neither an adversarial starting point nor L0.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, cosine, still_active
from brinell.core import norms
from brinell.core.contracts import Access, Batch, Distance, Oracle, Streams, Threat
from brinell.core.losses import margin
from brinell.core.oracle import GradientAnswer
from brinell.core.settings import Count, Fraction, Positive, Range


@dataclass(frozen=True, kw_only=True)
class FMN(EveryKind):
    """Fast minimum-norm attack: a cheap upper bound on the distance of every sample."""

    steps: Count = 100
    """Gradient steps."""
    step_size: Positive | None = None
    """Length of the first step in L2, as a fraction of the width of the bounds; none means 1,
    and 10 in Linf."""
    last_step_size: Fraction = 0.01
    """Length of the last step, as a fraction of the first."""
    gamma: Annotated[float, Range("(0, 1)")] = 0.2
    """By which share the ball grows or shrinks in the first step; it falls to `last_gamma`."""
    last_gamma: Annotated[float, Range("(0, 1)")] = 0.001
    """By which share the ball grows or shrinks in the last step."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2", "l1"})
    family = "minimal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last_gamma > self.gamma:
            raise ValueError(
                f"gamma is {self.gamma} and last_gamma {self.last_gamma}, which is at most gamma"
            )

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward a step, and a forward for the last iterate."""
        return self.steps + 1, self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """All steps on all samples; only a budget of queries ends a sample earlier."""
        low, high = threat.domain.bounds(batch.x)
        # The paper's first steps: 10 in Linf, 1 in the other norms, in units of the range.
        first = self.step_size or (10.0 if threat.distance.name == "linf" else 1.0)
        length = float((high - low).max()) * first
        x = batch.x
        # The radius of the ball, as in the paper: the first answer sets it.
        eps = torch.zeros_like(threat.eps)
        best = torch.full_like(threat.eps, torch.inf)

        for k in range(1, self.steps + 1):
            answer = oracle.gradient(batch.ids, x, margin)
            gamma = cosine(self.gamma, self.last_gamma, k / self.steps)
            # The radius grows while the input is not adversarial, and shrinks where it is.
            eps, best = _resized(eps, best, threat.distance, x - batch.x, answer, gamma)

            share = cosine(1.0, self.last_step_size, k / self.steps)
            step = norms.steepest_l2(answer.grad).mul_(length * share)
            x = replace(threat, eps=eps).project(step.add_(x), batch.x)

            batch, threat, x, eps, best = still_active(oracle, batch, threat, x, eps, best)
            if not len(batch):
                return
        # Only to be judged: the oracle itself notes what fools the model.
        oracle.scores(batch.ids, x)


def _resized(
    eps: Tensor,
    best: Tensor,
    distance: Distance,
    delta: Tensor,
    answer: GradientAnswer,
    gamma: float,
) -> tuple[Tensor, Tensor]:
    """The radius of the next step (n,), and the distance of the closest adversarial input so far.

    Until one is found, the ball reaches `gamma` beyond the linearised boundary; afterwards it grows
    by `gamma` where `delta` is not adversarial, and shrinks where it is, to at most the closest.
    """
    size = distance.size(delta)
    wrong = answer.loss > 0  # the loss is the margin of the misclassification

    best = torch.where(wrong, torch.minimum(best, size), best)
    slope = norms.DUAL[distance.name](answer.grad).clamp_min(1e-30)
    # Where the linearised boundary lies, before an adversarial input is known.
    expected = torch.where(best.isinf(), size - answer.loss / slope, eps)
    grown = expected * (1 + gamma)
    # Never beyond the closest input that is known to fool the model.
    shrunk = torch.minimum(eps * (1 - gamma), best)
    return torch.where(wrong, shrunk, grown), best
