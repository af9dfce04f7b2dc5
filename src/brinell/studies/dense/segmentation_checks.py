"""Checks of a model that answers maps, before it is attacked: its gradient, and what hides it.

A check that fails says that attacks by gradients may find less than there is, so that the figures are too good.
"""

import math
from typing import Any

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.model import Access
from brinell.core.segmentation import MapCriterion, PixelShare
from brinell.models._maps import MapModel

STEPS = (0.3, 0.1, 0.03, 0.01)
"""Lengths of the change by which a slope is measured (Euclidean, of the whole picture)."""
TOLERANCE = 0.1
"""Largest relative difference between the measured slope and the gradient, at the best of these lengths."""


def check_model(model: MapModel, x: Tensor, masks: Tensor) -> list[dict[str, Any]]:
    """Checks as the manifest has them.

    Args:
        model: the model, ready for calls.
        x: (1, 3, h, w) a picture.
        masks: (1, h, w) int64 its mask.
    """
    criterion = PixelShare(masks=masks, classes=model.output.classes)
    with torch.no_grad():
        maps = criterion.maps(model.predict(x))
    checks = [_labels_alone(maps)]
    return checks if model.access < Access.GRADIENTS else [*checks, _gradient(model, criterion, x)]


def _check(code: str, passed: bool, text: str) -> dict[str, Any]:
    return {"code": code, "passed": passed, "text": text}


def _labels_alone(maps: Tensor) -> dict[str, Any]:
    """Check that the model answers more than the class of each pixel."""
    ordered = maps.sort(1).values
    rest_is_level = bool((ordered[:, 0] == ordered[:, -2]).all()) if maps.shape[1] > 2 else False
    leads = torch.unique(ordered[:, -1] - ordered[:, -2])
    if (rest_is_level or maps.shape[1] == 2) and len(leads) == 1:
        text = (
            "the model answers the class of each pixel alone (argmax): neither gradients nor scores lead an attack; return logits"
        )
        return _check("argmax", False, text)
    return _check("argmax", True, "the model answers scores for each pixel")


def _gradient(model: MapModel, criterion: MapCriterion, x: Tensor) -> dict[str, Any]:
    """Check that the gradient of the mean margin of the pixels is its slope."""

    def value(inputs: Tensor) -> Tensor:
        """The mean margin of the pixels."""
        return criterion.mean_loss(losses.margin, criterion.maps(model.predict(inputs)))

    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        loss = value(leaf)
        grad = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)[0] if loss.requires_grad else None
    length = 0.0 if grad is None else float(grad.norm())
    if grad is None or length == 0 or not math.isfinite(length):
        return _check("gradient", False, "the gradient of the map is missing, zero or not finite: take attacks without gradients")
    direction = grad / length
    with torch.no_grad():
        slopes = [float((value(x + h * direction) - value(x - h * direction)).double()) / (2 * h) for h in STEPS]
    error = min(abs(slope - length) / length for slope in slopes)
    text = f"the slope of the map along its gradient differs from the gradient's length by {100 * error:.1g} %"
    if error > TOLERANCE:
        text += ": the gradient is that of another function, so add attacks without gradients, such as square"
    return _check("gradient", error <= TOLERANCE, text)
