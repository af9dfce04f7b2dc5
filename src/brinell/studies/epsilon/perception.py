"""Whether a person would notice a change of a picture: likeness, noise, and what becomes of the background.

Wang, Bovik, Sheikh & Simoncelli 2004, Image quality assessment: from error visibility to structural similarity (Gaussian
window of 11 x 11 with sigma 1.5, K1 = 0.01, K2 = 0.03). Deviations: the window shrinks to the largest odd side that fits into a
small picture, and the mean is over windows that lie within the picture and show something, channels apart (`ssim` says why).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core import norms
from brinell.core.domain import Domain
from brinell.core.streams import Streams

BACKGROUND = 0.25
"""A value that makes up this share of all the values of a data set is its background."""


def ssim(x: Tensor, y: Tensor, span: float = 1.0) -> Tensor:
    """(n,) structural similarity of pictures (n, C, H, W) whose values span `span` to clean ones `x`: 1 for equal ones.

    The mean is over the windows in which the clean picture shows something: where its standard deviation is 0.03 of the span or
    more, the square root of the constant that the index itself takes for no contrast. On a plain window the index falls towards
    0 for noise that nobody sees, and a picture of MNIST is plain for the most part. A picture without such a window counts whole.
    """
    side = min(11, *(size - 1 + size % 2 for size in x.shape[2:]))
    at = torch.arange(side, dtype=x.dtype, device=x.device) - side // 2
    window = torch.exp(-at * at / (2 * 1.5**2))
    window /= window.sum()
    n, channels = x.shape[:2]

    def smooth(values: Tensor) -> Tensor:
        flat = values.reshape(n * channels, 1, *values.shape[2:])
        return F.conv2d(F.conv2d(flat, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1))

    mx, my = smooth(x), smooth(y)
    xx, yy, xy = smooth(x * x) - mx * mx, smooth(y * y) - my * my, smooth(x * y) - mx * my
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    index = ((2 * mx * my + c1) * (2 * xy + c2) / ((mx * mx + my * my + c1) * (xx + yy + c2))).reshape(n, -1)
    shows = (xx >= c2).reshape(n, -1)
    shows = shows | ~shows.any(1, keepdim=True)
    return (index * shows).sum(1) / shows.sum(1)


def psnr(x: Tensor, y: Tensor, span: float = 1.0) -> Tensor:
    """(n,) peak signal-to-noise ratio in dB; infinite for equal pictures."""
    error = (x - y).flatten(1).square().mean(1)
    return 10 * torch.log10(span * span / error)


def background(x: Tensor) -> float | None:
    """The value of the background: the commonest value at the lower or upper end of (n, *shape), where it is common enough."""
    for value in (float(x.min()), float(x.max())):
        if float((x == value).float().mean()) >= BACKGROUND:
            return value
    return None


def background_changed(x0: Tensor, x: Tensor, value: float, step: float) -> Tensor:
    """(n,) share of the background values of `x0` that `x` moves by half a `step` or more; NaN without background.

    A rule that looks at the background alone finds such a change, however small it is.
    """
    ground = (x0 == value).flatten(1)
    moved = ((x - x0).abs() >= step / 2).flatten(1) & ground
    return moved.sum(1) / ground.sum(1)


def typical_change(norm: str, x0: Tensor, eps: Tensor, domain: Domain, rng: Streams) -> Tensor:
    """Inputs at eps (n,) from `x0`, changed as evenly at random as the norm's budget allows, and moved into the bounds.

    Linf: every value by eps, up or down. L2: normal noise of length eps. L1 and L0: as many random values as the budget lasts
    for go to the farther bound. One and the same draw for every eps, so that more budget is more change.
    """
    if norm == "linf":
        delta = (rng.uniform(*x0.shape[1:]) - 0.5).sign() * norms.per_sample(eps, x0)
    elif norm == "l2":
        delta = rng.normal(*x0.shape[1:])
        delta = delta * norms.per_sample(eps / norms.l2(delta), x0)
    else:
        delta = _sparse(norm, x0, eps, domain, rng)
    return domain.clamp(x0 + delta)


def _sparse(norm: str, x0: Tensor, eps: Tensor, domain: Domain, rng: Streams) -> Tensor:
    low, high = domain.bounds(x0)
    far = torch.where(x0 - low > high - x0, low - x0, high - x0).flatten(1)
    order = rng.uniform(far.shape[1]).argsort(1)
    move = far.gather(1, order)
    if norm == "l0":
        kept = (torch.arange(move.shape[1], device=x0.device) < eps[:, None]).float()
    else:
        spent = move.abs().cumsum(1) - move.abs()
        kept = ((eps[:, None] - spent) / move.abs().clamp_min(1e-12)).clamp(0, 1)
    return torch.zeros_like(far).scatter_(1, order, move * kept).reshape(x0.shape)


SIZES: dict[str, Callable[[Tensor], Tensor]] = {"linf": norms.linf, "l2": norms.l2, "l1": norms.l1, "l0": norms.l0}


def sizes(norm: str, delta: Tensor) -> Tensor:
    """(n,) how large changes (n, *shape) are in a norm."""
    return SIZES[norm](delta)


def resized(norm: str, delta: Tensor, eps: Tensor) -> Tensor:
    """Perturbations (n, *shape) of another size: all values times one factor, or in L0 the `eps` largest of them."""
    if norm != "l0":
        return delta * norms.per_sample(eps / sizes(norm, delta).clamp_min(1e-12), delta)
    rank = delta.flatten(1).abs().argsort(1, descending=True).argsort(1).reshape(delta.shape)
    return torch.where(rank < norms.per_sample(eps, delta), delta, torch.zeros_like(delta))


def unnoticed_up_to(
    norm: str,
    x0: Tensor,
    domain: Domain,
    change: Callable[[Tensor], Tensor],
    *,
    least_ssim: float,
    least_psnr: float,
    steps: int = 15,
) -> Tensor:
    """(n,) the largest eps whose change keeps both SSIM and PSNR; bisection, to 1 part in 2**steps of what could be.

    Args:
        norm: linf, l2, l1 or l0.
        x0: (n, C, H, W) pictures.
        domain: their bounds.
        change: the changed pictures for eps (n,).
        least_ssim: the smallest structural similarity that is still taken for unnoticed.
        least_psnr: the smallest ratio in dB.
        steps: of the bisection.
    """
    low, high = domain.bounds(x0)
    span = float((high - low).max())
    values = x0[0].numel()
    # PSNR bounds the mean square, and so the range to search: in Linf a change of one value alone may be the largest.
    mean_square = span * span * 10 ** (-least_psnr / 10)
    most = {"linf": span / 2, "l2": (mean_square * values) ** 0.5, "l1": mean_square * values / span * 2}
    top = {name: min(2 * value, span * values) for name, value in most.items()} | {"l0": 4 * mean_square * values / span**2}
    below, above = torch.zeros(len(x0)), torch.full((len(x0),), top[norm])
    for _ in range(steps):
        middle = (below + above) / 2
        x = change(middle)
        fine = (ssim(x0, x, span) >= least_ssim) & (psnr(x0, x, span) >= least_psnr)
        below, above = torch.where(fine, middle, below), torch.where(fine, above, middle)
    return below.floor() if norm == "l0" else below
