"""Signs that the episodes of an agent have gone wrong, each with a code, a figure and what to do about it.

- same-patches: the same few patches are changed again and again, and the others are never tried.
- cancelling: patches that were distorted are cleared again, so that steps led nowhere.
- distance-without-success: the budget is full and most samples are robust; more steps will not
  help.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from torch import Tensor

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


class Sign(StrEnum):
    """The code of a sign."""

    SAME_PATCHES = "same-patches"
    CANCELLING = "cancelling"
    DISTANCE = "distance-without-success"


class Monitored(NamedTuple):
    """One sign, and whether it was seen."""

    sign: Sign
    figure: float | None
    """What was measured; None where too little was done to say anything."""
    limit: float
    seen: bool
    text: str
    """One line."""


def monitors(outcomes: Outcomes, budget: Tensor) -> Sequence[Monitored]:
    """Look at the episodes of a batch that have ended and began with a `budget` (n,), infinite for none."""
    return _same_patches(outcomes), _cancelling(outcomes), _distance(outcomes, budget)


def breadth(visits: Tensor) -> Tensor:
    """(n,): patches that were changed at least once, over the number that equally many choices at random would have reached.

    k choices of p patches reach p (1 - (1 - 1/p)**k) of them on average. Choices without
    replacement reach more, so the figure may exceed 1.
    """
    patches, choices = visits.shape[1], visits.sum(1)
    expected = patches * (1 - (1 - 1 / patches) ** choices.double())
    return ((visits > 0).sum(1) / expected.clamp_min(1e-12)).float()


def _same_patches(outcomes: Outcomes) -> Monitored:
    """The median breadth over the samples that were changed often enough."""
    often = outcomes.visits.sum(1) >= EARLY
    figure = float(breadth(outcomes.visits[often]).median()) if bool(often.any()) else None
    seen = figure is not None and figure < NARROW
    text = "patches were changed as widely as chance would"
    if seen:
        text = f"the same patches were changed again and again: {figure:.0%} of the patches that chance would have reached"
        text += "; train the policy anew, with more chance, or place with greedy"
    return Monitored(Sign.SAME_PATCHES, figure, NARROW, seen, text if figure is not None else "too few changes to say")


def _cancelling(outcomes: Outcomes) -> Monitored:
    """All that was removed over all that was added, in kept steps."""
    given, taken = int(outcomes.given.sum()), int(outcomes.taken.sum())
    figure = taken / given if given >= EARLY else None
    seen = figure is not None and figure > CANCELLED
    text = "what was added mostly stood"
    if seen:
        text = f"{taken} of {given} patches that were added were removed again: lower `removals`, or train the policy anew"
    return Monitored(Sign.CANCELLING, figure, CANCELLED, seen, text if figure is not None else "too few patches to say")


def _distance(outcomes: Outcomes, budget: Tensor) -> Monitored:
    """The success rate where failed episodes end with a full budget; seen where even the interval's upper end is rare."""
    n, success = len(outcomes.success), int(outcomes.success.sum())
    failed = ~outcomes.success & budget.isfinite() & (budget > 0)
    full = outcomes.size[failed] >= FULL * budget[failed]
    interval = wilson(success, n)
    if interval is None or not bool(failed.any()):
        return Monitored(Sign.DISTANCE, None, RARE, False, "no episode failed within a budget")
    seen = interval.high < RARE and float(full.float().mean()) > 0.5
    text = "failures have room left, or are few"
    if seen:
        text = f"{success} of {n} samples were fooled, and {int(full.sum())} of {int(failed.sum())} failures ended with"
        text += " a full budget: other or more severe distortions may do what more steps will not"
    return Monitored(Sign.DISTANCE, success / n, RARE, seen, text)


__all__ = ["Monitored", "Sign", "breadth", "monitors"]
