"""FGSM: one step of full length along the gradient of the loss.

Goodfellow, Shlens & Szegedy 2015, Explaining and harnessing adversarial examples, section 4. In L2
the step goes along the normalised gradient (fast gradient method; Miyato et al. 2017). No
deviations.
"""

from dataclasses import dataclass
from typing import Literal

from brinell.attacks._shared import EveryKind, still_active
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.losses import LOSSES
from brinell.core.norms import per_sample


@dataclass(frozen=True, kw_only=True)
class FGSM(EveryKind):
    """Fast gradient sign method: one gradient, one look at the result."""

    loss: Literal["ce", "dlr", "margin"] = "ce"
    """Loss to raise: ce (cross-entropy, the paper's), dlr (difference of logits ratio) or
    margin."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2"})
    family = "budgeted"

    def cost(self, classes: int) -> tuple[int, int]:
        """The clean input with its gradient, and the result."""
        return 2, 1

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """A step from each clean input."""
        grad = oracle.gradient(batch.ids, batch.x, LOSSES[self.loss]).grad
        # A budget of one query is spent by now.
        batch, threat, grad = still_active(oracle, batch, threat, grad)
        if not len(batch):
            return
        step = threat.distance.ascent(grad).mul_(per_sample(threat.eps, grad))
        # Only to be judged: the oracle itself notes what fools the model.
        oracle.scores(batch.ids, threat.project(batch.x + step, batch.x))
