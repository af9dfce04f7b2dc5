"""How an episode of RLAB goes: the margin that it raises, its length, its pace, what a step may clear, and its reward.

All rewards of a step are bounded and of one scale, so that no image, step or reward outweighs the others. Only a step that is
kept gains, since an undone one leaves the input as it was; and every query has a price, so that no agent learns to put off the
success that ends an episode.

- margin: by how much the margin rose, as a share of the clean input's margin; the kept steps of an episode that succeeds add up
  to 1.
- dilution: the published form (arXiv 2310.18626), the change of the true class's probability dilution 1 / log10 p over the change
  in L2. Above p = 0.9 the dilution is continued as a straight line, which keeps it finite, and the quotient is bounded. Such
  gains do not add up to anything, and many small ones would be worth more than a success: so the price of a query is the largest
  gain.
- projected: the loss of the input that was asked about, which is within the budget by projection, less that of the input before
  (Adversarial Agents, arXiv 2503.01734: the hard-projected maximum loss).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.criterion import Criterion, Probability, Targeted
from brinell.core.settings import at_least, one_of

RewardName = Literal["margin", "dilution", "projected"]
QUERY = 0.005
"""Cost of a query, as a share of the clean input's margin."""
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
"""The state before; x, logits and margin of the input that was asked about; labels; clean inputs; to (m,)."""


def _margin(before: Before, x: Tensor, logits: Tensor, margin: Tensor, y: Tensor, clean: Tensor) -> Tensor:
    """Reward: rise of the margin as a share of the start."""
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
    """Reward: rise of the dilution per length."""
    rise = dilution(logits, y) - dilution(before.logits, y)
    longer = norms.l2(x - clean) - norms.l2(before.x - clean)
    finite = torch.where(before.radius < torch.inf, before.radius, 1.0)
    quotient = rise / (longer.abs() / finite.clamp_min(1e-12)).clamp_min(FLOOR)
    return QUOTIENT * (torch.where(margin > before.margin, quotient, 0).clamp(0, 1) - 1)


def _projected(before: Before, x: Tensor, logits: Tensor, margin: Tensor, y: Tensor, clean: Tensor) -> Tensor:
    """Reward: rise of the cross-entropy if the margin rose."""
    rise = losses.cross_entropy(logits, y) - losses.cross_entropy(before.logits, y)
    return torch.where(margin > before.margin, rise / math.log(logits.shape[1]), 0).clamp(0, 1) - QUERY


REWARDS: dict[str, Reward] = {"margin": _margin, "dilution": _dilution, "projected": _projected}
"""By the names that settings use."""
assert tuple(REWARDS) == get_args(RewardName)

PACE = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of an episode after which half as many patches are changed at once: Square's schedule (Andriushchenko et al. 2020)."""

SHRINK = 0.95
"""From the distance of one success to the one within which the next is looked for."""
IDLE = 4
"""The part of the steps in which the refinement must come closer, or it ends."""
CLOSER = 1 / 64
"""The least share of the patches that a step changes after the first success."""


@cache
def _pace(device: torch.device) -> Tensor:
    """`PACE` on a device, which waits for every number that is brought there."""
    return torch.tensor(PACE, device=device)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How an episode goes."""

    steps: int = 1000
    """Queries after the first one until an episode is given up."""
    p_init: float = 0.5
    """Share of the patches that the first steps change."""
    removals: float = 0.5
    """How many patches a step may clear, as a share of those it changes; 0 only adds."""
    temperature: float = 0.3
    """How far chance moves the choice of a variant, in deviations of what is not known about it."""
    candidates: int = 4
    """Patches that are compared for each one that a step changes: those of the best predictions are changed."""
    offers: int = 32
    """Variants that are compared for a patch in one step."""
    patience: int = 50
    """Queries without a gain after which an episode is stuck (`rlab.restart`); 0 for never."""
    refine: int | None = 0
    """Queries after the first success that look for one at a smaller distance; None for the steps that are left, as long as a
    quarter of all steps brings one."""
    reward: RewardName = "margin"
    """Reward of a step: margin, dilution or projected ."""

    def __post_init__(self) -> None:
        at_least(self, steps=1, candidates=1, offers=1, refine=0, patience=0)
        if not 0 < self.p_init <= 1 or not 0 <= self.removals <= 1 or not self.temperature >= 0:
            raise ValueError("p_init must be above 0 and at most 1, removals from 0 to 1, temperature at least 0")
        one_of(self, reward=tuple(REWARDS))

    def remainder(self, age: Tensor) -> Tensor:
        """(n,): queries that may follow a success in the step after `age` (n,) ones, where no number is given."""
        return (self.steps - age - 1).clamp_max(self.steps // IDLE)

    def changes(self, age: Tensor, patches: int) -> Tensor:
        """(n,): how many patches a step changes at most, after `age` (n,) steps."""
        halvings = (age[:, None] > self.steps * _pace(age.device)).sum(1)
        return (self.p_init * patches * 0.5**halvings).round().long().clamp_min(1)


USUAL = Rules()
"""The rules where none are given."""


def aimed(margin: Tensor, logits: Tensor, y: Tensor, aim: Tensor) -> Tensor:
    """(n,): the margins; while the true class leads, those of the class `aim` (n,) alone, where -1 aims at any class."""
    lead = losses.margin(logits, y)
    of_class = losses.targeted_margin(logits, y, aim.clamp_min(0)).clamp_max(0)
    return torch.where((aim >= 0) & (lead <= 0), torch.minimum(margin, of_class), margin)


def any_class_counts(criterion: Criterion) -> bool:
    """True if more than one leading class meets the criterion, so an episode may choose its target class."""
    return not isinstance(criterion, Targeted) and not (isinstance(criterion, Probability) and criterion.wrong_class is not None)
