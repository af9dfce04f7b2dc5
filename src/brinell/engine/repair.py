"""Repairs of a gradient that is missing or wrong: the same answers with another gradient.

Backward pass differentiable approximation (Athalye, Carlini & Wagner 2018, Obfuscated gradients
give a false sense of security, section 4.1): wherever a model rounds, detaches or decides, the
identity or a smooth function lends its gradient, and the answers stay the model's own
(`models._straight_through`). With a surrogate the gradient is that of another model (Papernot et al.
2017, Practical black-box attacks against machine learning).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from brinell.core.checks import DECIDING_SCORES, GOOD
from brinell.core.errors import ModelError
from brinell.core.ledger import Ledger
from brinell.core.memory import is_memory_short
from brinell.core.model import Access, Model
from brinell.core.norms import per_sample
from brinell.engine.context import CheckContext
from brinell.engine.gradient_check import GradientCheck
from brinell.models._answers import Converted
from brinell.models._straight_through import StraightThrough

Result = TypeVar("Result")

STRAIGHT = (
    ("the identity at every rounding", False, False),
    ("the identity at every rounding and detachment", True, False),
    ("the identity at every rounding and detachment, and smooth decisions", True, True),
)
"""Repairs: description, and the arguments attach and decide of `StraightThrough`."""
CLIMB_STEPS = 8
"""Number of gradient steps by which repairs are compared."""


class SubstituteGradient(Converted):
    """The answers of a model with another gradient: that of `differentiable`, from inputs (n,
    *shape) to the same answers.
    """

    def __init__(self, model: Model, differentiable: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model, step="", classes=model.classes)
        self.access = Access.GRADIENTS
        self._differentiable = differentiable

    def predict(self, x: Tensor) -> Tensor:
        """The model's answers."""
        return self._differentiable(x) if x.requires_grad else self.model.predict(x)


def with_straight_through(
    model: Model, *, attach: bool, decide: bool = False
) -> SubstituteGradient:
    """Replace a model's gradient by one straight through roundings; arguments as in
    `StraightThrough`.
    """

    def differentiable(x: Tensor) -> Tensor:
        with StraightThrough(attach=attach, decide=decide):
            return model.predict(x)

    return SubstituteGradient(model, differentiable)


def with_surrogate(model: Model, surrogate: Model) -> SubstituteGradient:
    """Replace a model's gradient by that of a surrogate of the same domain and number of classes."""

    def differentiable(x: Tensor) -> Tensor:
        with torch.no_grad():
            answers = model.predict(x.detach())
        surrogate_logits = surrogate.predict(x)
        # The value is that of the answers, and the gradient that of the surrogate.
        return answers + (surrogate_logits - surrogate_logits.detach())

    return SubstituteGradient(model, differentiable)


@dataclass(frozen=True)
class Repair:
    """A model with the same answers and a gradient that attacks can follow."""

    model: Model
    substitute: str
    """Description of the substitution, such as "the identity at every rounding"."""
    text: str
    disagreement: float
    """Disagreement of finite differences with the new gradient: 0 is perfect, 1 is chance."""

    @property
    def decides(self) -> bool:
        """True if it shows the scores that decide, and finite differences agree with their
        gradient.
        """
        return self.substitute == DECIDING_SCORES and self.disagreement <= GOOD


def attempt(work: Callable[[], Result]) -> Result | None:
    """Return the result of `work`, or None if the model fails in it.

    Out-of-memory errors are raised again, because `engine.batch_sizer` handles them by smaller
    batches.
    """
    try:
        return work()
    except (ModelError, RuntimeError) as error:
        if is_memory_short(error):
            raise
        return None


def repair_candidates(model: Model, x: Tensor) -> dict[str, Model]:
    """Straight-through gradients by description, each of which changes more calls on inputs x (n,
    *shape) than the one before.
    """
    candidates: dict[str, Model] = {}
    most_changed = 0
    leaf = x.detach().requires_grad_()

    for description, attach, decide in STRAIGHT:
        mode = StraightThrough(attach=attach, decide=decide)
        with torch.enable_grad(), mode:
            answers = attempt(lambda: model.predict(leaf))
        if answers is not None and mode.changed_calls > most_changed:
            most_changed = mode.changed_calls
            candidates[description] = with_straight_through(model, attach=attach, decide=decide)
    return candidates


def find_repair(context: CheckContext) -> Repair | None:
    """Find the best repair of a gradient that is missing or wrong; None if no repair raises the
    margin.

    Of several repairs, the one wins whose gradient raises the margin most in a few steps within the
    budget. Finite differences then measure whether it is the gradient of the answers. A gradient
    that passes straight through a rounding never is, even if it raises the margin.
    """
    # Two inputs show which operations a repair changes.
    repairs = repair_candidates(context.model, context.batch.x[:2])
    rises = {
        text: attempt(partial(_climb, context.ledger(candidate, context.eps, minimal=True)))
        for text, candidate in repairs.items()
    }
    best = max(repairs, key=lambda text: rises[text] or 0.0, default="")
    rise = rises.get(best) or 0.0
    if not rise > 0:
        return None

    disagreement = disagreement_of(context, repairs[best])
    message = (
        f"attacked with {best} (BPDA): {CLIMB_STEPS} steps raise the margin by "
        f"{rise:.3g} in the mean, and finite differences "
        f"disagree by {disagreement:.2f}"
    )
    return Repair(repairs[best], best, message, disagreement)


def _climb(ledger: Ledger) -> float:
    """The mean rise of the margin by a few steps of PGD within the budget."""
    oracle, batch, threat = ledger.oracle(), ledger.batch, ledger.threat
    x = batch.x
    first = oracle.loss(batch.ids, x)
    for _ in range(CLIMB_STEPS):
        grad = oracle.gradient(batch.ids, x).grad
        # As long as in Madry et al. 2018: all steps together reach 2.5 times the budget.
        step = threat.distance.ascent(grad) * per_sample(2.5 / CLIMB_STEPS * threat.eps, x)
        x = threat.project(x + step, batch.x)
    return float((oracle.loss(batch.ids, x) - first).mean())


def disagreement_of(context: CheckContext, model: Model) -> float:
    """Disagreement of finite differences with a model's gradient; infinity if the model fails, 1 if
    the gradient is zero.
    """
    # Differences lead out of the budget too, and are taken of samples that are fooled as well.
    oracle = context.ledger(model, minimal=True).oracle()

    def measure() -> float:
        grad = oracle.gradient(context.batch.ids, context.batch.x).grad
        if not bool((grad != 0).any()):
            return 1.0
        return GradientCheck(context, oracle, grad).full_check().disagreement

    disagreement = attempt(measure)
    return torch.inf if disagreement is None else disagreement
