"""Signs that a model does not answer as a classifier should, looked for before and after the attacks."""

import torch
from torch import Tensor

from brinell.core.errors import TargetError
from brinell.core.target import Target


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
