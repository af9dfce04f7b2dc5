"""Adversarial inputs on the levels in which inputs are stored, inside the budget.

Rounding to the nearest level may move a value by half a level, and so out of a ball whose radius is no whole number of levels:
0.1 and 0.3 on 8-bit images are not. There the nearest level on the side of the clean input is taken, for as few values as it
takes, so that what is judged is an input that the adversary could have stored and is allowed.
"""

import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.norms import per_sample
from brinell.core.threat import Distance, size

OFF = 1e-3
"""Levels by which float32 may have a value off its level."""


def quantise(x: Tensor, x0: Tensor, limit: Tensor, distance: Distance, domain: Domain) -> Tensor:
    """Inputs on the levels of the domain, within `limit` of the clean ones wherever that is possible.

    Args:
        x: (n, *shape) inputs within `limit` of the clean ones.
        x0: (n, *shape) clean inputs; where they lie on levels themselves, as stored ones do, it is possible for every norm.
        limit: (n,) the largest distance allowed, with what float32 rounding may add.
        distance: what it is measured in.
        domain: where the inputs live; without levels, nothing is rounded.

    Returns:
        (n, *shape): the nearest levels, but of inputs that these would take beyond their limit as many values as it takes are
        on the level before, towards the clean input: those first that lie nearest to the middle of two levels. Where that does
        not suffice, the nearest levels.
    """
    near = domain.round(x)
    far = size(distance, near, x0) > limit if domain.levels else torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if not bool(far.any()):
        return near
    x, x0, rounded, limit = x[far], x0[far], near[far], limit[far]
    low, high = domain.bounds(x)
    level = (high - low) / ((domain.levels or 2) - 1)
    away = (rounded - x0).abs() > (x - x0).abs() + OFF * level
    back = torch.where(away, domain.clamp(rounded - level * (rounded - x0).sign()), rounded)
    if distance.name == "linf":
        inside = torch.where((rounded - x0).abs() > per_sample(limit, x), back, rounded)
    else:
        inside = _few(x, x0, rounded, back, away, limit, distance)
    fits = per_sample(size(distance, inside, x0) <= limit, x).bool()
    near = near.clone()
    near[far] = torch.where(fits, inside, rounded)
    return near


def _few(x: Tensor, x0: Tensor, rounded: Tensor, back: Tensor, away: Tensor, limit: Tensor, distance: Distance) -> Tensor:
    """`rounded` with so many values of `back` as bring it within the limit, by bisection; all of them where that is too few."""
    cost = torch.where(away, (back - x).abs() - (rounded - x).abs(), torch.inf).flatten(1)
    rank = cost.argsort(stable=True, dim=1).argsort(dim=1).reshape(x.shape)
    few, many = torch.zeros_like(limit).long(), away.flatten(1).sum(1)
    while bool((many - few > 1).any()):
        middle = (few + many) // 2
        fits = size(distance, torch.where(rank < per_sample(middle, x), back, rounded), x0) <= limit
        few, many = torch.where(fits, few, middle), torch.where(fits, middle, many)
    return torch.where(rank < per_sample(many, x), back, rounded)
