"""Helpers of the published corruptions: their parameters, and operations on pictures.

Hendrycks & Dietterich 2019, Benchmarking neural network robustness to common corruptions and
perturbations, section 3 and appendix B. Parameters are those of CIFAR-10-C at 32 pixels a side and
of ImageNet-C at 224; a picture gets the set whose side is nearer to its own in the logarithm.
Between severities they are not equally strong, as those of `brinell.distortions` are.

Deviation of all: the answer is not rounded to 8 bits. A stored set is, as its manifest says.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Streams
from brinell.distortions._shared import Drawn

MIDDLE = math.sqrt(32 * 224)
"""Sides below it get the parameters for 32 pixels, others those for 224."""
GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in the brightness of a colour (ITU-R BT.601)."""


class Published(Drawn):
    """A corruption of pictures (n, 1 or 3, height, width) in [0, 1] with published parameters."""

    domains = frozenset({"image"})
    suite = "published"
    small: ClassVar[tuple[Any, Any, Any, Any, Any]]
    """Parameters at severities 1 to 5 for 32 pixels a side."""
    large: ClassVar[tuple[Any, Any, Any, Any, Any]]
    """The same for 224."""
    rising: ClassVar[bool] = True
    """True if the published parameters change a picture more at each higher severity."""

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, C, H, W) in [0, 1], each corrupted at its own severity (n,)."""
        levels = self.small if math.sqrt(x.shape[-1] * x.shape[-2]) < MIDDLE else self.large
        out = torch.empty_like(x)
        for level in torch.unique(severity).tolist():
            rows = severity == level
            out[rows] = self.distort(x[rows], levels[level - 1], rng.select(rows)).clamp(0, 1)
        return out

    @abstractmethod
    def distort(self, x: Tensor, parameters: Any, rng: Streams, /) -> Tensor:
        """`x` (n, C, H, W) corrupted with the parameters of one severity, not clipped yet."""


def smoothed(
    x: Tensor, deviation: float, *, truncate: float = 4.0, mode: str = "replicate"
) -> Tensor:
    """(n, C, H, W) convolved with a Gaussian cut off after `truncate` deviations.

    `mode` says what lies beyond the edge: replicate repeats the outermost pixel, symmetric mirrors
    with it.
    """
    radius = int(truncate * deviation + 0.5)
    if radius < 1:
        return x
    positions = torch.arange(-radius, radius + 1, device=x.device, dtype=x.dtype)
    weights = torch.exp(-0.5 * (positions / deviation) ** 2)
    weights = weights / weights.sum()

    # A Gaussian is a product: one axis after the other.
    flat = x.reshape(-1, 1, *x.shape[-2:])
    for axis in (2, 3):
        # By indices, since padding of torch does not know the symmetric edge.
        index = _beyond(flat.shape[axis], radius, mode, x.device)
        wide = flat.index_select(axis, index)
        kernel = weights.reshape(1, 1, -1, 1) if axis == 2 else weights.reshape(1, 1, 1, -1)
        flat = F.conv2d(wide, kernel)
    return flat.reshape(x.shape)


def _beyond(side: int, radius: int, mode: str, device: torch.device) -> Tensor:
    """(side + 2 * radius,): index of the value at each place of an axis padded on both sides."""
    positions = torch.arange(-radius, side + radius, device=device)
    if mode == "replicate":
        return positions.clamp(0, side - 1)
    # The sum of the numbers of two mirrored places; a symmetric edge repeats the last value. There
    # and back is a period: 2 * side places, or without the repeated ones 2 * (side - 1).
    last = 2 * side - 1 if mode == "symmetric" else max(2 * (side - 1), 1)
    positions = positions % (last + (mode == "symmetric"))
    return torch.where(positions < side, positions, last - positions)


def filtered(x: Tensor, kernel: Tensor) -> Tensor:
    """(n, C, H, W) correlated with one kernel (k, k), k odd.

    It is mirrored at the edge without repeating the outermost pixel.
    """
    radius = kernel.shape[0] // 2
    flat = x.reshape(-1, 1, *x.shape[-2:])
    for axis in (2, 3):
        flat = flat.index_select(axis, _beyond(flat.shape[axis], radius, "reflect", x.device))
    return F.conv2d(flat, kernel.to(x)[None, None]).reshape(x.shape)


def brightness_of(x: Tensor) -> Tensor:
    """(n, 1, H, W): the brightness of a colour picture; a grey one as it is."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    return (x * torch.tensor(GREY, device=x.device).reshape(1, 3, 1, 1)).sum(1, keepdim=True)


def in_colour(shade: Tensor, colour: tuple[float, float, float], channels: int) -> Tensor:
    """(n, channels, H, W): `shade` (n, 1, H, W) times `colour`.

    Without three channels it is times the brightness of `colour`.
    """
    tone = torch.tensor(colour, device=shade.device).reshape(1, 3, 1, 1)
    return shade * (tone if channels == 3 else brightness_of(tone))


def zoomed(x: Tensor, factor: float) -> Tensor:
    """(n, C, H, W) enlarged about its middle by a factor from 1 on, cut to its own size."""
    height, width = x.shape[-2:]
    # As the authors' code: only the middle that stays visible is enlarged.
    inner = [math.ceil(side / factor) for side in (height, width)]
    top = (height - inner[0]) // 2
    left = (width - inner[1]) // 2
    cut = x[..., top : top + inner[0], left : left + inner[1]]

    size = [
        max(round(side * factor), length)
        for side, length in zip(inner, (height, width), strict=True)
    ]
    large = F.interpolate(cut, size=size, mode="bilinear", align_corners=True)
    down = (size[0] - height) // 2
    right = (size[1] - width) // 2
    return large[..., down : down + height, right : right + width]


def dragged(x: Tensor, radius: int, deviation: float, angle: Tensor) -> Tensor:
    """Motion blur: (n, C, H, W) averaged along a line, weighted by half a Gaussian.

    The line has 2 * radius + 1 points, a pixel apart; angles (n,) are in radians, 0 to the right,
    growing downwards.
    """
    n, channels, height, width = x.shape

    # On pictures smaller than the line it ends at their side.
    steps = torch.arange(2 * radius + 1, device=x.device, dtype=x.dtype)
    weights = torch.exp(-0.5 * (steps / deviation) ** 2)
    in_frame = steps < min(height, width)
    weights = weights * in_frame / (weights * in_frame).sum()

    down = torch.ceil(steps * torch.sin(angle)[:, None] - 0.5).long()
    right = torch.ceil(steps * torch.cos(angle)[:, None] - 0.5).long()
    rows = torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device)

    flat = x.reshape(n, channels, -1)
    out = torch.zeros_like(x)
    for step in range(int(in_frame.sum())):
        if float(weights[step]) < 1e-7:
            # Further weights are nothing; the line adds the picture moved by each of its points.
            break
        at_row = (rows + down[:, step, None]).clamp(0, height - 1)
        at_column = (columns + right[:, step, None]).clamp(0, width - 1)
        place = (at_row[:, :, None] * width + at_column[:, None, :]).reshape(n, 1, -1)
        place = place.expand(-1, channels, -1)
        out += weights[step] * flat.gather(2, place).reshape(x.shape)
    return out
