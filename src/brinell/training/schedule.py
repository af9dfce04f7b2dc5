"""How budget and learning rate go over a training; each is a function of the share of the training that is over, 0 to 1."""

RISE = 0.2
"""The share of the training in which the learning rate rises."""
START = 0.04
"""The factor at which it begins."""


def ramped(share: float, ramp: float, since: float = 0.0, first: float = 0.0) -> float:
    """The factor of eps: it rises to 1 over a part of the training, and stays.

    A network that is not robust yet learns nothing from inputs that it cannot get right; so the budget rises.

    Args:
        share: how much of the training is over.
        ramp: the part of what is left at `since` over which it rises.
        since: where the rise began; above 0 where the training went back to an earlier state.
        first: the factor there.
    """
    part = 1.0 if ramp <= 0 else min(1.0, (share - since) / (ramp * (1 - since)))
    return first + (1 - first) * part


def rate_factor(share: float) -> float:
    """The factor of the largest learning rate: up linearly from `START` over `RISE`, then down to 0 (Smith & Topin 2018)."""
    return max(0.0, min(START + (1 - START) * share / RISE, (1 - share) / (1 - RISE)))
