"""Quantised adversarial examples: inputs on the levels in which inputs are stored, within the
budget.

Rounding to the nearest level may move a value by half a level, and so out of a ball whose radius is
not a whole number of levels, such as 0.1 or 0.3 on 8-bit images. Such an input takes the nearest
level on the side of the clean input, for as few values as necessary. So every judged input is one
that the adversary could have stored and that the budget allows.
"""

import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.norms import per_sample
from brinell.core.threat import Distance, size


def quantise(x: Tensor, x0: Tensor, limit: Tensor, distance: Distance, domain: Domain) -> Tensor:
    """Round inputs (n, *shape) to the levels of the domain, within `limit` (n,) of the clean ones
    `x0` where possible.

    Clean inputs that lie on levels themselves, as stored ones do, satisfy every norm. Where the
    nearest levels exceed the limit of a sample, some of its values move one level towards the clean
    input: as few as necessary, those closest to the middle between two levels first. If that does
    not suffice, the sample stays on the nearest levels.
    """
    nearest = domain.round(x)
    if not domain.levels:
        return nearest
    too_far = size(distance, nearest, x0) > limit
    if not bool(too_far.any()):
        return nearest

    # One level inward, for each value that rounding moved away from the clean input.
    x = x[too_far]
    x0 = x0[too_far]
    rounded = nearest[too_far]
    limit = limit[too_far]
    low, high = domain.bounds(x)
    level = (high - low) / (domain.levels - 1)  # from one level to the next
    away = (rounded - x0).abs() > (x - x0).abs()
    inward = torch.where(away, domain.clamp(rounded - level * (rounded - x0).sign()), rounded)
    if distance.name == "linf":
        candidates = torch.where((rounded - x0).abs() > per_sample(limit, x), inward, rounded)
    else:
        candidates = _move_fewest_inward(x, x0, rounded, inward, away, limit, distance)

    fits = per_sample(size(distance, candidates, x0) <= limit, x).bool()
    nearest = nearest.clone()
    nearest[too_far] = torch.where(fits, candidates, rounded)
    return nearest


def _move_fewest_inward(
    x: Tensor,
    x0: Tensor,
    rounded: Tensor,
    inward: Tensor,
    away: Tensor,
    limit: Tensor,
    distance: Distance,
) -> Tensor:
    """`rounded` with the fewest values of `inward` that bring it within the limit, by bisection;
    with all if no number does.
    """
    # The place of each value in the order of what its move costs: values near the middle between
    # two levels come first, and those that do not move last.
    cost = torch.where(away, (inward - x).abs() - (rounded - x).abs(), torch.inf).flatten(1)
    rank = cost.argsort(stable=True, dim=1).argsort(dim=1).reshape(x.shape)

    # Numbers of moves between which the smallest that suffices lies.
    too_few = torch.zeros_like(limit).long()
    enough = away.flatten(1).sum(1)
    while bool((enough - too_few > 1).any()):
        middle = (too_few + enough) // 2
        moved = torch.where(rank < per_sample(middle, x), inward, rounded)
        fits = size(distance, moved, x0) <= limit
        too_few = torch.where(fits, too_few, middle)
        enough = torch.where(fits, middle, enough)
    return torch.where(rank < per_sample(enough, x), inward, rounded)
