"""Losses that an attack raises, one value per sample: (n, classes) logits and (n,) labels to (n,).

Larger is more wrong.
"""

import torch
from torch import Tensor

SPACINGS = 64
"""Spacings of float32 numbers within which two scores may change places when they are computed
again."""
MASKING = 256
"""A score that is so many times as large as those that decide masks a class, and says nothing of
their rounding."""
TINY = 1e-37
"""Smallest spread of logits by which a loss is divided, so that equal logits have loss 0 and
logits of any size have theirs."""


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Negative log-probability of the true class."""
    return torch.nn.functional.cross_entropy(logits, y, reduction="none")


def compared(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(n, ...) each: the two scores that decide, the true logit and the best other one."""
    index = y.unsqueeze(1)  # much faster than y[:, None]
    return logits.gather(1, index).squeeze(1), logits.scatter(1, index, -torch.inf).amax(1)


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """Best other logit minus the true logit: positive when fooled.

    It is f_6 of Carlini & Wagner 2017 with the sign turned.
    """
    true, rival = compared(logits, y)
    return rival - true


def scale(logits: Tensor, y: Tensor) -> Tensor:
    """(n, ...): the size of the terms that the deciding scores are sums of.

    That is the size of the largest score which masks no class.
    """
    true, rival = compared(logits, y)
    return torch.minimum(logits.abs().amax(1), MASKING * torch.maximum(true.abs(), rival.abs()))


def rounding(logits: Tensor, y: Tensor) -> Tensor:
    """(n, ...): by how much float32 may round a margin when a batch or machine is another."""
    return SPACINGS * torch.finfo(torch.float32).eps * scale(logits, y)


def predicted_classes(logits: Tensor) -> Tensor:
    """(n, ...) int64: the class of the largest logit; of equal ones the first, as by argmax.

    Along the second of several axes this is eight times as fast on a CPU as argmax, which reads
    class after class.
    """
    classes = logits.shape[1]
    # Ranks fall from class to class, so that the largest rank of the leaders is the first one's.
    dtype = torch.int16 if classes < 2**15 else torch.int32
    ranks = torch.arange(classes, 0, -1, dtype=dtype, device=logits.device).reshape(
        -1, *[1] * (logits.ndim - 2)
    )
    return classes - ((logits == logits.amax(1, keepdim=True)) * ranks).amax(1).long()


def correct(logits: Tensor, y: Tensor) -> Tensor:
    """True if the class of the largest logit is the true one, (n, ...) bool.

    Of equal logits the first counts, as by argmax.
    """
    logits = logits.detach()
    # The lead of the best other class, below 0 where the true one leads alone.
    lead = margin(logits, y)
    ties = lead == 0
    if not bool(ties.any()):
        return lead < 0
    return (lead < 0) | (ties & (predicted_classes(logits) == y))


def decision(logits: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) probabilities of the predicted classes, and (n,) int64 classes.
    The class is not taken from the probabilities. Rounding makes them equal if logits are close
    together, and so would hide the decision of a model whose logits are small.
    """
    classes = logits.argmax(1)
    return logits.softmax(1).gather(1, classes[:, None])[:, 0], classes


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """Difference of logits ratio: the margin over the spread of the top three logits.

    Croce & Hein 2020, Reliable evaluation, eq. 6.

    With three classes the third largest logit is the smallest. With two, where the ratio is
    constant up to its sign, the spread is left out, so the loss is the plain margin.
    """
    if logits.shape[1] < 3:
        return margin(logits, y)
    top = logits.topk(3, dim=1).values
    return margin(logits, y) / (top[:, 0] - top[:, 2]).clamp_min(TINY)


def targeted_margin(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """Logit of the `target` (n,) class minus the true one: positive when the target leads."""
    return (logits.gather(1, target[:, None]) - logits.gather(1, y[:, None]))[:, 0]


def targeted_dlr(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """Targeted difference of logits ratio (Croce & Hein 2020, Reliable evaluation, eq. 7).

    The targeted margin over the largest logit minus the mean of the third and fourth. With three
    classes the third stands for both; with two, the spread is left out.
    """
    lead = targeted_margin(logits, y, target)
    if logits.shape[1] < 3:
        return lead
    top = logits.topk(min(4, logits.shape[1]), dim=1).values
    return lead / (top[:, 0] - 0.5 * (top[:, 2] + top[:, -1])).clamp_min(TINY)


LOSSES = {"ce": cross_entropy, "dlr": dlr, "margin": margin}
"""The losses by the names that settings use."""

TARGETED = {"dlr": targeted_dlr, "margin": targeted_margin}
"""Their targeted forms, which take the target classes as a third argument."""
