"""Outcomes of the samples of an environment's batch: success, the adversarial input, and counts of the edits on the way."""

from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.contracts import Remark
from brinell.core.intervals import wilson
from brinell.core.patches import PatchGrid
from brinell.rlab.cache import CLEAN

NARROW = 0.5
"""Breadth of the visits below which a remark is made."""
CANCELLED = 0.8
"""Share of the added patches above which their removal is remarked on."""
EARLY = 20
"""Number of changes below which no remark is made."""
FULL = 0.9
"""Share of the budget from which it counts as full."""
RARE = 0.25
"""Success rate below which successes are rare: the upper end of its interval is compared."""


class Outcomes(NamedTuple):
    """Outcomes of the samples of a batch."""

    success: Tensor
    """(n,) bool: True if the criterion was met."""
    variant: Tensor
    """(n, patches) int16: the assignment that met it at the smallest distance, CLEAN everywhere for none."""
    eps: Tensor
    """(n,): the budget to which that assignment is to be fitted."""
    length: Tensor
    """(n,): distance of `closest` before it is fitted and scaled; NaN for none."""
    strength: Tensor
    """(n,): the share of the fitted distortion that is left after clean-up."""
    closest: Tensor
    """(n, patches) int16: the assignment of the closest of all inputs that met the criterion, which after clean-up need not be
    `variant`."""
    steps: Tensor
    """(n,): queries after the first until the criterion was first met."""
    value: Tensor
    """(n, patches): what each patch was predicted to contribute at that time, as a share of the clean input's margin; 0 for clean
    patches."""
    slope: Tensor
    """(n, channels, places): the linear model's gradient at that time, which predicts the effect of other distortions."""
    map: Tensor
    """(n, patches, distortions): the sensitivity map (`rlab.predictions`) when the episode ended; NaN where there is none."""
    visits: Tensor
    """(n, patches) int32: how often each patch was changed in a queried input, kept or not."""
    given: Tensor
    """(n,): clean patches that were distorted in steps that were kept."""
    taken: Tensor
    """(n,): patches that were cleared, in steps that were kept."""
    size: Tensor
    """(n,): distance of the input at which the episode ended."""

    def select(self, rows: Tensor) -> "Outcomes":
        """The outcomes of the samples at these positions."""
        return Outcomes(*(column[rows] for column in self))


def no_outcomes(eps: Tensor, grid: PatchGrid, distortions: int) -> Outcomes:
    """Outcomes before the first step, for budgets (n,), the patches of a grid and a number of distortions."""
    n, patches, counts = len(eps), len(grid), torch.zeros(3, len(eps), dtype=torch.int64, device=eps.device)
    return Outcomes(
        success=torch.zeros(n, dtype=torch.bool, device=eps.device),
        variant=torch.full((n, patches), CLEAN, dtype=torch.int16, device=eps.device),
        eps=eps.clone(),
        length=torch.full((n,), torch.nan, device=eps.device),
        strength=torch.ones_like(eps),
        closest=torch.full((n, patches), CLEAN, dtype=torch.int16, device=eps.device),
        steps=counts[0],
        value=torch.zeros(n, patches, device=eps.device),
        slope=torch.zeros(n, grid.channels, grid.places, device=eps.device),
        map=torch.full((n, patches, distortions), torch.nan, device=eps.device),
        visits=torch.zeros(n, patches, dtype=torch.int32, device=eps.device),
        given=counts[1],
        taken=counts[2],
        size=torch.zeros(n, device=eps.device),
    )


def monitors(outcomes: Outcomes, budget: Tensor) -> list[Remark]:
    """Remarks on the ended episodes of a batch that began with a `budget` (n,), infinite for none."""
    texts = {
        "same-patches": _same_patches(outcomes),
        "cancelling": _cancelling(outcomes),
        "distance-without-success": _distance(outcomes, budget),
    }
    return [Remark(code, text) for code, text in texts.items() if text]


def breadth(visits: Tensor) -> Tensor:
    """(n,): patches that were changed at least once, over the number that equally many choices at random would have reached.

    k choices of p patches reach p (1 - (1 - 1/p)**k) of them on average. Choices without replacement reach more, so the figure
    may exceed 1.
    """
    patches, choices = visits.shape[1], visits.sum(1)
    expected = patches * (1 - (1 - 1 / patches) ** choices.double())
    return ((visits > 0).sum(1) / expected.clamp_min(1e-12)).float()


def _same_patches(outcomes: Outcomes) -> str:
    """Remark on a low median breadth over the samples that were changed often enough; empty for none."""
    often = outcomes.visits.sum(1) >= EARLY
    figure = float(breadth(outcomes.visits[often]).median()) if bool(often.any()) else NARROW
    if figure >= NARROW:
        return ""
    return (
        f"the same patches were changed again and again: {figure:.0%} of the patches that chance would have reached; "
        "train the policy anew, with more chance, or place with greedy"
    )


def _cancelling(outcomes: Outcomes) -> str:
    """Remark on a high share of removed patches among those added in kept steps; empty for none."""
    given, taken = int(outcomes.given.sum()), int(outcomes.taken.sum())
    if given < EARLY or taken <= CANCELLED * given:
        return ""
    return f"{taken} of {given} patches that were added were removed again: lower `removals`, or train the policy anew"


def _distance(outcomes: Outcomes, budget: Tensor) -> str:
    """Remark on rare successes while most failed episodes end with a full budget; empty for none."""
    n, success = len(outcomes.success), int(outcomes.success.sum())
    failed = ~outcomes.success & budget.isfinite() & (budget > 0)
    full = outcomes.size[failed] >= FULL * budget[failed]
    interval = wilson(success, n)
    if interval is None or not bool(failed.any()) or interval.high >= RARE or float(full.float().mean()) <= 0.5:
        return ""
    return (
        f"{success} of {n} samples were fooled, and {int(full.sum())} of {int(failed.sum())} failures ended with "
        "a full budget: other or more severe distortions may do what more steps will not"
    )
