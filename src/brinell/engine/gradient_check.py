"""Check of the gradient against finite differences of the answers.

A central difference of the margin along a direction is compared with the product of gradient and
direction. Directions are random signs at every value, and random signs on patches (smooth ones).
Half of the points lie near clean inputs, moved at random off the grid of stored values, where max
pooling has ties; the others where a step of an attack leads. Limits: docs/reference/checks.md.
"""

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.checks import ERROR_RATE
from brinell.core.oracle import Oracle
from brinell.engine.consistency import HALF_TOLERANCES, CallRecorder
from brinell.engine.context import CheckContext

FINE, MIDDLE, COARSE = 1 / 16, 1 / 4, 1 / 2
"""Step sizes as shares of the budget. A gradient that predicts the change at any of these sizes
is useful to an attack."""
LONGEST, SHORTEST = 0.002, 1e-4
"""Largest and smallest size of the finest step, as shares of the data's range."""
LOCAL = 0.2
"""No point lies farther from its clean input than this share of the data's range."""
DOUBT = 0.06
"""Disagreement in the quick check above which the full check runs; healthy networks have at most
0.04."""
MAX_DISAGREEMENT = 0.1
"""Largest permitted disagreement; the check fails if it is above by more than chance explains at
`ERROR_RATE`."""
DEVIATIONS = NormalDist().inv_cdf(1 - ERROR_RATE)
"""Standard errors by which a disagreement has to be above its limit."""
ROUNDING = 4e-6
"""Changes of the margin below this share of the largest logit are rounding, of models that
compute in float32."""
HALF = 3.0
"""Factor on the answer tolerance of half precision, because the roundings of all layers affect a
difference."""
MIN_VISIBLE = 8
"""Fewest samples with a visible change that the full check judges."""
QUICK_SAMPLES, FULL_SAMPLES = 24, 64
"""Numbers of samples of the quick check and of the full check."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of the gradient with actual changes along some directions."""

    disagreement: float
    """0: every change is as predicted. 1: predictions are zero or unrelated. 2: every change has
    the opposite sign. NaN: no visible change."""
    low: float
    """`DEVIATIONS` standard errors less, by the spread over the samples."""
    samples: int
    """Samples whose answers changed visibly, or should have."""


def agreement(actual: Tensor, predicted: Tensor, floor: Tensor) -> Agreement:
    """Compare actual changes (n,) with predicted ones (n,); pairs of a norm below `floor` (n,) do
    not count.

    Samples are weighted by the size of their changes, not its square, so that a few steep ones do
    not dominate.
    """
    size = (actual.square() + predicted.square()).sqrt()
    visible = size > floor
    actual, predicted, size = actual[visible], predicted[visible], size[visible]
    if not len(actual):
        return Agreement(torch.nan, torch.nan, 0)
    error_size = (actual - predicted).square() / size
    disagreement = float(error_size.sum() / size.sum())
    error = float((error_size - disagreement * size).square().sum().sqrt() / size.sum())
    return Agreement(disagreement, disagreement - DEVIATIONS * error, len(actual))


class GradientCheck:
    """The check on one model, at the clean samples of a context.

    The threat of the oracle is the whole domain; `grad` (n, *shape) are gradients of the margin at
    the samples.
    """

    def __init__(self, context: CheckContext, oracle: Oracle, grad: Tensor) -> None:
        batch, domain, distance, eps = context.batch, context.domain, context.distance, context.eps
        self._oracle, self._batch, self._domain, self._rng = (
            oracle,
            batch,
            domain,
            context.rng.fold("differences"),
        )
        low, high = domain.bounds(batch.x)
        self._width = (high - low).expand(1, *domain.shape)
        # The change of every value, as a share of its range, whose distance equals the budget.
        is_lp = distance.name in ("linf", "l2", "l1") and eps < torch.inf
        self._radius = min(eps / float(distance.size(self._width)), LOCAL) if is_lp else LOCAL
        noise = self._rng.fold("point").uniform(*domain.shape).mul_(2).sub_(1)
        fine = min(self._step(FINE) / FINE, self._radius)
        is_attacked = torch.arange(len(batch), device=batch.x.device) % 2 == 1
        move = noise * fine
        move[is_attacked] = (
            0.75 * self._radius * grad[is_attacked].sign() + 0.25 * move[is_attacked]
        )
        self._x = domain.clamp(batch.x + move * self._width)
        self._count, self._rounding = 0, ROUNDING
        self._grad = torch.zeros_like(self._x)
        self._scale = torch.zeros(len(batch), device=batch.x.device)

    def _step(self, share: float) -> float:
        """Step of the differences as a share of the budget, kept within float32's resolution."""
        step = share * self._radius
        return max(min(step, LONGEST), min(SHORTEST, self._radius)) if share == FINE else step

    def is_doubtful(self) -> bool:
        """Quick check: true if the gradient needs the full check.

        Costs 3 forwards and a backward on up to 24 samples.
        """
        rows = self._take_gradients(min(QUICK_SAMPLES, len(self._batch)))
        signs = self._signs(rows, "glance")
        patched = (
            rows % 4 >= 2
        )  # among samples near clean inputs and among those where an attack leads
        signs[patched] = self._patches(rows, "glance")[patched]
        return not self._agreement(rows, signs, FINE).disagreement <= DOUBT

    def full_check(self) -> tuple[float, bool]:
        """The disagreement at the step size where it is smallest, NaN if too few answers change;
        whether the gradient is wrong.

        Costs at most 12 forwards and a backward on each of up to 64 samples.
        """
        rows = self._take_gradients(min(FULL_SAMPLES, len(self._batch)))
        worst = [
            max(
                self._agreement(rows, self._signs(rows, f"pixels {share}"), share),
                self._agreement(rows, self._patches(rows, f"patches {share}"), share),
                key=lambda result: result.low if result.samples >= MIN_VISIBLE else -1.0,
            )
            for share in (FINE, MIDDLE, COARSE)
        ]
        best = min(
            worst, key=lambda result: result.low if result.samples >= MIN_VISIBLE else torch.inf
        )
        return (
            (best.disagreement, best.low > MAX_DISAGREEMENT)
            if best.samples >= MIN_VISIBLE
            else (torch.nan, False)
        )

    def _take_gradients(self, count: int) -> Tensor:
        if count > self._count:
            index = slice(self._count, count)
            with CallRecorder() as watch:
                answer = self._oracle.gradient(self._batch.ids[index], self._x[index])
            if watch.half is not None:
                self._rounding = HALF * HALF_TOLERANCES[watch.half]
            self._grad[index] = torch.nan_to_num(answer.grad, 0.0, 0.0, 0.0)
            self._scale[index] = losses.scale(answer.logits, self._batch.y[index])
            self._count = count
        return torch.arange(self._count, device=self._x.device)

    def _agreement(self, rows: Tensor, signs: Tensor, share: float) -> Agreement:
        """Agreement of actual and predicted changes along `signs` (n, *shape).

        Two forwards per row.
        """
        ids, x, step = self._batch.ids[rows], self._x[rows], self._step(share) * self._width * signs
        up, down = self._domain.clamp(x + step), self._domain.clamp(x - step)
        actual = self._oracle.loss(ids, up) - self._oracle.loss(ids, down)
        predicted = ((up - down) * self._grad[rows]).flatten(1).sum(1)
        unit = self._scale.amax()  # so that tiny logits have squares
        return agreement(actual / unit, predicted / unit, self._rounding * self._scale[rows] / unit)

    def _signs(self, rows: Tensor, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        return (
            self._rng.select(rows)
            .fold(name)
            .uniform(*(shape or self._domain.shape))
            .sub_(0.5)
            .sign_()
        )

    def _patches(self, rows: Tensor, name: str) -> Tensor:
        """Signs that are alike within patches of a quarter of each side of the grid."""
        shape = self._domain.shape
        if self._domain.kind == "vector":
            return self._signs(rows, name)
        sides = [max(2, side // 4) for side in shape[1:]]
        coarse = [
            shape[0],
            *(-(-side // patch) for side, patch in zip(shape[1:], sides, strict=True)),
        ]
        signs = self._signs(rows, name, tuple(coarse))
        for axis, (patch, side) in enumerate(zip(sides, shape[1:], strict=True), start=2):
            signs = signs.repeat_interleave(patch, axis).narrow(axis, 0, side)
        return signs
