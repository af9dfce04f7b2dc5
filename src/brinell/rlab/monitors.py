"""Signs that the episodes of an agent have gone wrong, each with a code, a figure and what to do about it.

- same-patches: the same few patches are changed again and again, and the others are never tried.
- cancelling: patches that were distorted are cleared again, so that steps led nowhere.
- distance-without-success: the budget is full and most samples are robust; more steps will not
  help.
"""

from torch import Tensor

from brinell.core.contracts import Remark
from brinell.core.intervals import wilson
from brinell.rlab.outcomes import Outcomes

NARROW = 0.5
"""Least share of the patches that as many choices at random would have reached."""
CANCELLED = 0.8
"""Most of what was added that may have been removed again."""
EARLY = 20
"""Changes of a sample below which no figure is given."""
FULL = 0.9
"""Share of the budget from which on it counts as full."""
RARE = 0.25
"""Success rate below which the sign is seen."""


def monitors(outcomes: Outcomes, budget: Tensor) -> list[Remark]:
    """The signs seen in the episodes of a batch that have ended and began with a `budget` (n,), infinite for none."""
    texts = {
        "same-patches": _same_patches(outcomes),
        "cancelling": _cancelling(outcomes),
        "distance-without-success": _distance(outcomes, budget),
    }
    return [Remark(code, text) for code, text in texts.items() if text]


def breadth(visits: Tensor) -> Tensor:
    """(n,): patches that were changed at least once, over the number that equally many choices at random would have reached.

    k choices of p patches reach p (1 - (1 - 1/p)**k) of them on average. Choices without
    replacement reach more, so the figure may exceed 1.
    """
    patches, choices = visits.shape[1], visits.sum(1)
    expected = patches * (1 - (1 - 1 / patches) ** choices.double())
    return ((visits > 0).sum(1) / expected.clamp_min(1e-12)).float()


def _same_patches(outcomes: Outcomes) -> str:
    """By the median breadth over the samples that were changed often enough."""
    often = outcomes.visits.sum(1) >= EARLY
    figure = float(breadth(outcomes.visits[often]).median()) if bool(often.any()) else NARROW
    if figure >= NARROW:
        return ""
    return (
        f"the same patches were changed again and again: {figure:.0%} of the patches that chance would have reached; "
        "train the policy anew, with more chance, or place with greedy"
    )


def _cancelling(outcomes: Outcomes) -> str:
    """By all that was removed over all that was added, in kept steps."""
    given, taken = int(outcomes.given.sum()), int(outcomes.taken.sum())
    if given < EARLY or taken <= CANCELLED * given:
        return ""
    return f"{taken} of {given} patches that were added were removed again: lower `removals`, or train the policy anew"


def _distance(outcomes: Outcomes, budget: Tensor) -> str:
    """By the success rate, where failed episodes end with a full budget and even the interval's upper end is rare."""
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
