"""Integrated gradients: gradients on the way from a baseline to the input, times the way.

Sundararajan, Taly & Yan 2017, Axiomatic attribution for deep networks, section 3; the integral by
the midpoint rule. The values of an attribution add up to the difference of the class's logit
between input and baseline. Deviation: of what the channels of a place get the absolute value of the
sum counts, since a map says how much a place matters and not in which direction.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import Checked, Count
from brinell.explainers._asking import class_logit, hidden_fill, over_channels


@dataclass(frozen=True, kw_only=True)
class IntegratedGradients(Checked):
    """Gradients integrated from a baseline to the input."""

    steps: Count = 32
    """Points on the way."""
    fill: Literal["low", "blur"] = "low"
    """Baseline of the path: the lower bounds (black, for an image), or the blurred input."""

    access = Access.GRADIENTS
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places), 0 or more. `steps` forwards and backwards."""
        return over_channels(self.attributions(oracle, batch, domain), domain).abs()

    def attributions(self, oracle: Oracle, batch: Batch, domain: Domain) -> Tensor:
        """(n, *shape): what each value adds to the class's logit, signed."""
        if self.fill == "blur":
            start = hidden_fill(batch.x, domain)
        else:
            start = domain.bounds(batch.x)[0].expand_as(batch.x)
        difference = batch.x - start
        total = torch.zeros_like(batch.x)
        for step in range(self.steps):
            # The middle of each step, which integrates a straight line exactly.
            x = domain.clamp(start + (step + 0.5) / self.steps * difference)
            total += oracle.gradient(batch.ids, x, class_logit).grad
        return difference * total / self.steps
