"""SmoothGrad: the gradient's absolute values, averaged over noisy copies of the input.

Smilkov, Thorat, Kim, Viegas & Wattenberg 2017, SmoothGrad: removing noise by adding noise, section
3.2. Deviation: noisy copies are moved into the bounds, since the model is asked about nothing
outside.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import Checked, Count, Positive
from brinell.explainers._asking import class_logit, over_channels


@dataclass(frozen=True, kw_only=True)
class SmoothGrad(Checked):
    """Absolute gradients averaged over noise (SmoothGrad)."""

    copies: Count = 25
    """Noisy copies."""
    noise: Positive = 0.15
    """Standard deviation of the noise, in shares of the width of the bounds."""

    access = Access.GRADIENTS
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), 0 or more. `copies` forwards and backwards."""
        low, high = domain.bounds(batch.x)
        total = torch.zeros_like(batch.x)
        for copy in range(self.copies):
            noise = rng.fold(copy).normal(*batch.x.shape[1:])
            x = domain.clamp(batch.x + self.noise * (high - low) * noise)
            total += oracle.gradient(batch.ids, x, class_logit).grad.abs()
        return over_channels(total / self.copies, domain)
