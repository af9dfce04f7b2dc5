"""PGD whose gradient is corrected by estimates from scores, for models that break a part of it.

The correction is that of natural evolution strategies with antithetic pairs (Ilyas, Engstrom,
Athalye & Lin 2018, Black-box adversarial attacks with limited queries and information, section
3.1). It is made of what the gradient leaves unexplained: the change of the margin between the
inputs of a pair, less what the gradient foretells of it. So a gradient that is right needs no
correction, and the noise of the correction is that of its faults alone. Attacks that add scores to
a gradient that is only partly right are due to Cheng et al. 2019, Improving black-box adversarial
attacks with a transfer-based prior.

Deviations:
- The pairs differ by random signs and not by normal numbers, so that a pair moves every value as
  far, and the corrections of successive steps are averaged with momentum.
- If a sample has no gradient at some values, only those values are moved.
- Steps shrink linearly to a tenth, since a correction never becomes exact.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, still_active
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import per_sample
from brinell.core.settings import Count, Positive, Range


@dataclass(frozen=True, kw_only=True)
class PGDEstimated(EveryKind):
    """Projected gradient ascent on the margin; scores correct what the gradient leaves out."""

    steps: Count = 60
    """Gradient steps."""
    pairs: Count = 16
    """Pairs of inputs on both sides of the current one, from which a step's correction is
    estimated."""
    step_size: Positive | None = None
    """Length of the first step as a share of eps, none means 6 / steps; the last is a tenth of
    it."""
    sigma: Positive = 0.05
    """How far the inputs of a pair are from the current one, as a share of eps."""
    momentum: Annotated[float, Range("[0, 1)")] = 0.8
    """Weight of the corrections before."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """The pairs and a gradient each step, and a forward for the last iterate."""
        return self.steps * (2 * self.pairs + 1) + 1, self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """All steps on all samples; the last iterate is scored."""
        x = batch.x
        correction = torch.zeros_like(batch.x)
        missing = torch.zeros_like(x, dtype=torch.bool)

        for step in range(self.steps):
            grad = oracle.gradient(batch.ids, x).grad
            if not step:
                # Values without a gradient; of a sample whose gradient is whole, all values.
                is_whole = (grad != 0).flatten(1).all(1)
                missing = (grad == 0) | per_sample(is_whole, grad)
            batch, threat, rng, x, correction, grad, missing = still_active(
                oracle, batch, threat, rng, x, correction, grad, missing
            )

            if len(batch):
                estimate = self._correction(oracle, batch, threat, rng.fold(step), x, grad, missing)
                correction = self.momentum * correction + (1 - self.momentum) * estimate
                batch, threat, rng, x, correction, grad, missing = still_active(
                    oracle, batch, threat, rng, x, correction, grad, missing
                )
            if not len(batch):
                return

            direction = threat.distance.ascent(grad + correction)
            # The step shrinks evenly to a tenth.
            share = (self.step_size or 6 / self.steps) * (1 - 0.9 * step / max(1, self.steps - 1))
            x = threat.project(x + direction * per_sample(share * threat.eps, x), batch.x)
        # Only to be judged: the oracle itself notes what fools the model.
        oracle.scores(batch.ids, x)

    def _correction(
        self,
        oracle: Oracle,
        batch: Batch,
        threat: Threat,
        rng: Streams,
        x: Tensor,
        grad: Tensor,
        mask: Tensor,
    ) -> Tensor:
        """(n, *shape): the mean over the pairs of the slope that the gradient does not explain."""
        shape = tuple(x.shape[1:])
        # The size of a change by 1 in every value of the mask, at which a pair differs by sigma
        # eps. Where the mask is empty, or the budget 0, it only must not divide by 0.
        size = threat.distance.size(mask.to(x.dtype)).clamp_min(1e-12)
        length = (self.sigma * threat.eps / size).clamp_min(1e-12)

        total = torch.zeros_like(x)
        for pair in range(self.pairs):
            signs = rng.fold(pair).uniform(*shape).sub_(0.5).sign_() * mask
            step = signs * per_sample(length, x)
            ends = [threat.project(end, batch.x) for end in (x + step, x - step)]
            open_ = oracle.affordable(torch.cat([batch.ids, batch.ids])).reshape(2, -1).all(0)
            ids = batch.ids[open_]
            if not len(ids):
                break

            up = oracle.loss(ids, ends[0][open_])
            down = oracle.loss(ids, ends[1][open_])
            difference = (ends[0] - ends[1])[open_]
            unexplained = (up - down) - (difference * grad[open_]).flatten(1).sum(1)
            # The slope along the signs is unexplained / (2 length), and the difference 2 length
            # times the signs, unless the bounds cut it.
            slope = per_sample(unexplained / length[open_].square(), difference)
            total[open_] += slope * difference / 4
        return total / self.pairs
