"""Criteria of success: the definition of an adversarial input, for ledger, agent, generator,
adaptive attacks and verification.

A criterion gives every answer of the model a margin, which is positive for adversarial inputs.
Whether an answer meets it is decided by the class that the model's answer names, compared exactly:
of equal logits the first leads, as by argmax.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast, runtime_checkable

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.errors import RequestError

TINY = 1e-30
"""Keeps the margin of an input that the model classifies correctly below 0, however flat its
answers are."""

Loss = Callable[..., Tensor]
"""(n, classes) logits, (n,) labels, then any per-sample tensors, to (n,) losses."""


@runtime_checkable
class Criterion(Protocol):
    """Decides which inputs are adversarial.

    Criteria are immutable; `select` restricts one to some rows of a batch.
    """

    name: str
    """misclassified, misclassified and not rejected, targeted, probability, top or undetected."""

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """Margin of each input, (n,): positive if the input is adversarial.

        It is differentiable in logits and inputs.

        Args:
            logits: (n, classes) answers of the model.
            y: (n,) int64 true classes.
            x: (n, *shape) the inputs of these answers.
        """

    def is_met(self, margin: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """True for each success, (n,) bool.

        Args:
            margin: (n,) margins of the criterion.
            logits: (n, classes) the answers.
            y: (n,) int64 true classes.
        """

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): a loss of `core.losses` turned so that raising it leads to adversarial inputs."""

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """The logits (n, classes) that attacks see: `y` leads if the input is not adversarial.

        Equally, another class leads if the input is adversarial.

        `margin` (n,) are the margins of these answers where an attack follows gradients. A
        criterion that shows attacks a single number then shows the margin as it is, and adds
        nothing for a search by scores.
        """

    def for_attack(self) -> "Criterion":
        """The criterion that attacks are given.

        On `logits_for_attack` it judges as this one does on the model's logits.
        """

    def classes_for_attack(self, classes: int) -> int:
        """Number of columns of `logits_for_attack`, of a model with `classes` classes."""

    def select(self, keep: slice | Tensor) -> "Criterion":
        """The criterion for some rows: a slice, or (n,) bool or int64."""

    def check(self, classes: int) -> None:
        """Refuse a criterion that inputs of a model with `classes` classes can never meet."""

    def describe(self) -> dict[str, Any]:
        """The description for a manifest, as JSON."""


class PlainCriterion:
    """Base of most criteria.

    Positive margins count, attacks see the model's own logits, and all rows are alike.
    """

    name: str

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The margins (n,), which each criterion defines for itself."""
        raise NotImplementedError

    def is_met(self, margin: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """True if the margin is positive."""
        return margin > 0

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """The model's own logits."""
        return logits

    def for_attack(self) -> Criterion:
        """The criterion itself."""
        return cast(Criterion, self)

    def classes_for_attack(self, classes: int) -> int:
        """The model's own number of classes."""
        return classes

    def select(self, keep: slice | Tensor) -> Self:
        """The criterion itself: it is the same for all rows."""
        return self

    def check(self, classes: int) -> None:
        """Accept any number of classes."""

    def describe(self) -> dict[str, Any]:
        """The name, for a manifest."""
        return {"name": self.name}


class TwoClasses(PlainCriterion):
    """Base of criteria for maps and boxes: attacks see two classes, 0 and the margin."""

    def for_attack(self) -> Criterion:
        """`MISCLASSIFIED`: of the two classes shown, 0 is the true one."""
        return MISCLASSIFIED

    def classes_for_attack(self, classes: int) -> int:
        """Two, whatever the model answers."""
        return 2


@dataclass(frozen=True)
class Misclassified(PlainCriterion):
    """Success of an untargeted attack: the predicted class is not the true one."""

    name = "misclassified"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The best other logit minus the true one."""
        return losses.margin(logits, y)

    def is_met(self, margin: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """True if the predicted class differs from the true one.

        Of equal logits the first leads, which the margin, then 0, does not tell.
        """
        return logits.argmax(1) != y

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The loss as it is."""
        return loss(logits, y)


@dataclass(frozen=True)
class NotRejected(PlainCriterion):
    """The predicted class is neither the true one nor the reject class: a rejected input does no
    harm.

    Attacks see logits in which the true class has the larger logit of the true and the reject
    class, and the reject class has the smallest logit, so that no attack aims at it. On these
    logits the criterion is that of `Misclassified`.
    """

    reject: int
    """The index of the reject class."""
    name = "misclassified and not rejected"

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """Logits in which the larger of the true and the reject logit stands for the true class."""
        index = y[:, None]
        true = torch.maximum(logits.gather(1, index), logits[:, self.reject, None])
        # The reject logit goes below all others, so that no attack aims at it.
        rest_of = torch.cat([logits[:, : self.reject], logits[:, self.reject + 1 :]], 1).detach()
        last = rest_of.amin(1, keepdim=True) - rest_of.abs().mean(1, keepdim=True) - TINY
        # The true class is written last: an input whose true class is the reject class is
        # adversarial in any other class.
        return logits.index_copy(1, index.new_tensor([self.reject]), last).scatter(1, index, true)

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The margin of `Misclassified` on the logits that attacks see."""
        return losses.margin(self.logits_for_attack(logits, y), y)

    def is_met(self, margin: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """True if the predicted class is neither the true one nor the reject class."""
        predicted = logits.argmax(1)
        return (predicted != y) & (predicted != self.reject)

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of the logits that attacks see."""
        return loss(self.logits_for_attack(logits, y), y)

    def check(self, classes: int) -> None:
        """Refuse a reject class that does not exist, or leaves fewer than two others."""
        if not 0 <= self.reject < classes or classes < 3:
            raise RequestError(
                f"the reject class is {self.reject}, and the model has classes 0 "
                f"to {classes - 1}: name one beside at least two"
            )

    def describe(self) -> dict[str, Any]:
        """The name and the reject class."""
        return {"name": self.name, "reject_class": self.reject}


@dataclass(frozen=True)
class Targeted(PlainCriterion):
    """Success of a targeted attack: the predicted class is the sample's target class."""

    classes: Tensor
    """(n,) int64 target classes, aligned with the batch."""
    name = "targeted"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The target logit minus the best other one."""
        return -losses.margin(logits, self.classes)

    def is_met(self, margin: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """True if the predicted class is the target class."""
        return logits.argmax(1) == self.classes

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of the target class, turned: raising it leads to the target class."""
        return -loss(logits, self.classes)

    def select(self, keep: slice | Tensor) -> "Targeted":
        """The criterion with the target classes of some rows."""
        return Targeted(self.classes[keep])

    def check(self, classes: int) -> None:
        """Refuse target classes that the model does not have."""
        if (
            len(self.classes)
            and not 0 <= int(self.classes.min()) <= int(self.classes.max()) < classes
        ):
            raise RequestError(
                f"a target class is {int(self.classes.max())}, and the model has "
                f"classes 0 to {classes - 1}"
            )


@dataclass(frozen=True, kw_only=True)
class Probability(PlainCriterion):
    """A probability crosses a threshold: the true class falls below it, or a given wrong class
    exceeds it.

    Margins are differences of log-odds. With `true_below`, the input must also be misclassified.
    """

    true_below: float | None = None
    """Probability below which the true class must fall."""
    wrong_class: int | None = None
    """The class of a false positive."""
    wrong_above: float | None = None
    """Probability that the wrong class must exceed."""
    name = "probability"

    def __post_init__(self) -> None:
        """Refuse thresholds beyond 0 and 1, and anything but one of the two forms."""
        for name, value in (("true_below", self.true_below), ("wrong_above", self.wrong_above)):
            if value is not None and not 0 < value < 1:
                raise RequestError(
                    f"{name} is {value}: a probability threshold must lie between 0 and 1"
                )

        if (self.wrong_class is None) != (self.wrong_above is None):
            raise RequestError(
                "a false positive needs both wrong_class and wrong_above: name "
                "the class and its probability"
            )

        # Either both are None or neither is: no criterion, or two that may contradict each other.
        if (self.wrong_class is None) == (self.true_below is None):
            raise RequestError(
                "give true_below, or wrong_class with wrong_above: one of the two is the criterion"
            )

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The distance of the log-odds to the threshold, positive beyond it."""
        if self.wrong_class is not None and self.wrong_above is not None:
            return log_odds(logits, torch.full_like(y, self.wrong_class)) - _logit(self.wrong_above)

        # Both must hold: misclassified, and below the threshold.
        assert self.true_below is not None
        return torch.minimum(
            losses.margin(logits, y), _logit(self.true_below) - log_odds(logits, y)
        )

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of the true class, or that of the wrong class turned."""
        return (
            loss(logits, y)
            if self.wrong_class is None
            else -loss(logits, torch.full_like(y, self.wrong_class))
        )

    def check(self, classes: int) -> None:
        """Refuse a wrong class that the model does not have."""
        if self.wrong_class is not None and not 0 <= self.wrong_class < classes:
            raise RequestError(
                f"wrong_class is {self.wrong_class}, and the model has classes 0 to {classes - 1}"
            )

    def describe(self) -> dict[str, Any]:
        """The name and the fields that the criterion is set by."""
        return {"name": self.name} | {
            name: getattr(self, name) for name in ("true_below", "wrong_class", "wrong_above")
        }


class WrittenCriterion(PlainCriterion):
    """Base of criteria that users write as a text.

    Attacks see logits on which they are the criterion of `Misclassified`: the lead of the largest
    wrong logit over that of the true class is the margin. So attacks that look at labels alone, or
    go for the nearest boundary, go for the criterion too.
    """

    text: str
    wrong_class: int | None = None

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """The model's logits, with the true one as far below the best other as the margin says."""
        index = y[:, None]
        top = logits.scatter(1, index, -torch.inf).amax(1)
        return logits.scatter(1, index, (top - self.margin(logits, y, logits))[:, None])

    def for_attack(self) -> Criterion:
        """`MISCLASSIFIED`, on the logits that attacks see."""
        return MISCLASSIFIED

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of the logits that attacks see."""
        return loss(self.logits_for_attack(logits, y), y)


@dataclass(frozen=True, kw_only=True)
class WrittenProbability(WrittenCriterion, Probability):
    """A criterion of probability as a user writes it, such as true<0.1."""

    text: str = ""

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """As for every written criterion; one of a wrong class leaves no other class to aim at."""
        if self.wrong_class is None:
            return super().logits_for_attack(logits, y)

        # The margin becomes the lead of the wrong class over the true one.
        wrong = logits[:, self.wrong_class]
        true = wrong - self.margin(logits, y, logits)

        # No attack aims at another wrong class, whose logits are the smallest.
        last = torch.minimum(wrong, true).detach() - logits.detach().abs().mean(1) - TINY
        index = y.new_tensor([self.wrong_class])
        others = last[:, None].expand_as(logits)
        with_wrong = others.index_copy(1, index, wrong[:, None])
        return with_wrong.scatter(1, y[:, None], true[:, None])

    def describe(self) -> dict[str, Any]:
        """The fields that it is set by, and its text."""
        return super().describe() | {"text": self.text}


@dataclass(frozen=True)
class TopK(WrittenCriterion):
    """The true class is not among the k classes with the largest logits."""

    k: int
    name = "top"

    @property
    def text(self) -> str:  # type: ignore[override]
        """The criterion as a user writes it."""
        return f"top{self.k}"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The k-th of the other logits minus the true one."""
        wrong = logits.scatter(1, y[:, None], -torch.inf).topk(self.k, 1).values[:, -1]
        return wrong - logits.gather(1, y[:, None])[:, 0]

    def check(self, classes: int) -> None:
        """Refuse a k that no answer of so many classes can exceed."""
        if not 0 < self.k < classes:
            raise RequestError(
                f"criterion {self.text} asks for the first {self.k} of {classes} "
                f"classes: write top1 to top{classes - 1}"
            )

    def describe(self) -> dict[str, Any]:
        """The name, k and the text."""
        return {"name": self.name, "k": self.k, "text": self.text}


@dataclass(frozen=True)
class Undetected(PlainCriterion):
    """Success of an adaptive attack: the input is misclassified and the detector raises no alarm.

    The margin is that of the violated constraint: the classifier's margin while its prediction is
    correct, then the detector's (Bryniarski, Hingun, Pachuca, Wang & Carlini 2022, Evading
    adversarial example detection defenses with orthogonal projected gradient descent, section 3.1).
    """

    suspicion: Callable[[Tensor], Tensor]
    """(n, *shape) inputs to (n,) scores, higher where an input looks changed; differentiable."""
    threshold: float
    """Scores above it are alarms."""
    name = "undetected"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The threshold minus the score if the input is misclassified, otherwise below 0; (n,)."""
        wrong = logits.detach().argmax(1) != y
        return torch.where(
            wrong, self.threshold - self.suspicion(x), losses.margin(logits, y) - TINY
        )

    def is_met(self, margin: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """True if the margin is at least 0: a score equal to the threshold raises no alarm."""
        return margin >= 0

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The classifier's loss as it is: the detector counts by the margin alone."""
        return loss(logits, y)

    def describe(self) -> dict[str, Any]:
        """The name and the threshold."""
        return {"name": self.name, "threshold": self.threshold}


@dataclass(frozen=True)
class Worst:
    """A criterion without successes.

    Attacks spend all their steps on raising the margin of the wrapped criterion.
    """

    of: Criterion
    name = "worst"

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The wrapped margin."""
        return self.of.margin(logits, y, x)

    def is_met(self, margin: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """False for every input."""
        return torch.zeros_like(margin, dtype=torch.bool)

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The wrapped loss."""
        return self.of.loss(loss, logits, y)

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """The wrapped logits."""
        return self.of.logits_for_attack(logits, y, margin)

    def for_attack(self) -> "Worst":
        """The criterion that attacks are given for the wrapped one, without successes as well."""
        return Worst(self.of.for_attack())

    def classes_for_attack(self, classes: int) -> int:
        """The wrapped number of classes."""
        return self.of.classes_for_attack(classes)

    def select(self, keep: slice | Tensor) -> "Worst":
        """The wrapped criterion for some rows."""
        return Worst(self.of.select(keep))

    def check(self, classes: int) -> None:
        """Refuse what the wrapped criterion refuses."""
        self.of.check(classes)

    def describe(self) -> dict[str, Any]:
        """The name, and the wrapped criterion."""
        return {"name": self.name, "of": self.of.describe()}


MISCLASSIFIED = Misclassified()
"""The default criterion."""


def _logit(p: float) -> Tensor:
    """The log-odds of a probability, a scalar."""
    return torch.logit(torch.tensor(p))


def log_odds(logits: Tensor, classes: Tensor) -> Tensor:
    """The log-odds log p - log(1 - p) of one class per sample, (n,); exact also for p
    near 0 or 1.
    """
    selected = logits.gather(1, classes[:, None])[:, 0]
    return selected - logits.scatter(1, classes[:, None], -torch.inf).logsumexp(1)
