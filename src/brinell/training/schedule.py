"""How budget and learning rate go over a training; each is a function of the share of the training that is over, 0 to 1."""

RISE = 0.2
"""The share of the training in which the learning rate rises."""


def ramped(share: float, ramp: float) -> float:
    """The factor of eps: from 0 to 1 over the first `ramp` of the training, then 1.

    A network that is not robust yet learns nothing from inputs that it cannot get right; so the budget rises.
    """
    return 1.0 if ramp <= 0 else min(1.0, share / ramp)


def rate_factor(share: float) -> float:
    """The factor of the largest learning rate: up linearly over `RISE`, then down to 0 (Smith & Topin 2018, 1cycle)."""
    return max(0.0, min(share / RISE, (1 - share) / (1 - RISE)))
