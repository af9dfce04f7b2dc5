"""Consequences of an alarm: which of the waiting stages run, and whose gradients they follow.

A stage may wait for a condition (`when=`), and may follow another gradient than the model's own
(`gradient=`). The checks and the results of earlier stages decide both, so a resumed run decides
the same.
"""

from collections.abc import Collection
from typing import Literal

from brinell.core.checks import COARSE, DETACHED, GOOD, Code
from brinell.engine.repair import Repair

When = Literal["masked", "blind", "random", "suspected", "detached"]
"""masked: a check says that gradients mislead, or attacks that need them cannot run. blind: the
gradient is missing or wrong, and no repair was found that finite differences agree with. random:
the model answers the same input differently each time. suspected: an attack that does not climb
from the clean input broke a sample that those before it did not; a find on a share of the
samples by a stage that waited for this is reason to spend the full budget (masked). detached:
the scores do not tell how near the decision boundary is, so labels alone lead."""

Source = Literal["own", "repaired", "surrogate"]
"""The gradient that a stage follows. own: the model's. repaired: the model's, with the identity
in place of the operations that break it (BPDA). surrogate: that of the model given by
`--surrogate`."""

GRADIENT_FAILURES: frozenset[str] = frozenset(
    {Code.ZERO, Code.MISMATCH, Code.MISLEADING, Code.UNCONSTRAINED}
)
"""Failed checks that start the search for a repair of the gradient."""
REPAIRABLE: frozenset[str] = GRADIENT_FAILURES | DETACHED
"""Failed checks that a repair resolves if finite differences agree with its gradient."""
MASKING: frozenset[str] = REPAIRABLE | {
    Code.ANSWERS,
    Code.GRADIENTS_INSIDE,
    Code.SATURATED,
    Code.PLATEAU,
}
"""Failed checks that mean: gradients are masked, so an attack that stops early may stop too
early."""
OF_NOISE: frozenset[str] = frozenset({Code.MISMATCH, Code.MISLEADING})
"""Failed checks that random answers explain: finite differences of noise are noise, and means
over several answers lead."""


def conditions(
    failed: Collection[str], *, incomplete: bool, repaired: Repair | None, labels_only: bool = False
) -> set[str]:
    """The conditions of `When` that hold after the checks.

    `failed` holds the codes of failed checks; `incomplete` is true if some stages without a
    condition cannot run on the model; `labels_only` is true for a model without scores.
    """
    failures = frozenset(failed)
    # Random answers disturb finite differences, so what these find says nothing then.
    if Code.RANDOM in failures:
        failures -= OF_NOISE
    is_repaired = repaired is not None and repaired.disagreement <= GOOD
    decides = repaired is not None and repaired.decides
    # A repair that finite differences agree with leaves only what it does not resolve: shown scores
    # stay detached from the decision, unless the repair follows those that decide.
    masking = MASKING
    if is_repaired:
        masking = MASKING - REPAIRABLE | (frozenset() if decides else DETACHED)

    active = set[str]()
    if incomplete or failures & masking:
        active.add("masked")
    if failures & {Code.ZERO, Code.MISMATCH} and not is_repaired:
        active.add("blind")
    if Code.RANDOM in failures:
        active.add("random")
    if labels_only or (failures & (DETACHED | COARSE | {Code.PLATEAU}) and not decides):
        active.add("detached")
    return active
