"""When an episode has reached what it is for: a height that class probabilities rise to, 0, so that progress can be seen."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.criterion import ROUNDING
from brinell.core.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is to be reached; without thresholds, that any wrong class leads.

    Raises:
        RequestError: a threshold outside (0, 1), or a chosen class without one and the reverse.
    """

    true_below: float | None = None
    """Probability below which the true class is to fall; it must also lose the lead."""
    wrong_class: int | None = None
    """Class that is to be seen where it is not: the false positive."""
    wrong_above: float | None = None
    """Probability that it is to exceed."""

    def __post_init__(self) -> None:
        for name, value in (("true_below", self.true_below), ("wrong_above", self.wrong_above)):
            if value is not None and not 0 < value < 1:
                raise RequestError(f"{name} is {value}: a probability threshold must lie between 0 and 1")
        if (self.wrong_class is None) != (self.wrong_above is None):
            raise RequestError("a false positive needs both wrong_class and wrong_above: name the class and its probability")
        if self.wrong_class is not None and self.true_below is not None:
            raise RequestError("true_below and wrong_class are two goals: ask for one of them")

    def check(self, classes: int) -> None:
        """Refuse a class that the model does not know.

        Raises:
            RequestError: there is no such class.
        """
        if self.wrong_class is not None and not 0 <= self.wrong_class < classes:
            raise RequestError(f"wrong_class is {self.wrong_class}, and the model has classes 0 to {classes - 1}")

    def height(self, logits: Tensor, y: Tensor, aim: Tensor | None = None) -> Tensor:
        """(n,): above 0 where the goal is reached; in logits (differences of log-odds where a threshold is set).

        `aim` (n,) names the wrong class whose way to the lead is measured until any leads, -1 for the nearest.
        """
        if self.wrong_class is not None and self.wrong_above is not None:
            return _log_odds(logits, torch.full_like(y, self.wrong_class)) - _logit(self.wrong_above)
        lead = losses.margin(logits, y)
        # What rounding may account for is no success for the ledger, and must not end a search.
        lead = torch.where(lead > ROUNDING * logits.abs().amax(1), lead, lead.clamp_max(0))
        if aim is not None:
            aimed = losses.targeted_margin(logits, y, aim.clamp_min(0)).clamp_max(0)
            lead = torch.where((aim >= 0) & (lead <= 0), aimed, lead)
        if self.true_below is None:
            return lead
        return torch.minimum(lead, _logit(self.true_below) - _log_odds(logits, y))


MISTAKE = Goal()
"""That any wrong class leads."""


def _logit(p: float) -> Tensor:
    return torch.logit(torch.tensor(p))


def _log_odds(logits: Tensor, classes: Tensor) -> Tensor:
    """(n,): log p - log(1 - p) of one class each, exact where p is near 0 or 1."""
    chosen = logits.gather(1, classes[:, None])[:, 0]
    return chosen - logits.scatter(1, classes[:, None], -torch.inf).logsumexp(1)


__all__ = ["MISTAKE", "Goal"]
