"""Euclidean projections onto the balls of the norms, around zero. `eps` is (n,), one radius per sample."""

import torch
from torch import Tensor

from brinell.core.norms import l2, per_sample


def project_linf(delta: Tensor, eps: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Clip every value of `delta` to [-eps, eps]; `out` may be `delta` itself."""
    least, most = torch.aminmax(eps)
    if least == most:  # one number for all is six times faster to clip to than one for each
        radius = float(most)
        return torch.clamp(delta, -radius, radius, out=out)
    return torch.clamp(delta, -per_sample(eps, delta), per_sample(eps, delta), out=out)


def project_l2(delta: Tensor, eps: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Scale `delta` back to length eps where it is longer; shorter ones stay as they are. `out` may be `delta` itself."""
    length = l2(delta)
    return torch.mul(delta, per_sample(torch.where(length > eps, eps / length.clamp_min(1e-30), 1.0), delta), out=out)


def project_l1(delta: Tensor, eps: Tensor) -> Tensor:
    """Soft-threshold `delta` to absolute sum eps (Duchi et al. 2008, Efficient projections onto the l1-ball, Fig. 1)."""
    flat = delta.flatten(1)
    size = flat.abs()
    ordered = size.sort(dim=1, descending=True).values
    rank = torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=flat.dtype)
    candidate = (ordered.cumsum(1) - eps[:, None]) / rank
    last = (ordered > candidate).sum(1).clamp_min(1)
    threshold = candidate.gather(1, last[:, None] - 1).clamp_min(0)
    shrunk = flat.sign() * (size - threshold).clamp_min(0)
    # The subtraction rounds at the size of the values, which may be far above eps: scale what it left too long.
    shrunk *= (eps / shrunk.abs().sum(1).clamp_min(1e-30)).clamp_max(1)[:, None]
    inside = size.sum(1) <= eps
    return torch.where(inside[:, None], flat, shrunk).reshape(delta.shape)
