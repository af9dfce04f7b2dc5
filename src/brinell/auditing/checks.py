"""Signs that a model does not answer as a classifier should, looked for before and after the attacks."""

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.errors import TargetError
from brinell.core.target import Access, Target, ask


def check_answers(logits: Tensor, target: Target) -> None:
    """Refuse answers that cannot be judged.

    Raises:
        TargetError: not (n, classes), NaN or infinity, or probabilities in place of logits.
    """
    if logits.ndim != 2 or logits.shape[1] != target.classes:
        raise TargetError(f"model {target.name} answered {tuple(logits.shape)}, not (n, {target.classes})")
    if not torch.isfinite(logits).all():
        raise TargetError(
            f"model {target.name} answered NaN or infinity on clean inputs: look for overflow or a division by zero in it"
        )
    sums = logits.sum(1)
    if len(logits) > 1 and bool((logits >= 0).all()) and bool(((sums - 1).abs() < 1e-4).all()):
        raise TargetError(
            f"model {target.name} answers probabilities (each row sums to 1), and attacks need logits: return what goes into "
            "the softmax, or its logarithm"
        )


MASKING = frozenset({"random-answers", "zero-gradients"})
"""Codes of signs that gradients mislead."""
SAMPLES = 64
"""How many samples the signs are looked for on."""


def signs(target: Target, x: Tensor, y: Tensor) -> dict[str, str]:
    """Signs, on clean inputs, that gradient attacks will say too much good of a model.

    Croce & Hein 2020, Reliable evaluation, section 7 and the checks of its code; Carlini et al. 2019, On evaluating adversarial
    robustness, section 3.

    Args:
        target: the model.
        x: (n, *shape) inputs that the model classifies correctly.
        y: (n,) their labels.

    Returns:
        Code to what was seen; empty where nothing was.
    """
    found: dict[str, str] = {}
    with torch.no_grad():
        first, second = ask(target, x), ask(target, x)
    scale = first.abs().amax().clamp_min(1e-12)
    if bool(((first - second).abs().amax() > 1e-3 * scale).item()):
        changed = int((first.argmax(1) != second.argmax(1)).sum())
        found["random-answers"] = (
            f"the model answers differently to the same input ({changed} of {len(x)} classes changed on a second look): a find "
            "may be luck and a failure too; make it deterministic, or average its answers"
        )
    if target.access == Access.GRADIENTS:
        flat = _without_gradient(target, x, y)
        if flat > len(x) // 20:
            found["zero-gradients"] = (
                f"{flat} of {len(x)} clean inputs have no gradient at all: gradient attacks are blind there, and what they fail "
                "to break is not shown to be robust; add an attack that asks for scores only, such as square"
            )
    return found


def _without_gradient(target: Target, x: Tensor, y: Tensor) -> int:
    """How many inputs have a zero gradient both of the cross-entropy and of the margin."""
    steep = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for loss in (losses.cross_entropy, losses.margin):
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            value = loss(ask(target, leaf), y).sum()
        if value.requires_grad:
            (grad,) = torch.autograd.grad(value, leaf, allow_unused=True)
            if grad is not None:
                steep |= grad.flatten(1).abs().amax(1) > 0
    return int((~steep).sum())
