"""The margin that an episode raises: that of the criterion or, in a stuck episode, that of one class it aims at."""

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.criterion import Criterion, Probability, Targeted, beyond_rounding


def margin_of(criterion: Criterion, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """(n,): positive where the ledger sees a success, 0 where rounding alone makes the margin positive."""
    return beyond_rounding(criterion.margin(logits, y, x), logits)


def aimed(margin: Tensor, logits: Tensor, y: Tensor, aim: Tensor) -> Tensor:
    """(n,): the margins; while the true class leads, those of the class `aim` (n,) alone, where -1 aims at any class."""
    lead = beyond_rounding(losses.margin(logits, y), logits)
    of_class = losses.targeted_margin(logits, y, aim.clamp_min(0)).clamp_max(0)
    return torch.where((aim >= 0) & (lead <= 0), torch.minimum(margin, of_class), margin)


def any_class_counts(criterion: Criterion) -> bool:
    """Whether more than one class in the lead meets the criterion, so that an episode may choose which it aims at."""
    return not isinstance(criterion, Targeted) and not (isinstance(criterion, Probability) and criterion.wrong_class is not None)
