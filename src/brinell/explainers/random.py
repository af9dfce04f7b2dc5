"""A control: every place matters a random amount. What a method adds shows against this one.

No deviations; there is nothing to deviate from.
"""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.explainers._asking import places_of

__all__ = ["Random"]


@dataclass(frozen=True, kw_only=True)
class Random:
    """Random importance (a control)."""

    access = Access.LABELS
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), uniform in (0, 1). Asks nothing."""
        return rng.uniform(*places_of(domain))
