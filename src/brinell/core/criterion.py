"""What counts as adversarial: one value, used by ledger, agent, generator, adaptive attacks and verification alike.

A criterion gives every answer of the model a margin, which is positive where the input is
adversarial. A margin that float32 rounding may account for is no success (`ROUNDING`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.errors import RequestError

ROUNDING = 1e-5
"""A margin below this share of the largest logit may be an accident of the kernel that computed it."""

TINY = 1e-30
"""Keeps the margin of an input that the model classifies correctly below 0, however flat its answers are."""

Loss = Callable[..., Tensor]
"""(n, classes) logits, (n,) labels, then any per-sample tensors, to (n,) losses."""


@runtime_checkable
class Criterion(Protocol):
    """Which inputs are adversarial. Values are frozen; `select` gives the rows of a part of a batch."""

    name: str
    """misclassified, misclassified and not rejected, targeted, probability or undetected."""

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): positive where the input is adversarial; differentiable in logits and inputs.

        Args:
            logits: (n, classes) answers of the model.
            y: (n,) int64 true classes.
            x: (n, *shape) the inputs that were answered.
        """

    def met(self, margin: Tensor, largest: Tensor) -> Tensor:
        """(n,) bool: which margins (n,) make a success; one that float32 rounding may account for does not.

        `largest` (n,) is the largest absolute logit of each answer.
        """

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): a loss of `core.losses` turned so that raising it leads to adversarial inputs."""

    def shown(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n, classes): the logits as attacks are shown them, in which y leads exactly where the input is not adversarial."""

    def select(self, keep: slice | Tensor) -> "Criterion":
        """The criterion of the chosen rows: a slice, (n,) bool or int64."""

    def check(self, classes: int) -> None:
        """Refuse a criterion that a model with so many classes can never meet.

        Raises:
            RequestError: it names a class that there is not.
        """

    def about(self) -> dict[str, Any]:
        """What a manifest says of it, as JSON."""


class PlainCriterion:
    """What most criteria have in common: they judge margins beyond rounding, on logits as they are, alike in all rows."""

    name: str

    def met(self, margin: Tensor, largest: Tensor) -> Tensor:
        """(n,) bool: margins beyond rounding."""
        return margin > ROUNDING * largest

    def shown(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n, classes): the logits as they are."""
        return logits

    def select(self, keep: slice | Tensor) -> Self:
        """The same for all rows."""
        return self

    def check(self, classes: int) -> None:
        """Every model can err."""

    def about(self) -> dict[str, Any]:
        """Its name."""
        return {"name": self.name}


@dataclass(frozen=True)
class Misclassified(PlainCriterion):
    """Any class but the true one leads: the untargeted attack."""

    name = "misclassified"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): the best other logit minus the true one."""
        return losses.margin(logits, y)

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): the loss of the true class, which rises."""
        return loss(logits, y)


@dataclass(frozen=True)
class NotRejected(PlainCriterion):
    """Neither the true class leads nor the one by which the model rejects an input: a rejected input does no harm.

    Attacks are shown logits in which the true class has the larger of its own logit and that of the reject class, and the reject
    class trails all others, so that none aims at it. With those the criterion is the usual one.
    """

    reject: int
    """The class by which the model rejects."""
    name = "misclassified and not rejected"

    def shown(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n, classes): the reject class taken together with the true one."""
        at = y[:, None]
        own = torch.maximum(logits.gather(1, at), logits[:, self.reject, None])
        others = torch.cat([logits[:, : self.reject], logits[:, self.reject + 1 :]], 1).detach()
        last = others.amin(1, keepdim=True) - others.abs().mean(1, keepdim=True) - TINY
        return logits.scatter(1, at, own).index_copy(1, at.new_tensor([self.reject]), last)

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): the best logit of the other classes minus the larger one of the true and the reject class."""
        return losses.margin(self.shown(logits, y), y)

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): the loss of the true class, where a rejection counts as that class; it rises."""
        return loss(self.shown(logits, y), y)

    def check(self, classes: int) -> None:
        """Refuse a reject class that the model does not have, or beside which it has no two others.

        Raises:
            RequestError: there is no such class, or nothing to tell apart without it.
        """
        if not 0 <= self.reject < classes or classes < 3:
            raise RequestError(
                f"the reject class is {self.reject}, and the model has classes 0 to {classes - 1}: name one beside at least two"
            )

    def about(self) -> dict[str, Any]:
        """Its name and the class."""
        return {"name": self.name, "reject_class": self.reject}


@dataclass(frozen=True)
class Targeted(PlainCriterion):
    """The target class leads: the targeted attack, with a target class for each sample."""

    classes: Tensor
    """(n,) int64 target classes, aligned with the batch."""
    name = "targeted"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): the logit of the target class minus the best other one."""
        return -losses.margin(logits, self.classes)

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): minus the loss of the target class, which rises as that class becomes likely."""
        return -loss(logits, self.classes)

    def select(self, keep: slice | Tensor) -> "Targeted":
        """The target classes of the chosen rows."""
        return Targeted(self.classes[keep])

    def check(self, classes: int) -> None:
        """Refuse a target class that the model does not know.

        Raises:
            RequestError: there is no such class.
        """
        if len(self.classes) and not 0 <= int(self.classes.min()) <= int(self.classes.max()) < classes:
            raise RequestError(f"a target class is {int(self.classes.max())}, and the model has classes 0 to {classes - 1}")


@dataclass(frozen=True, kw_only=True)
class Probability(PlainCriterion):
    """A probability passes a threshold: that of the true class falls below one, or that of a chosen wrong class exceeds one.

    Margins are differences of log-odds. Where the true class is to fall, it must also lose the lead.

    Raises:
        RequestError: a threshold outside (0, 1), a chosen class without one and the reverse, or two criteria in one.
    """

    true_below: float | None = None
    """Probability below which the true class is to fall."""
    wrong_class: int | None = None
    """Class that is to be seen where it is not: the false positive."""
    wrong_above: float | None = None
    """Probability that it is to exceed."""
    name = "probability"

    def __post_init__(self) -> None:
        for name, value in (("true_below", self.true_below), ("wrong_above", self.wrong_above)):
            if value is not None and not 0 < value < 1:
                raise RequestError(f"{name} is {value}: a probability threshold must lie between 0 and 1")
        if (self.wrong_class is None) != (self.wrong_above is None):
            raise RequestError("a false positive needs both wrong_class and wrong_above: name the class and its probability")
        if (self.wrong_class is None) == (self.true_below is None):
            raise RequestError("give true_below, or wrong_class with wrong_above: one of the two is the criterion")

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): how far the log-odds are beyond the threshold."""
        if self.wrong_class is not None and self.wrong_above is not None:
            return log_odds(logits, torch.full_like(y, self.wrong_class)) - _logit(self.wrong_above)
        assert self.true_below is not None
        return torch.minimum(losses.margin(logits, y), _logit(self.true_below) - log_odds(logits, y))

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): the loss of the true class, or minus that of the wrong class which is to be seen."""
        return loss(logits, y) if self.wrong_class is None else -loss(logits, torch.full_like(y, self.wrong_class))

    def check(self, classes: int) -> None:
        """Refuse a wrong class that the model does not know.

        Raises:
            RequestError: there is no such class.
        """
        if self.wrong_class is not None and not 0 <= self.wrong_class < classes:
            raise RequestError(f"wrong_class is {self.wrong_class}, and the model has classes 0 to {classes - 1}")

    def about(self) -> dict[str, Any]:
        """Its name and thresholds."""
        return {
            "name": self.name,
            "true_below": self.true_below,
            "wrong_class": self.wrong_class,
            "wrong_above": self.wrong_above,
        }


@dataclass(frozen=True)
class Undetected(PlainCriterion):
    """Misclassified, and the detector raises no alarm: what an attack that knows the detector has to reach.

    The margin is that of the constraint which is violated, the classifier's while it is right and
    the detector's once it errs (Bryniarski, Hingun, Pachuca, Wang & Carlini 2022, Evading
    adversarial example detection defenses with orthogonal projected gradient descent, section 3.1).
    """

    suspicion: Callable[[Tensor], Tensor]
    """(n, *shape) inputs to (n,) scores, higher where an input looks changed; differentiable."""
    threshold: float
    """Scores above it are alarms."""
    name = "undetected"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): the threshold minus the score where the model errs by more than rounding, elsewhere a number below 0."""
        lead, rounding = losses.margin(logits, y), ROUNDING * logits.detach().abs().amax(1)
        return torch.where(lead > rounding, self.threshold - self.suspicion(x), lead - 2 * rounding - TINY)

    def met(self, margin: Tensor, largest: Tensor) -> Tensor:
        """(n,) bool: a score of exactly the threshold raises no alarm."""
        return margin >= 0

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): the loss of the true class; an attack that knows the detector follows the margin."""
        return loss(logits, y)

    def about(self) -> dict[str, Any]:
        """Its name and threshold."""
        return {"name": self.name, "threshold": self.threshold}


@dataclass(frozen=True)
class Worst:
    """A criterion that counts nothing as found, so that an attack spends all its steps on raising the margin of another one."""

    of: Criterion
    name = "worst"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """That of the other criterion."""
        return self.of.margin(logits, y, x)

    def met(self, margin: Tensor, largest: Tensor) -> Tensor:
        """Never."""
        return torch.zeros_like(margin, dtype=torch.bool)

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """That of the other criterion."""
        return self.of.loss(loss, logits, y)

    def shown(self, logits: Tensor, y: Tensor) -> Tensor:
        """As the other criterion shows them."""
        return self.of.shown(logits, y)

    def select(self, keep: slice | Tensor) -> "Worst":
        """The chosen rows."""
        return Worst(self.of.select(keep))

    def check(self, classes: int) -> None:
        """As the other criterion."""
        self.of.check(classes)

    def about(self) -> dict[str, Any]:
        """Its name, and the other one's."""
        return {"name": self.name, "of": self.of.about()}


MISCLASSIFIED = Misclassified()
"""The usual criterion."""


def beyond_rounding(margin: Tensor, logits: Tensor) -> Tensor:
    """(n,) margins, 0 where they are positive by no more than float32 rounding of the logits may be."""
    return torch.where(margin > ROUNDING * logits.abs().amax(1), margin, margin.clamp_max(0))


def _logit(p: float) -> Tensor:
    return torch.logit(torch.tensor(p))


def log_odds(logits: Tensor, classes: Tensor) -> Tensor:
    """(n,): log p - log(1 - p) of one class each, exact where p is near 0 or 1."""
    chosen = logits.gather(1, classes[:, None])[:, 0]
    return chosen - logits.scatter(1, classes[:, None], -torch.inf).logsumexp(1)
