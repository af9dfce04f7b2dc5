"""The rewards of a step. All are bounded and of one scale, so that no image, step or reward outweighs the others.

Only a step that is kept gains, since an undone one leaves the input as it was; and every query has a price, so that no
agent learns to put off the success that ends an episode.

- margin: by how much the margin rose, as a share of the clean input's margin; the kept steps of an episode that succeeds
  add up to 1.
- dilution: the published form (arXiv 2310.18626), the change of the true class's probability dilution 1 / log10 p over the
  change in L2. Above p = 0.9 the dilution is continued as a straight line, which keeps it finite, and the quotient is
  bounded. Such gains do not add up to anything, and many small ones would be worth more than a success: so the price of a
  query is the largest gain.
- projected: the loss of the input that was asked about, which is within the budget by projection, less that of the input
  before (Adversarial Agents, arXiv 2503.01734: the hard-projected maximum loss).
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from brinell.core import losses, norms

RewardName = Literal["margin", "dilution", "projected"]
QUERY = 0.005
"""What a query costs, as a share of the clean input's margin."""
QUOTIENT = 0.05
"""The largest gain in dilution over L2, and so the price of its queries: about what a good step earns by the others."""
LINE = 0.9
"""Probability above which the dilution is a straight line."""
FLOOR = 0.02
"""Least change in L2 that a dilution is divided by, as a share of the budget."""


class Before(NamedTuple):
    """The state that a step began from; all (m, ...)."""

    x: Tensor
    logits: Tensor
    margin: Tensor
    start: Tensor
    """Margin of the clean input."""
    radius: Tensor
    """The budget."""


Reward = Callable[[Before, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""The state before; x, logits and margin of the input that was asked about; labels; clean inputs;
to (m,)."""


def _margin(before: Before, x: Tensor, logits: Tensor, margin: Tensor, y: Tensor, clean: Tensor) -> Tensor:
    rise = torch.minimum(margin, torch.zeros_like(margin)) - before.margin
    return (rise / before.start.abs().clamp_min(1e-6)).clamp(0, 1) - QUERY


def dilution(logits: Tensor, y: Tensor) -> Tensor:
    """(n,): 1 / log10 p of the true class over its value at certainty; from -1 (p = 1) to 0 (p = 0)."""
    p = logits.softmax(1).gather(1, y[:, None])[:, 0].clamp(1e-12, 1)
    slope = -math.log(10) / (LINE * math.log(LINE) ** 2)
    at_line = 1 / math.log10(LINE)
    end = at_line + slope * (1 - LINE)
    curve = 1 / p.clamp_max(LINE).log10()
    return -torch.where(p > LINE, at_line + slope * (p - LINE), curve) / end


def _dilution(before: Before, x: Tensor, logits: Tensor, margin: Tensor, y: Tensor, clean: Tensor) -> Tensor:
    rise = dilution(logits, y) - dilution(before.logits, y)
    longer = norms.l2(x - clean) - norms.l2(before.x - clean)
    finite = torch.where(before.radius < torch.inf, before.radius, 1.0)
    quotient = rise / (longer.abs() / finite.clamp_min(1e-12)).clamp_min(FLOOR)
    return QUOTIENT * (torch.where(margin > before.margin, quotient, 0).clamp(0, 1) - 1)


def _projected(before: Before, x: Tensor, logits: Tensor, margin: Tensor, y: Tensor, clean: Tensor) -> Tensor:
    rise = losses.cross_entropy(logits, y) - losses.cross_entropy(before.logits, y)
    return torch.where(margin > before.margin, rise / math.log(logits.shape[1]), 0).clamp(0, 1) - QUERY


REWARDS: dict[str, Reward] = {"margin": _margin, "dilution": _dilution, "projected": _projected}
"""By the names that settings use."""
assert tuple(REWARDS) == get_args(RewardName)
