"""APGD in L1: steps that change few values, and the projection onto ball and bounds at once.

Croce & Hein 2021, Mind the box: l1-APGD for sparse adversarial attacks on image classifiers,
sections 2 and 3.
"""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

from brinell.core.contracts import Threat
from brinell.core.norms import l0

FIRST_SHARE = 0.2
"""Share of the values that the first steps change."""
SHARPEN = 1.5
"""A step changes as many values as the best point so far differs in, divided by this; and a step
size shrinks by as much."""
SMALLEST = 0.1
"""The shortest step, as a fraction of eps."""
FEWER = 0.95
"""The best point has become sparser where it differs in less than this share of the values as at
the checkpoint before."""
EXACT = 1e-6
"""Of eps, by how much a projection may miss it."""
ROUNDS = 64
"""Bisections at most; Newton's steps between them end the search after some ten."""


def into_ball_and_bounds(delta: Tensor, eps: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """(n, *shape): the nearest perturbation to `delta` in the L1 ball of eps and within its bounds.

    Each value of the answer is `delta` shrunk by one threshold per sample and cut at its bound.
    What is left then falls as the threshold rises, piecewise linearly but neither convex nor
    concave; so Newton's method runs inside a bracket, where the paper sorts all 2 d breakpoints.

    Args:
        delta: (n, *shape).
        eps: (n,).
        low: (n, *shape), at most 0: the smallest change of each value.
        high: (n, *shape), at least 0: the largest one.
    """
    size = delta.abs().flatten(1)
    room = torch.where(delta > 0, high, -low).flatten(1)
    lower = torch.zeros_like(eps)
    upper = size.amax(1)
    threshold = lower
    open_ = torch.minimum(size, room).sum(1) > eps

    # Newton's steps that stay within the bracket, bisections for the others.
    for _ in range(ROUNDS):
        if not open_.any():
            break
        shrunk = size - threshold[:, None]
        excess = torch.minimum(shrunk, room).clamp_min_(0).sum(1) - eps
        open_ = open_ & (excess.abs() > EXACT * eps)
        lower = torch.where(excess > 0, threshold, lower)
        upper = torch.where(excess > 0, upper, threshold)
        # Values that the threshold neither removes nor leaves at their bound fall by 1 with it.
        slope = ((shrunk > 0) & (shrunk < room)).sum(1)
        newton = threshold + excess / slope
        bracketed = (slope > 0) & (newton > lower) & (newton < upper)
        candidate = torch.where(bracketed, newton, (lower + upper) / 2)
        threshold = torch.where(open_, candidate, threshold)

    projection = torch.minimum(size - threshold[:, None], room)
    # A value that the threshold removes must be exactly 0; a rounding residue would count as a
    # changed value.
    projection = torch.where(projection > EXACT * eps[:, None], projection, 0)
    # What the search and rounding left above eps is scaled away.
    projection *= (eps / projection.sum(1).clamp_min(1e-30)).clamp_max(1)[:, None]
    return projection.reshape(delta.shape).copysign_(delta)


def projected(x: Tensor, x0: Tensor, threat: Threat) -> Tensor:
    """(n, *shape): the nearest inputs to `x` within eps of `x0` and inside the bounds."""
    low, high = threat.domain.bounds(x0)
    delta = into_ball_and_bounds(x - x0, threat.eps, low - x0, high - x0)
    return threat.domain.clamp(delta.add_(x0))


def phases(steps: int, *, wide: bool) -> dict[int, float]:
    """The first step of each phase of a run, counted from 0, to its radius as a multiple of eps.

    `wide`: 30 % of the steps within 3 eps, 30 % within 2 eps, and the rest within eps; fewer than
    four steps have no phases.
    """
    share = 3 * steps // 10
    return {0: 3.0, share: 2.0, 2 * share: 1.0} if wide and share else {0: 1.0}


def reviews(steps: int, starts: Iterable[int]) -> set[int]:
    """Numbers of steps after which `SparseState.review` runs: every 4 % of each phase.

    `starts` are the first steps of the phases.
    """
    steps_after = set()
    for start, end in pairwise([*starts, steps]):
        # The first step of a later phase is a projection of the best point, which has no step size.
        first = start + (start > 0)
        gap = max(1, (end - first) // 25)
        steps_after |= set(range(first + gap, end + 1, gap))
    return steps_after


class SparseState:
    """State of each sample of a run in L1, as `ApgdState` for other distances: Algorithm 1."""

    def __init__(
        self, x0: Tensor, x: Tensor, loss: Tensor, grad: Tensor, eps: Tensor, *, dense: bool = True
    ) -> None:
        self.x0 = x0
        self.eps = eps
        self.x = x
        self.loss = loss
        self.grad = grad
        self.x_max = x.clone()
        self.loss_max = loss.clone()
        self.grad_max = grad.clone()
        self.step_size = eps.clone()

        if dense:
            # A run that begins anywhere in the ball changes a share of all values.
            self.changed_before = torch.full_like(loss, x[0].numel())
            self.count = FIRST_SHARE * self.changed_before
        else:
            # One that goes on changes a share of those that `x` changed.
            self.changed_before = l0(x - x0).to(loss)
            self.count = self.changed_before / SHARPEN

    def select(self, keep: Tensor) -> None:
        """Keep some samples."""
        for name, value in vars(self).items():
            setattr(self, name, value[keep])

    def move(self, x0: Tensor, threat: Threat, momentum: float) -> Tensor:
        """A step along the signs of the steepest values, all of one length, and the projection.

        Momentum is not used.
        """
        steep = self.grad.abs().flatten(1)
        # The value of the last rank that takes part, counted from 1.
        ranks = self.count.long().clamp(1, steep.shape[1])
        least = steep.sort(dim=1, descending=True).values.gather(1, ranks[:, None] - 1)
        sign = torch.where(steep >= least, self.grad.flatten(1).sign(), 0)
        # The step size is the L1 length of the step, shared by the values that it changes.
        length = self.step_size / sign.abs().sum(1).clamp_min(1)
        step = sign.mul_(length[:, None]).reshape(self.x.shape)
        return projected(step.add_(self.x), x0, threat)

    def arrive(self, x: Tensor, loss: Tensor, grad: Tensor) -> None:
        """Note the new point, and keep it where it is the best so far."""
        improved = loss > self.loss_max
        self.x = x
        self.loss = loss
        self.grad = grad
        rows = improved.nonzero()[:, 0]
        self.x_max[rows] = x[rows]
        self.grad_max[rows] = grad[rows]
        self.loss_max[rows] = loss[rows]

    def review(self, steps: int) -> None:
        """Where the best point became sparser, full steps from there again; else shorter ones."""
        changed = l0(self.x_max - self.x0)
        sparser = changed < FEWER * self.changed_before
        shorter = torch.maximum(self.step_size / SHARPEN, SMALLEST * self.eps)
        # A sparser best point shows that the support still moves, for which full steps are needed.
        self.step_size = torch.where(sparser, self.eps, shorter)
        self.count = changed / SHARPEN
        self.changed_before = changed

        # From the best point again, with the values that belong to it: no query is needed.
        rows = sparser.nonzero()[:, 0]
        self.x[rows] = self.x_max[rows]
        self.grad[rows] = self.grad_max[rows]
        self.loss[rows] = self.loss_max[rows]
