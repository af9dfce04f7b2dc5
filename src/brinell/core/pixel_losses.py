"""Losses of single pixels that an attack on a map raises: (n, classes, h, w) logits and (n, h, w) classes to (n, h, w).

The losses of `core.losses` have the same form: any axes may follow that of the classes. The cross-entropy of a pixel that is
wrong already grows without end, so that a mean over all pixels spends its steps there. These losses leave such pixels out, weigh
them down, or are bounded (Croce, Singh & Hein 2023, Towards reliable evaluation and fast training of robust semantic segmentation
models, arXiv 2306.12941, section 2).
"""

import torch
from torch import Tensor

from brinell.core import losses


def masked_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of pixels that are right; 0 for the others."""
    return losses.cross_entropy(logits, y) * losses.correct(logits, y)


def balanced_cross_entropy(logits: Tensor, y: Tensor, share: float = 0.0) -> Tensor:
    """The cross-entropy, with weight 1 - share / 2 for pixels that are right and share / 2 for the others.

    `share` is the share of the steps that are done (Gu, Zhao, Tresp & Torr 2022, SegPGD, eq. 5).
    """
    right = losses.correct(logits, y)
    return losses.cross_entropy(logits, y) * torch.where(right, 1 - share / 2, share / 2)


def jensen_shannon(logits: Tensor, y: Tensor) -> Tensor:
    """The Jensen-Shannon divergence between the predicted distribution and the true class; at most log 2.

    With probability p of the true class it is (2 log 2 - (1 + p) log(1 + p) + p log p) / 2, since the other classes have
    probability 0 in the true distribution: each adds its probability times log 2.
    """
    p = logits.log_softmax(1).gather(1, y[:, None])[:, 0].exp()
    constant = 2 * torch.log(torch.tensor(2.0, device=p.device))
    return 0.5 * (constant - (1 + p) * torch.log1p(p) + torch.xlogy(p, p))


def masked_spherical(logits: Tensor, y: Tensor) -> Tensor:
    """Minus the true logit of pixels that are right, after the logits were scaled to length 1; 0 for the others."""
    length = torch.linalg.vector_norm(logits, dim=1).clamp_min(1e-12)
    true = logits.gather(1, y[:, None])[:, 0] / length
    return torch.where(losses.correct(logits, y), -true, torch.zeros_like(true))


def masked_margin(logits: Tensor, y: Tensor) -> Tensor:
    """The margin of pixels that are right, at most 0; 0 for the others."""
    return losses.margin(logits, y).clamp_max(0)


PIXEL_LOSSES = {
    "ce": losses.cross_entropy,
    "balanced-ce": balanced_cross_entropy,
    "masked-ce": masked_cross_entropy,
    "jensen-shannon": jensen_shannon,
    "masked-spherical": masked_spherical,
    "masked-margin": masked_margin,
}
"""The losses by the names that settings use."""
