"""Perceptibility of a change of a picture: structural similarity, signal-to-noise ratio, and changes of the background.

Wang, Bovik, Sheikh & Simoncelli 2004, Image quality assessment: from error visibility to structural similarity (Gaussian
window of 11 x 11 with sigma 1.5, K1 = 0.01, K2 = 0.03). Deviations: the window shrinks to the largest odd side that fits into a
small picture. The mean is over the textured windows within the picture, for each channel separately (see `ssim`).
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
    """Structural similarity (n,) of pictures `y` to clean pictures `x`, both (n, C, H, W); 1 for equal pictures.

    The mean is over the windows in which the standard deviation of the clean picture is at least 0.03 of the span. This is the
    square root of the constant C2 of the index. On a plain window, the index falls towards 0 for noise that nobody sees, and most
    windows of an MNIST picture are plain. Without a textured window, the mean is over all windows.

    Args:
        x: clean pictures.
        y: changed pictures.
        span: width of the range of values.
    """
    side = min(11, *(size - 1 + size % 2 for size in x.shape[2:]))
    offsets = torch.arange(side, dtype=x.dtype, device=x.device) - side // 2
    window = torch.exp(-offsets * offsets / (2 * 1.5**2))
    window /= window.sum()
    n, channels = x.shape[:2]

    def smooth(values: Tensor) -> Tensor:
        """Means over Gaussian windows."""
        flat = values.reshape(n * channels, 1, *values.shape[2:])
        return F.conv2d(F.conv2d(flat, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1))

    mx, my = smooth(x), smooth(y)
    xx, yy, xy = smooth(x * x) - mx * mx, smooth(y * y) - my * my, smooth(x * y) - mx * my
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    index = ((2 * mx * my + c1) * (2 * xy + c2) / ((mx * mx + my * my + c1) * (xx + yy + c2))).reshape(n, -1)
    textured = (xx >= c2).reshape(n, -1)
    textured = textured | ~textured.any(1, keepdim=True)
    return (index * textured).sum(1) / textured.sum(1)


def psnr(x: Tensor, y: Tensor, span: float = 1.0) -> Tensor:
    """Peak signal-to-noise ratio (n,) in dB; infinite for equal pictures."""
    error = (x - y).flatten(1).square().mean(1)
    return 10 * torch.log10(span * span / error)


def find_background(x: Tensor) -> float | None:
    """Background value of inputs (n, *shape): the smallest or largest value if its share is at least `BACKGROUND`, else None."""
    for value in (float(x.min()), float(x.max())):
        if float((x == value).float().mean()) >= BACKGROUND:
            return value
    return None


def background_changed(x0: Tensor, x: Tensor, value: float, step: float) -> Tensor:
    """Share (n,) of the background values of `x0` that change by at least half a `step` in `x`; NaN without background.

    A rule that examines only the background detects such a change, however small it is.
    """
    ground = (x0 == value).flatten(1)
    changed = ((x - x0).abs() >= step / 2).flatten(1) & ground
    return changed.sum(1) / ground.sum(1)


def typical_change(norm: str, x0: Tensor, eps: Tensor, domain: Domain, rng: Streams) -> Tensor:
    """Change inputs `x0` at random within eps (n,) and the bounds.

    Linf: every value changes by eps, up or down. L2: normal noise of norm eps. L1 and L0: random values go to the farther bound
    until the budget is used up. The draw is the same for every eps, so a larger budget is a larger change.
    """
    if norm == "linf":
        delta = (rng.uniform(*x0.shape[1:]) - 0.5).sign() * norms.per_sample(eps, x0)
    elif norm == "l2":
        delta = rng.normal(*x0.shape[1:])
        delta = delta * norms.per_sample(eps / norms.l2(delta), x0)
    else:
        delta = _sparse_change(norm, x0, eps, domain, rng)
    return domain.clamp(x0 + delta)


def _sparse_change(norm: str, x0: Tensor, eps: Tensor, domain: Domain, rng: Streams) -> Tensor:
    """Perturbation in L1 or L0 that moves random values to their farther bound within eps (n,)."""
    low, high = domain.bounds(x0)
    farthest = torch.where(x0 - low > high - x0, low - x0, high - x0).flatten(1)
    order = rng.uniform(farthest.shape[1]).argsort(1)
    move = farthest.gather(1, order)
    if norm == "l0":
        fraction = (torch.arange(move.shape[1], device=x0.device) < eps[:, None]).float()
    else:
        cost = move.abs().cumsum(1) - move.abs()
        fraction = ((eps[:, None] - cost) / move.abs().clamp_min(1e-12)).clamp(0, 1)
    return torch.zeros_like(farthest).scatter_(1, order, move * fraction).reshape(x0.shape)


SIZES: dict[str, Callable[[Tensor], Tensor]] = {"linf": norms.linf, "l2": norms.l2, "l1": norms.l1, "l0": norms.l0}


def sizes(norm: str, delta: Tensor) -> Tensor:
    """Sizes (n,) of perturbations (n, *shape) in a norm."""
    return SIZES[norm](delta)


def rescale(norm: str, delta: Tensor, eps: Tensor) -> Tensor:
    """Scale perturbations (n, *shape) to size eps (n,); in L0, keep the `eps` largest values."""
    if norm != "l0":
        return delta * norms.per_sample(eps / sizes(norm, delta).clamp_min(1e-12), delta)
    rank = delta.flatten(1).abs().argsort(1, descending=True).argsort(1).reshape(delta.shape)
    return torch.where(rank < norms.per_sample(eps, delta), delta, torch.zeros_like(delta))


def largest_unnoticed(
    norm: str,
    x0: Tensor,
    domain: Domain,
    change: Callable[[Tensor], Tensor],
    *,
    least_ssim: float,
    least_psnr: float,
    steps: int = 15,
) -> Tensor:
    """Largest eps (n,) whose change keeps SSIM and PSNR, by bisection to 1 part in 2**steps of the search range.

    Args:
        norm: linf, l2, l1 or l0.
        x0: (n, C, H, W) pictures.
        domain: domain of the pictures.
        change: maps eps (n,) to the changed pictures.
        least_ssim: smallest structural similarity of an unnoticed change.
        least_psnr: smallest signal-to-noise ratio of an unnoticed change, in dB.
        steps: number of bisection steps.
    """
    low, high = domain.bounds(x0)
    span = float((high - low).max())
    values = x0[0].numel()
    # PSNR bounds the mean square and thus the search range; in Linf a single value may change most.
    mean_square = span * span * 10 ** (-least_psnr / 10)
    most = {"linf": span / 2, "l2": (mean_square * values) ** 0.5, "l1": mean_square * values / span * 2}
    top = {name: min(2 * value, span * values) for name, value in most.items()} | {"l0": 4 * mean_square * values / span**2}
    below, above = torch.zeros(len(x0)), torch.full((len(x0),), top[norm])
    for _ in range(steps):
        middle = (below + above) / 2
        x = change(middle)
        unnoticed = (ssim(x0, x, span) >= least_ssim) & (psnr(x0, x, span) >= least_psnr)
        below, above = torch.where(unnoticed, middle, below), torch.where(unnoticed, above, middle)
    return below.floor() if norm == "l0" else below
