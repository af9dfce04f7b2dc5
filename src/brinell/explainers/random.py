"""A control: every place has a random importance. Compare other methods with it.

No deviations, since no paper describes it.
"""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.explainers._asking import places_of


@dataclass(frozen=True, kw_only=True)
class Random:
    """Random importance (a control)."""

    access = Access.LABELS
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), uniform in (0, 1). Asks nothing."""
        return rng.uniform(*places_of(domain))
