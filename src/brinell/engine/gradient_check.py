"""Check of the gradient against finite differences of the answers: whether a part of it is missing
or wrong.

A central difference of the margin along a direction is compared with the product of gradient and
direction. Directions are random steps up and down: at all values, and such that every part of the
gradient that is there contributes alike, be it every value or every frequency. So what the gradient
explains does not hide what it leaves out, values, channels, patches, frequencies or samples: where
it is small, the steps are many. All steps have one length, since what rounds finer than attacks
step is no fault. Half of the points lie near clean inputs, moved at
random off the grid of stored values, where max pooling has ties; the others where a step of an
attack leads. Limits: docs/reference/checks.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.checks import exact_test
from brinell.core.norms import per_sample
from brinell.core.oracle import Oracle
from brinell.engine.consistency import HALF_TOLERANCES, CallRecorder
from brinell.engine.context import CheckContext

STEPS = (1 / 16, 1 / 4, 1 / 2)
"""Step sizes as shares of the budget. A gradient that predicts the changes of a sample at any of
these sizes is useful to an attack."""
LONGEST, SHORTEST = 0.002, 1e-4
"""Largest and smallest size of the finest step, as shares of the data's range."""
LOCAL = 0.2
"""No point lies farther from its clean input than this share of the data's range."""
DRAWS = 2
"""Directions of each kind in which a sample is moved."""
LEAST = 0.25
"""Parts of the gradient below this share of its mean size are weighted as if they had it."""
WRONG = 0.1
"""Largest permitted disagreement of one sample, by the definition of `Agreement`: half of a change
that is not foretold gives 0.2."""
MAX_SHARE = 0.1
"""Share of the samples whose gradient may be wrong: of sound networks 3 % are at most
(docs/results/checks.md)."""
MINOR = 0.1
"""What is missing counts from this share of the gradient's own mean size at as many values: kinks
where the gradient is almost 0 change nothing that an attack would gain."""
ROUNDING = 4e-6
"""Changes of the margin below this share of the largest logit are rounding, of models that
compute in float32."""
HALF = 3.0
"""Factor on the answer tolerance of half precision, because the roundings of all layers affect a
difference."""
MIN_VISIBLE = 8
"""Fewest samples with a visible change that the full check judges."""
FULL_SAMPLES = 64
"""Number of samples of the full check."""


Direct = Callable[[Tensor], Tensor]
"""Makes directions (n, *shape) of steps -1, 0 and 1 from random numbers between 0 and 1."""


class Agreement(NamedTuple):
    """Agreement of the gradient with actual changes."""

    disagreement: float
    """Mean over the samples. 0: every change is as predicted. 1: predictions are zero. Up to 1 where
    they are unrelated, and up to 2 where every change has the opposite sign, since an error counts
    from `MINOR` on. NaN: no visible change."""
    wrong: int
    """Samples with a disagreement above `WRONG` at every step size at which they change visibly."""
    samples: int
    """Samples whose answers changed visibly, or should have."""

    @property
    def fails(self) -> bool:
        """True if more samples have a wrong gradient than chance explains."""
        return self.samples >= MIN_VISIBLE and exact_test(self.wrong, self.samples, MAX_SHARE)[0]


def disagreement(actual: Tensor, predicted: Tensor, floor: Tensor) -> Tensor:
    """(n,): disagreement of actual changes (n, k) with predicted ones (n, k).

    Errors up to `floor` (n,) do not matter: so much of an error does not count, and changes no
    larger are not visible, NaN.
    """
    size = torch.linalg.vector_norm(torch.cat([actual, predicted], 1), dim=1)
    error = torch.linalg.vector_norm(actual - predicted, dim=1)
    return torch.where(size > floor, ((error - floor).clamp_min(0) / size).square(), torch.nan)


class GradientCheck:
    """The check on one model, at the clean samples of a context.

    The threat of the oracle is the whole domain; `grad` (n, *shape) are gradients of the margin at
    the samples.
    """

    def __init__(self, context: CheckContext, oracle: Oracle, grad: Tensor) -> None:
        batch, domain, distance, eps = context.batch, context.domain, context.distance, context.eps
        self._oracle, self._batch, self._domain = oracle, batch, domain
        self._rng = context.rng.fold("differences")
        low, high = domain.bounds(batch.x)
        self._width = (high - low).expand(1, *domain.shape)
        # The change of every value, as a share of its range, whose distance equals the budget.
        is_lp = distance.name in ("linf", "l2", "l1") and eps < torch.inf
        self._radius = min(eps / float(distance.size(self._width)), LOCAL) if is_lp else LOCAL

        # Points near the clean inputs; every second lies where a step of an attack leads.
        noise = self._rng.fold("point").uniform(*domain.shape).mul_(2).sub_(1)
        # As far as the budget of which the finest step is its share.
        move = noise * min(self._step(STEPS[0]) / STEPS[0], self._radius)
        is_attacked = torch.arange(len(batch), device=batch.x.device) % 2 == 1
        # Three quarters of the way are that step, and one is the noise of the other points.
        step = 0.75 * self._radius * grad[is_attacked].sign()
        move[is_attacked] = step + 0.25 * move[is_attacked]
        self._x = domain.clamp(batch.x + move * self._width)

        # Gradients are computed for as many of the samples as a check needs.
        self._count = 0
        self._rounding = ROUNDING
        self._grad = torch.zeros_like(self._x)
        self._scale = torch.zeros(len(batch), device=batch.x.device)

    def _step(self, share: float) -> float:
        """Step of the differences as a share of the budget, kept within float32's resolution."""
        step = share * self._radius
        if share > STEPS[0]:
            return step
        return max(min(step, LONGEST), min(SHORTEST, self._radius))

    def is_doubtful(self) -> bool:
        """First look: true if the gradient needs the full check.

        Each sample is moved in one direction of each kind, and two samples together are judged like
        the two directions of one. A single pair that disagrees gives reason for doubt, as do pairs
        of which most do not change visibly. Costs 7 forwards and a backward on each sample.
        """
        rows = self._take_gradients(len(self._batch))
        differences = self._disagreement(rows, STEPS[0], draws=1)
        return bool((differences > WRONG).any()) or 2 * int(differences.isnan().sum()) > len(
            differences
        )

    def full_check(self) -> Agreement:
        """The agreement at the step size at which it is best for each sample.

        Costs at most 37 forwards and a backward on each of up to 64 samples, and 13 where the finest
        step is foretold.
        """
        rows = self._take_gradients(min(FULL_SAMPLES, len(self._batch)))
        best = torch.full((len(rows),), torch.nan, device=self._x.device)
        for share in STEPS:
            # Negated, since NaN stands for no visible change, which a longer step may make.
            again = rows[~(best <= WRONG)]
            if len(again):
                best[again] = torch.fmin(best[again], self._disagreement(again, share))
        seen = best[~best.isnan()]
        return Agreement(float(seen.mean()), int((seen > WRONG).sum()), len(seen))

    def _take_gradients(self, count: int) -> Tensor:
        """The first `count` rows, whose gradients are computed where they have none yet."""
        if count > self._count:
            index = slice(self._count, count)
            with CallRecorder() as watch:
                answer = self._oracle.gradient(self._batch.ids[index], self._x[index])
            if watch.half is not None:
                self._rounding = HALF * HALF_TOLERANCES[watch.half]
            self._grad[index] = torch.nan_to_num(answer.grad, nan=0.0, posinf=0.0, neginf=0.0)
            self._scale[index] = losses.scale(answer.logits, self._batch.y[index])
            self._count = count
        return torch.arange(self._count, device=self._x.device)

    def _disagreement(self, rows: Tensor, share: float, draws: int = DRAWS) -> Tensor:
        """(n,): the largest disagreement of all kinds of directions; NaN where no change is visible.

        With a single draw the values are of pairs of samples.
        """
        strength = self._strength
        kinds: list[Direct] = [plain_signs, even_values(strength)]
        if self._domain.kind != "vector":
            kinds.append(even_frequencies(strength))

        values = []
        for number, direct in enumerate(kinds):
            values.append(self._compare(rows, share, number, direct, draws))
        # A disagreement is at least 0, so -1 stands for NaN while the largest is taken.
        worst = torch.stack(values).nan_to_num(-1.0).amax(0)
        return torch.where(worst < 0, torch.nan, worst)

    @property
    def _strength(self) -> Tensor:
        """(n, *shape): the gradients so far per width of the domain, each of norm 1."""
        grad = self._grad[: self._count] * self._width
        norm = grad.flatten(1).norm(dim=1).clamp_min(torch.finfo(grad.dtype).tiny)
        return grad / per_sample(norm, grad)

    def _compare(
        self, rows: Tensor, share: float, number: int, direct: Direct, draws: int
    ) -> Tensor:
        """(n,): disagreement of actual and predicted changes in so many directions.

        Two forwards per row and direction; the `number` of the kind tells its random numbers from
        those of others.
        """
        ids = self._batch.ids[rows]
        x = self._x[rows]
        rng = self._rng.select(rows)
        grad = self._grad[rows]
        mean_square = grad.square().flatten(1).mean(1)
        actual = []
        foretold = []
        floors = []
        for draw in range(draws):
            noise = rng.fold(f"{number} {draw} {share}").uniform(*self._domain.shape)
            step = self._step(share) * self._width * direct(noise)
            up = self._domain.clamp(x + step)
            down = self._domain.clamp(x - step)
            actual.append(self._oracle.loss(ids, up) - self._oracle.loss(ids, down))
            foretold.append(((up - down) * grad).flatten(1).sum(1))

            # The change by a gradient of mean size at all values that are moved.
            mean_change = ((up - down).square().flatten(1).sum(1) * mean_square).sqrt()
            floors.append(self._rounding * self._scale[rows] + MINOR * mean_change)

        unit = self._scale.amax()  # so that tiny logits have squares
        changes = [torch.stack(values, 1) / unit for values in (actual, foretold, floors)]
        # With one draw, the samples in pairs: one more, if their number is odd, is left out.
        if draws < DRAWS:
            changes = [part[: len(rows) // DRAWS * DRAWS].reshape(-1, DRAWS) for part in changes]
        return disagreement(changes[0], changes[1], changes[2].norm(dim=1))


def plain_signs(noise: Tensor) -> Tensor:
    """A step up or down at every value."""
    return (noise - 0.5).sign()


def even_values(strength: Tensor) -> Direct:
    """Steps at so many of the values that all of the gradients `strength` (m, *shape) contribute
    alike: at every value where these are smallest.
    """
    weights = _weights(strength.square().mean(0).sqrt())
    chance = (weights / weights.amax()).square()

    # Noise below `chance`, divided by it, is again even between 0 and 1, and gives the sign.
    def direct(noise: Tensor) -> Tensor:
        return plain_signs(noise / chance) * (noise < chance)

    return direct


def even_frequencies(strength: Tensor) -> Direct:
    """Steps up and down in such patterns that all frequencies of the gradients contribute alike, those
    of each channel over all other axes.
    """
    axes = tuple(range(2, strength.dim()))
    spectrum = torch.fft.rfftn(strength, dim=axes).abs()
    weights = _weights(spectrum.square().mean(0).sqrt())

    def direct(noise: Tensor) -> Tensor:
        waves = torch.fft.rfftn(noise - 0.5, dim=axes) * weights
        patterns: Tensor = torch.fft.irfftn(waves, s=noise.shape[2:], dim=axes)
        return patterns.sign()

    return direct


def _weights(size: Tensor) -> Tensor:
    """Weights at most 1 that are inverse to the sizes, from `LEAST` of their mean on."""
    floor = (LEAST * size.mean()).clamp_min(torch.finfo(size.dtype).tiny)
    return floor / torch.maximum(size, floor)
