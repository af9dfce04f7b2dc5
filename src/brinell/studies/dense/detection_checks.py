"""Checks of a detector before it is attacked: whether suppression or its gradient misleads an attack.

A check that fails says that attacks by gradients may find less than there is, so that the figures are too good.
"""

from typing import Any

import torch
from torch import Tensor

from brinell.core.boxes import HIT, LEAST, NEARBY, judge
from brinell.core.detection import BoxCriterion, BoxForm, Scene
from brinell.core.model import Access, Model

STEPS = (0.3, 0.1, 0.03, 0.01)
"""Lengths of the change by which a slope is measured (Euclidean, of the whole picture)."""
TOLERANCE = 0.1
"""Largest relative difference between the measured slope and the gradient, at the best of these lengths."""


def check_detector(model: Model, x: Tensor, scene: Scene, least_score: float) -> list[dict[str, Any]]:
    """Checks as the manifest has them.

    Args:
        model: the model, ready for calls.
        x: (1, 3, h, w) a picture.
        scene: its objects.
        least_score: score above which boxes are shown.
    """
    form = model.info.output
    assert isinstance(form, BoxForm)
    criterion = BoxCriterion(error="missed", scene=scene, form=form, least_score=least_score, threshold=1.0)
    with torch.no_grad():
        checks = [_suppression(criterion, model.predict(x))]
    return checks if model.access < Access.GRADIENTS else [*checks, _gradient(model, criterion, x)]


def _check(code: str, passed: bool, text: str) -> dict[str, Any]:
    return {"code": code, "passed": passed, "text": text}


def _suppression(criterion: BoxCriterion, answers: Tensor) -> dict[str, Any]:
    """How many boxes suppression hides: losses follow them too, an attack on the final boxes alone would not see them."""
    (objects,), candidates = criterion.scene.objects, criterion.form.unflatten(answers)
    close = int(((criterion.scene.overlaps(candidates[..., :4]) >= NEARBY).any(2) & (candidates[..., 4:].amax(2) > LEAST)).sum())
    (final,) = criterion.form.decode(answers, criterion.least_score)
    outcomes = judge(final, objects)
    hits = int((outcomes.boxes == HIT).sum())
    text = (
        f"in one picture {close} candidates lie near objects and {hits} boxes find one: suppression hides the others, and the "
        f"losses "
        "follow all of them"
    )
    return _check("suppression", True, text)


def _gradient(model: Model, criterion: BoxCriterion, x: Tensor) -> dict[str, Any]:
    """A check that the gradient of the loss of missed objects is its slope; of false boxes in a picture without objects."""
    if not criterion.scene.objects[0].count:
        criterion = BoxCriterion(error="false", scene=criterion.scene, form=criterion.form)
    y = torch.zeros(1, dtype=torch.int64, device=x.device)

    def value(inputs: Tensor) -> Tensor:
        """The loss."""
        return criterion.loss(torch.zeros_like, model.predict(inputs), y)

    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        loss = value(leaf)
        grad = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)[0] if loss.requires_grad else None
    length = 0.0 if grad is None else float(grad.norm())
    if grad is None or not 0 < length < float("inf"):
        text = "the gradient of the candidates is missing, zero or not finite: take attacks without gradients, such as square"
        return _check("gradient", False, text)
    direction = grad / length
    with torch.no_grad():
        slopes = [float((value(x + h * direction) - value(x - h * direction)).double()) / (2 * h) for h in STEPS]
    error = min(abs(slope - length) / length for slope in slopes)
    text = f"the slope of the candidates along their gradient differs from the gradient's length by {100 * error:.1g} %"
    if error > TOLERANCE:
        text += ": the gradient is that of another function, so add attacks without gradients, such as square"
    return _check("gradient", error <= TOLERANCE, text)
