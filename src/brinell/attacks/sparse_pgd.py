"""Sparse-PGD: gradient ascent on the changes and, apart from them, on which places are changed.

Zhong, Huang & Liu 2024, Towards efficient training and evaluation of robust models against l0
bounded adversarial perturbations (arXiv 2405.05075), Algorithm 1. The perturbation is a product of
changes of all values and a mask of the k places with the largest scores. Changes take sign steps,
scores normalised gradient steps; scores are drawn anew where the mask has not changed for some
steps. The projected gradient of the changes is that of the product, which is 0 outside of the mask;
the unprojected one takes the scores' sigmoid in place of the mask, so that all changes move.
The unprojected run, the projected one and Sparse-RS together are the paper's Sparse-AutoAttack.

In L0 each value is a place; in pixels all channels of one are.

Deviations:
- A sample's scores are drawn anew by its own count of unchanged masks. The authors' code resets the
  counts of all samples in a step in which the masks of all have changed, and no others.
- The last iterate is scored but its gradient is not taken: 1 backward less.
- Changes and steps are fractions of the width of the bounds, which is 1 in the paper.
"""

import math
from dataclasses import dataclass

import torch

from brinell.attacks._shared import EveryKind, largest, over_places, select_rows, still_active
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import cross_entropy
from brinell.core.norms import steepest_l2
from brinell.core.settings import Count, Positive


@dataclass(frozen=True, kw_only=True)
class SparsePGD(EveryKind):
    """Sparse-PGD: gradients for the changes, and for which few values or pixels are changed."""

    steps: Count = 300
    """Gradient steps."""
    projected: bool = False
    """Follow the gradient of the changes within the mask alone; otherwise outside of it, too."""
    step_size: Positive = 0.25
    """Step of the changes, as a fraction of the width of the bounds."""
    mask_step_size: Positive = 0.25
    """Step of the scores in L2, as a multiple of the root of the number of places."""
    patience: Count = 3
    """Steps without a change of the mask after which its scores are drawn anew."""

    access = Access.GRADIENTS
    distances = frozenset({"l0", "pixels"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward at the start and each iterate; the last one is scored only."""
        return self.steps + 1, self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """One run of Algorithm 1 on all samples whose eps allows one place."""
        rows = (threat.eps >= 1).nonzero()[:, 0]
        batch, threat, rng = select_rows(rows, batch, threat, rng)
        domain = threat.domain
        low, high = domain.bounds(batch.x)
        width = high - low
        shape = over_places(batch.x, threat).shape[1:]
        length = self.mask_step_size * math.sqrt(math.prod(shape))

        # Changed values everywhere, scores of the places, and which of them are in the mask.
        moved = domain.clamp(batch.x + rng.uniform(*domain.shape).mul_(2).sub_(1) * width)
        scores = rng.fold("mask").normal(*shape)
        mask = largest(scores, threat.eps)
        unchanged = torch.zeros_like(batch.ids)

        for step in range(self.steps):
            x = torch.where(mask, moved, batch.x)
            grad = oracle.gradient(batch.ids, x, cross_entropy).grad
            batch, threat, rng, grad, moved, scores, mask, unchanged = still_active(
                oracle, batch, threat, rng, grad, moved, scores, mask, unchanged
            )
            if not len(batch):
                return

            # The product rule; the sigmoid is above 0, so that it leaves no sign at 0.
            share = scores.sigmoid()
            slope = grad * mask if self.projected else grad
            rise = over_places(grad * (moved - batch.x), threat) * share * (1 - share)
            moved = domain.clamp(moved + self.step_size * width * slope.sign())
            scores = scores + length * steepest_l2(rise)

            # Where the mask stays as it is for some steps, the search is stuck: new scores.
            following = largest(scores, threat.eps)
            is_unchanged = (following == mask).flatten(1).all(1)
            unchanged = torch.where(is_unchanged, unchanged + 1, 0)
            stuck = (unchanged >= self.patience).nonzero()[:, 0]
            if len(stuck):
                scores[stuck] = rng.select(stuck).fold(step).normal(*shape)
                following[stuck] = largest(scores[stuck], threat.eps[stuck])
                unchanged[stuck] = 0
            mask = following
        # Only to be judged: the oracle itself notes what fools the model.
        oracle.scores(batch.ids, torch.where(mask, moved, batch.x))
