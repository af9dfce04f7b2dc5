"""Euclidean projections onto the balls of the norms, around zero; and changes of one place.

`eps` is (n,), one radius per sample.
"""

import torch
from torch import Tensor

from brinell.core.norms import l2, per_sample
from brinell.core.streams import Streams


def project_linf(delta: Tensor, eps: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Clip every value of `delta` to [-eps, eps]; `out` may be `delta` itself."""
    # Elsewhere a look at the budgets costs more than it saves.
    if eps.device.type == "cpu":
        least, most = torch.aminmax(eps)
        # One number for all is six times faster to clip to than one for each.
        if least == most:
            radius = float(most)
            return torch.clamp(delta, -radius, radius, out=out)
    limit = per_sample(eps, delta)
    return torch.clamp(delta, -limit, limit, out=out)


def project_l2(delta: Tensor, eps: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Scale `delta` back to length eps where it is longer; shorter ones stay as they are.

    `out` may be `delta` itself.
    """
    length = l2(delta)
    factor = torch.where(length > eps, eps / length.clamp_min(1e-30), 1.0)
    return torch.mul(delta, per_sample(factor, delta), out=out)


def steepest_value(grad: Tensor) -> Tensor:
    """A change of 1 in the value of each (n, *shape) with the steepest gradient."""
    flat = grad.flatten(1)
    steepest = flat.abs().argmax(1, keepdim=True)
    sign = flat.gather(1, steepest).sign()
    return torch.zeros_like(flat).scatter_(1, steepest, sign).reshape(grad.shape)


def by_place(x: Tensor) -> Tensor:
    """(n, C, places): the channels of each place; a vector has one channel."""
    return x[:, None] if x.ndim == 2 else x.flatten(2)


def steepest_place(grad: Tensor) -> Tensor:
    """A change of 1 in each channel of the place (n, *shape) with the steepest gradient."""
    slopes = by_place(grad)
    steepest = slopes.abs().sum(1).argmax(1)[:, None, None].expand(-1, slopes.shape[1], 1)
    sign = slopes.gather(2, steepest).sign()
    return torch.zeros_like(slopes).scatter_(2, steepest, sign).reshape(grad.shape)


def single_place(rng: Streams, shape: tuple[int, ...]) -> Tensor:
    """(n, *shape): one place, any of them, whose channels change by anything from -1 to 1."""
    change = by_place(torch.zeros(len(rng), *shape, device=rng.keys.device))
    channels, places = change.shape[1:]
    place = rng.fold("place").integers(places, 1)[:, None].expand(-1, channels, 1)
    change.scatter_(2, place, rng.uniform(channels, 1).mul_(2).sub_(1))
    return change.reshape(-1, *shape)


def project_l1(delta: Tensor, eps: Tensor) -> Tensor:
    """Soft-threshold `delta` to absolute sum eps.

    The threshold is the one at which what is left adds up to eps.

    What is left is convex, decreasing and piecewise linear in the threshold, so Newton's method
    from below never overshoots and ends exactly (Michelot 1986, A finite algorithm for finding the
    projection of a point onto the canonical simplex of R^n): a handful of passes, each a tenth of
    the sort by which Duchi et al. 2008 find the same threshold.
    """
    flat = delta.flatten(1)
    size = flat.abs()
    # Both lie below: the largest value alone leaves eps at most, and none loses more than the
    # threshold.
    threshold = torch.maximum(size.amax(1) - eps, (size.sum(1) - eps) / flat.shape[1]).clamp_min_(0)
    above = torch.empty_like(size)

    for _ in range(flat.shape[1]):
        count = torch.gt(size, threshold[:, None], out=above).sum(1)
        following = (above.mul_(size).sum(1) - eps) / count.clamp_min_(1)
        if not (following > threshold).any():
            break
        threshold = torch.maximum(threshold, following)

    shrunk = size.sub_(threshold[:, None]).clamp_min_(0)
    # The subtraction rounds at the size of the values, which may be far above eps: scale what it
    # left too long.
    shrunk *= (eps / shrunk.sum(1).clamp_min(1e-30)).clamp_max(1)[:, None]
    return shrunk.copysign_(flat).reshape(delta.shape)
