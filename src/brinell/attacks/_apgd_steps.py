"""The state of an APGD run, and the iterations at which its step size is reviewed.

Croce & Hein 2020, Reliable evaluation of adversarial robustness with an ensemble of diverse
parameter-free attacks, Algorithm 1.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from brinell.attacks._shared import replace_rows
from brinell.core.contracts import Threat
from brinell.core.norms import per_sample

MOMENTUM = 0.75
"""alpha of Algorithm 1: the weight of the new step against the previous one."""
RHO = 0.75
"""Condition 1: the step size is kept only if more than this share of the steps since the last
checkpoint raised the loss."""


class ApgdState:
    """State of each sample of a run, in the symbols of Algorithm 1."""

    def __init__(self, x: Tensor, loss: Tensor, grad: Tensor, step_size: Tensor) -> None:
        self.x = x
        self.x_previous = x
        self.loss = loss
        self.grad = grad
        self.x_max = x.clone()
        self.loss_max = loss.clone()
        self.grad_max = grad.clone()
        self.step_size = step_size

        # For the reviews: how many steps raised the loss since the last one, and what it found.
        self.rises = torch.zeros_like(loss)
        self.loss_max_before = loss.clone()
        # As if halved before: the first review has no kept step that could have been too long.
        self.halved_before = torch.ones_like(loss, dtype=torch.bool)

    def select(self, keep: Tensor) -> None:
        """Keep some samples."""
        for name, value in vars(self).items():
            setattr(self, name, value[keep])

    def move(self, x0: Tensor, threat: Threat, momentum: float) -> Tensor:
        """Lines 7 and 8: a projected gradient step, then momentum, projected again."""
        step = threat.distance.ascent(self.grad).mul_(per_sample(self.step_size, self.x))
        z = threat.project(step.add_(self.x), x0)
        # All of the new step and nothing of the previous one, which a first step does not have.
        if momentum == 1.0:
            return z
        # x + a (z - x) + (1 - a) (x - x_previous)
        x = (
            z.sub_(self.x)
            .mul_(momentum)
            .add_(self.x, alpha=2 - momentum)
            .sub_(self.x_previous, alpha=1 - momentum)
        )
        return threat.project(x, x0)

    def arrive(self, x: Tensor, loss: Tensor, grad: Tensor) -> None:
        """Lines 9 to 11: note the new point, and keep it where it is the best so far."""
        self.rises += loss > self.loss
        improved = loss > self.loss_max
        self.x_previous = self.x
        self.x = x
        self.loss = loss
        self.grad = grad
        for best, value in ((self.x_max, x), (self.grad_max, grad), (self.loss_max, loss)):
            replace_rows(best, improved, value)

    def review(self, steps: int) -> None:
        """Lines 12 to 16: where progress stalled, halve the step and go back to the best point."""
        stalled = self.rises <= RHO * steps
        # Twice no better best point although the step was kept: then it is too long as well.
        stuck = ~self.halved_before & (self.loss_max_before >= self.loss_max)
        halve = stalled | stuck

        self.halved_before = halve
        self.loss_max_before = self.loss_max.clone()
        self.rises = torch.zeros_like(self.rises)
        self.step_size = torch.where(halve, self.step_size / 2, self.step_size)
        for value, best in (
            (self.x, self.x_max),
            (self.grad, self.grad_max),
            (self.loss, self.loss_max),
        ):
            replace_rows(value, halve, best)


def checkpoints(steps: int) -> list[int]:
    """How many steps are done when the step size is reviewed, each time (section 3.2).

    As shares of the run they are p_0 = 0, p_1 = 0.22, then gaps that shrink by 0.03 each, down to
    0.06.
    """
    points = [0.0, 0.22]
    while points[-1] < 1:
        points.append(points[-1] + max(points[-1] - points[-2] - 0.03, 0.06))

    # Rounded first: a share in floating point may exceed what it stands for. In a short run several
    # shares end at one step, which is reviewed once.
    ends = [math.ceil(round(point * steps, 9)) for point in points]
    return [end for start, end in pairwise(ends) if start < end <= steps]
