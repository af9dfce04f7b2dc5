"""Sigma-zero: the fewest changed values, by gradients of a smooth count of them.

Cinà, Villani, Pintor, Schönherr, Biggio & Pelillo 2025, Sigma-zero: gradient-based optimization of
l0-norm adversarial examples (arXiv 2402.01879), Algorithm 1. One objective adds the margin that is
left to the boundary and the share of changed values, each value counted smoothly as
`delta^2 / (delta^2 + sigma)`. After each step changes below a threshold are undone; the threshold
rises where the input is adversarial and falls where it is not.

In pixels all channels of a place change together; the square of their Euclidean length takes the
place of `delta^2`.

Deviations:
- The steps are those of Adam on the normalised gradient, as in the authors' code; Algorithm 1 has
  plain steps. With these 100 steps fooled 68 % of 50 samples of cnn4_pgd, with Adam's all.
- Adam's steps are nearly of one length, so that steep values are not told from flat ones. At the
  end the gradient at the closest input chooses the values, one fewer each time, and moves them to a
  bound. The mean count fell by 2 % after 300 steps on captum_cnn, and the exact count of a linear
  model is found.
- The last iterate is scored; the paper ends with it unseen.
- 300 steps and not 1,000. Changes, steps and thresholds are fractions of the width of the bounds,
  which is 1 in the paper.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, cosine, largest, over_places, still_active
from brinell.core import norms
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import margin
from brinell.core.norms import per_sample
from brinell.core.oracle import GradientAnswer
from brinell.core.settings import Count, Fraction, Portion, Positive

MOMENTA = (0.9, 0.999)
"""Adam's weights of the past, of the gradient and of its square (Kingma & Ba 2015)."""
CLOSING = 8
"""Tries at the end to do with one value fewer."""


@dataclass(frozen=True, kw_only=True)
class SigmaZero(EveryKind):
    """Minimal L0 by gradients: a smooth count of changes, and a threshold that undoes
    small ones.
    """

    steps: Count = 300
    """Gradient steps."""
    step_size: Positive = 1.0
    """Length of the first step, as a fraction of the width of the bounds."""
    last_step_size: Fraction = 0.1
    """Length of the last step, as a fraction of the first."""
    sigma: Positive = 1e-3
    """Smoothness of the count: a change of the root of it counts half."""
    threshold: Portion = 0.3
    """Changes below it are undone in the first step, as a fraction of the width of the bounds."""
    threshold_step: Portion = 0.01
    """By how much the threshold rises or falls, as a share of the step size."""
    stop_at_eps: bool = False
    """Let go of a sample once it is fooled within the smallest eps, instead of looking for fewer
    changes."""

    access = Access.GRADIENTS
    distances = frozenset({"l0", "pixels"})
    family = "minimal"

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward a step and a try, and those of the last iterate."""
        return self.steps + 1 + CLOSING, self.steps + 1 + CLOSING

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """All steps on all samples; a budget of queries, or `stop_at_eps`, ends a
        sample earlier.
        """
        low, high = threat.domain.bounds(batch.x)
        width = high - low
        x = batch.x
        threshold = torch.full_like(threat.eps, self.threshold)
        mean = torch.zeros_like(x)
        square = torch.zeros_like(x)
        closest = _Closest(x, torch.zeros_like(x), torch.full_like(threat.eps, torch.inf))

        for k in range(self.steps):
            answer = oracle.gradient(batch.ids, x, margin)
            closest = closest.updated(x, batch, threat, answer)

            # What lowers the objective: a larger margin where there is none, and a smaller count.
            is_adversarial = answer.loss > 0
            slope = torch.where(per_sample(is_adversarial, x), 0.0, answer.grad * width)
            change = (x - batch.x) / width
            square_length = over_places(change.square(), threat)
            count_slope = 2 * self.sigma * change / (square_length + self.sigma).square()
            slope -= count_slope / square_length[0].numel()
            slope /= per_sample(norms.linf(slope).clamp_min(1e-12), slope)

            # Adam, whose means are corrected for their start at 0.
            mean = torch.lerp(slope, mean, MOMENTA[0])
            square = torch.lerp(slope.square(), square, MOMENTA[1])
            size = (square / (1 - MOMENTA[1] ** (k + 1))).sqrt_().add_(1e-8)
            step = mean / (1 - MOMENTA[0] ** (k + 1)) / size
            step_size = self.step_size * cosine(1.0, self.last_step_size, k / self.steps)
            moved = threat.domain.clamp(x + width * step_size * step)

            # Values below the threshold go back to the clean ones. It rises while the input is
            # adversarial, and falls otherwise.
            rise = self.threshold_step * step_size
            threshold = (threshold + torch.where(is_adversarial, rise, -rise)).clamp_(0, 1)
            length = over_places(((moved - batch.x) / width).square(), threat).sqrt()
            is_small = length < per_sample(threshold, x)
            x = torch.where(is_small, batch.x, moved)

            batch, threat, x, threshold, mean, square, closest = still_active(
                oracle,
                batch,
                threat,
                x,
                threshold,
                mean,
                square,
                closest,
                stop_at_eps=self.stop_at_eps,
            )
            if not len(batch):
                return
        self._close(oracle, batch, threat, x, closest)

    def _close(
        self, oracle: Oracle, batch: Batch, threat: Threat, x: Tensor, closest: "_Closest"
    ) -> None:
        """Score the last iterate, then try to do with one value fewer than the closest input.

        The values that gain most at a bound are kept: of those that it changes, then of all.
        """
        low, high = threat.domain.bounds(x)
        for turn in range(CLOSING + 1):
            answer = oracle.gradient(batch.ids, x, margin)
            closest = closest.updated(x, batch, threat, answer)
            batch, threat, closest = still_active(
                oracle, batch, threat, closest, stop_at_eps=self.stop_at_eps
            )
            if not len(batch):
                return

            # How much the margin rises, by the linear model, with each place at its better bound.
            corner = torch.where(closest.grad > 0, high, low)
            gain = over_places(closest.grad * (corner - batch.x), threat)
            # Changed places first, by turns with all: below 0 no unchanged one is among the
            # largest.
            if turn % 2 == 0:
                is_changed = over_places((closest.x - batch.x).abs(), threat) > 0
                gain = torch.where(is_changed, gain, -1.0)
            x = torch.where(largest(gain, closest.changes - 1), corner, batch.x)


class _Closest(NamedTuple):
    """The adversarial inputs with the fewest changes, and the margins' gradients there."""

    x: Tensor
    grad: Tensor
    changes: Tensor
    """(n,) changed places; infinite where no adversarial input is known."""

    def select(self, keep: Tensor) -> "_Closest":
        """Keep some samples."""
        return _Closest(*(value[keep] for value in self))

    def updated(
        self, x: Tensor, batch: Batch, threat: Threat, answer: GradientAnswer
    ) -> "_Closest":
        """With `x` in place of those that change more, where it is adversarial."""
        count = threat.distance.size(x - batch.x)
        fewer = (answer.loss > 0) & (count < self.changes)
        rows = per_sample(fewer, x)
        return _Closest(
            torch.where(rows, x, self.x),
            torch.where(rows, answer.grad, self.grad),
            torch.where(fewer, count, self.changes),
        )
