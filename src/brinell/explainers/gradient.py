"""Gradient: how steeply the class's logit depends on each place.

Simonyan, Vedaldi & Zisserman 2014, Deep inside convolutional networks, section 3. Deviation:
absolute values are added over the channels, where the paper takes the largest, so that no channel
is lost.
"""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.explainers._asking import class_logit, over_channels


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """Absolute gradient of the class's logit."""

    access = Access.GRADIENTS
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), 0 or more. One forward and one backward."""
        return over_channels(oracle.gradient(batch.ids, batch.x, class_logit).grad.abs(), domain)
