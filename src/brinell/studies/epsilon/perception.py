"""Perceptibility of a change of a picture: structural similarity and signal-to-noise ratio.

Wang, Bovik, Sheikh & Simoncelli 2004, Image quality assessment: from error visibility to structural similarity (Gaussian
window of 11 x 11 with sigma 1.5, K1 = 0.01, K2 = 0.03). Deviations: the window shrinks to the largest odd side that fits into a
small picture. The mean is over the textured windows within the picture, for each channel separately (see `ssim`).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core import norms
from brinell.core.domain import Domain
from brinell.core.streams import Streams

STEPS = 15
"""Steps of the bisection, to 1 part in 2**STEPS of the search range."""


def ssim(x: Tensor, y: Tensor, span: float = 1.0) -> Tensor:
    """Structural similarity (n,) of pictures `y` to clean pictures `x`, both (n, C, H, W); 1 for equal pictures.

    The mean is over the windows in which the standard deviation of the clean picture is at least 0.03 of the span. This is the
    square root of the constant C2 of the index. On a plain window, the index falls towards 0 for noise that nobody sees, and most
    windows of an MNIST picture are plain. Without a textured window, the mean is over all windows. Values range over `span`.
    """
    side = min(11, *(size - 1 + size % 2 for size in x.shape[2:]))
    offsets = torch.arange(side, dtype=x.dtype, device=x.device) - side // 2
    window = torch.exp(-offsets * offsets / (2 * 1.5**2))
    window /= window.sum()
    n, channels = x.shape[:2]

    def smooth(values: Tensor) -> Tensor:
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


def random_change(norm: str, x0: Tensor, rng: Streams) -> Tensor:
    """A random change of inputs, of size 1 in Linf (every value up or down) or in L2 (normal noise)."""
    if norm == "linf":
        return (rng.uniform(*x0.shape[1:]) - 0.5).sign()
    delta = rng.normal(*x0.shape[1:])
    return delta * norms.per_sample(1 / norms.l2(delta), x0)


def largest_unnoticed(norm: str, x0: Tensor, delta: Tensor, domain: Domain, *, least_ssim: float, least_psnr: float) -> Tensor:
    """Largest eps (n,) at which pictures `x0` (n, C, H, W) changed by eps times `delta` keep SSIM and PSNR (dB).

    `delta` has size 1 in the norm, linf or l2; changed pictures stay within the domain.
    """
    low, high = domain.bounds(x0)
    span, values = float((high - low).max()), x0[0].numel()
    # PSNR bounds the mean square and thus the search range; in Linf a single value may change most.
    top = span if norm == "linf" else min(2 * (values * 10 ** (-least_psnr / 10)) ** 0.5, values) * span
    below, above = torch.zeros(len(x0)), torch.full((len(x0),), top)
    for _ in range(STEPS):
        middle = (below + above) / 2
        x = domain.clamp(x0 + norms.per_sample(middle, x0) * delta)
        unnoticed = (ssim(x0, x, span) >= least_ssim) & (psnr(x0, x, span) >= least_psnr)
        below, above = torch.where(unnoticed, middle, below), torch.where(unnoticed, above, middle)
    return below
