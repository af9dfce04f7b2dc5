"""APGD for maps: losses of single pixels, and a radius that shrinks to eps.

Croce, Singh & Hein 2023, Towards reliable evaluation and fast training of robust semantic
segmentation models (arXiv 2306.12941), section 2: APGD on one of four losses (balanced and masked
cross-entropy, Jensen-Shannon divergence, masked spherical loss). It spends 30 % of the steps within
2 eps, 30 % within 1.5 eps and the rest within eps, and each phase begins with the projected best
point of the one before. `brinell audit --attack sea` runs the four losses one after another and
keeps the worst case of each picture, as the paper's ensemble does.

Deviations:
- The best point, and whether a step raised the loss, are judged by the criterion's margin, which
  for maps is the share of wrong pixels. The authors' code judges the best point so, and steps by
  the mean cross-entropy.
- If there is an input to begin with (`Batch.start`), such as the strongest one within a smaller
  budget or of another loss, the run begins there and stays within eps.
- A run ends as soon as the criterion is met. By default that takes every valid pixel of a picture.
- On a model that answers one class for each input, a pixel is the input.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._apgd_steps import MOMENTUM, ApgdState, checkpoints
from brinell.attacks._shared import EveryKind
from brinell.core import losses
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.norms import per_sample
from brinell.core.settings import Count

PHASES = ((0.3, 2.0), (0.3, 1.5))
"""Share of the steps and multiple of eps of the phases before the last, which is within eps."""


@dataclass(frozen=True, kw_only=True)
class APGDMap(EveryKind):
    """APGD on a loss of single pixels, with a radius that shrinks to eps."""

    loss: Literal["masked-ce", "balanced-ce", "jensen-shannon", "masked-spherical", "ce"] = (
        "masked-ce"
    )
    """Loss to raise: masked-ce (cross-entropy of the pixels that are right), balanced-ce,
    jensen-shannon, masked-spherical or ce (mean cross-entropy)."""
    steps: Count = 100
    """Gradient steps."""
    wide: bool = True
    """Begin with 30 % of the steps within 2 eps and 30 % within 1.5 eps, unless there is an
    input to begin with."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2"})
    family = "budgeted"
    # The losses of single pixels are flat where a pixel is not yet of the target class.
    targeted = False

    def reach(self, distance: str) -> float:
        """The first phase is within 2 eps."""
        return PHASES[0][1] if len(self._phases()) > 1 else 1.0

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward a step, and a forward for the last iterate."""
        return self.steps + 1, self.steps

    def _phases(self) -> list[tuple[int, float]]:
        """Steps and multiple of eps of each phase."""
        if not self.wide:
            return [(self.steps, 1.0)]
        before = [(int(share * self.steps), radius) for share, radius in PHASES]
        before = [(steps, radius) for steps, radius in before if steps]
        return [*before, (self.steps - sum(steps for steps, _ in before), 1.0)]

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """One phase after another, each from the best point of the one before."""
        active = oracle.active(batch.ids)
        batch = batch.select(active)
        threat = threat.select(active)
        rng = rng.select(active)

        phases = self._phases() if batch.start is None else [(self.steps, 1.0)]
        x = batch.start
        earlier = 0
        for steps, radius in phases:
            if not len(batch):
                return
            # Larger balls first: a point outside of the budget leads to a better one within it.
            enlarged = replace(threat, eps=radius * threat.eps)
            if x is None:
                start = threat.distance.sample(rng, tuple(batch.x.shape[1:]))
                x = start.mul_(per_sample(enlarged.eps, batch.x)).add_(batch.x)
            x = enlarged.project(x, batch.x)
            x = self._run_phase(oracle, batch, enlarged, x, range(earlier, earlier + steps))

            active = oracle.active(batch.ids)
            batch = batch.select(active)
            threat = threat.select(active)
            rng = rng.select(active)
            x = x[active]
            earlier += steps

    def _loss(self, step: int) -> Callable[..., Tensor]:
        """The loss of single pixels at a step."""
        if self.loss == "balanced-ce":
            return partial(balanced_cross_entropy, share=step / self.steps)
        return PIXEL_LOSSES[self.loss]

    def _run_phase(
        self, oracle: Oracle, batch: Batch, threat: Threat, x: Tensor, steps: range
    ) -> Tensor:
        """Take these of all steps; the best point of each sample, (n, *shape).

        The last phase scores its last iterate.
        """
        rows = torch.arange(len(batch), device=x.device)
        best = x.clone()
        reviews = set(checkpoints(len(steps)))
        since = 0  # steps of the phase that were done at the last review
        state: ApgdState | None = None

        for step in range(len(steps)):
            answer = oracle.gradient(batch.ids, x, self._loss(steps.start + step))
            # Progress is measured by the margin, whichever loss gives the gradient in this phase.
            lead = losses.margin(answer.logits, batch.y)
            if state is None:
                state = ApgdState(x, lead, answer.grad, step_size=2 * threat.eps)
            else:
                state.arrive(x, lead, answer.grad)
                if step in reviews:
                    state.review(step - since)
                    since = step

            # Samples leave the batch when they are broken, so their points are kept by row.
            best[rows] = state.x_max
            active = oracle.active(batch.ids)

            if not active.all():
                batch = batch.select(active)
                threat = threat.select(active)
                rows = rows[active]
                state.select(active)
                if not len(batch):
                    break
            x = state.move(batch.x, threat, momentum=MOMENTUM if step else 1.0)

        # The last point has not been asked about yet, and is asked about only to be judged.
        if steps.stop == self.steps and len(batch):
            oracle.scores(batch.ids, x)
        return best


# Losses of single pixels: (n, classes, h, w) logits and (n, h, w) classes to (n, h, w). The
# cross-entropy of a pixel that is wrong already grows without end, so that a mean would spend its
# steps there.


def masked_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of pixels that are right; 0 for the others."""
    return losses.cross_entropy(logits, y) * losses.correct(logits, y)


def balanced_cross_entropy(logits: Tensor, y: Tensor, share: float = 0.0) -> Tensor:
    """The cross-entropy, weighed by the share of the steps that are done.

    The weight is 1 - share / 2 for pixels that are right and share / 2 for the others.

    It follows Gu, Zhao, Tresp & Torr 2022, SegPGD, eq. 5.
    """
    right = losses.correct(logits, y)
    return losses.cross_entropy(logits, y) * torch.where(right, 1 - share / 2, share / 2)


def jensen_shannon(logits: Tensor, y: Tensor) -> Tensor:
    """The Jensen-Shannon divergence between prediction and true class; at most log 2.

    With probability p of the true class it is (2 log 2 - (1 + p) log(1 + p) + p log p) / 2, since
    the other classes have probability 0 in the true distribution: each adds its probability times
    log 2.
    """
    p = logits.log_softmax(1).gather(1, y[:, None])[:, 0].exp()
    constant = 2 * torch.log(torch.tensor(2.0, device=p.device))
    return 0.5 * (constant - (1 + p) * torch.log1p(p) + torch.xlogy(p, p))


def masked_spherical(logits: Tensor, y: Tensor) -> Tensor:
    """Minus the true logit of pixels that are right, of logits of length 1; 0 for the others."""
    length = torch.linalg.vector_norm(logits, dim=1).clamp_min(1e-12)
    true = logits.gather(1, y[:, None])[:, 0] / length
    return torch.where(losses.correct(logits, y), -true, torch.zeros_like(true))


PIXEL_LOSSES = {
    "ce": losses.cross_entropy,
    "balanced-ce": balanced_cross_entropy,
    "masked-ce": masked_cross_entropy,
    "jensen-shannon": jensen_shannon,
    "masked-spherical": masked_spherical,
}
"""The losses by the names that settings use."""
