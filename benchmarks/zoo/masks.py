"""Defences that leave the answers as they are and take the gradient from a part of the input: some
values, channels, frequencies or samples.

The gradient that is left is right, and small steps along it do what it promises. The counterpart is
the network itself, but for those that change the input, whose counterpart goes straight through.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import Base
from benchmarks.zoo.inputs import levels, median_path
from benchmarks.zoo.inside import Activated
from benchmarks.zoo.pair import Around, Change, Pair, around, backward, defence, generator

FAINT = 0.01
"""Share of a gradient that is left where it is faint."""


def _masked(base: Base, mask: Tensor) -> Pair:
    """A gradient where `mask`, of a shape that broadcasts to an input, is 1."""
    return Pair(
        defended=Around(base.net, lambda x: x * mask + (x * (1 - mask)).detach()),
        counterpart=base.net,
    )


def _places(base: Base) -> tuple[Tensor, Tensor]:
    """Row and column of each pixel."""
    height, width = base.x.shape[-2:]
    row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return row, column


@defence("masked-checkerboard", "partial gradient")
def masked_checkerboard(base: Base) -> Pair:
    """A gradient on every second pixel, by a product with a mask and a detached rest."""
    row, column = _places(base)
    return _masked(base, ((row + column) % 2 == 0).float())


@defence("masked-stripes", "partial gradient")
def masked_stripes(base: Base) -> Pair:
    """A gradient on every second row."""
    return _masked(base, (_places(base)[0] % 2 == 0).float())


@defence("masked-blocks", "partial gradient")
def masked_blocks(base: Base) -> Pair:
    """A gradient on every second block of two by two pixels, as on a coarse checkerboard."""
    row, column = _places(base)
    return _masked(base, ((row // 2 + column // 2) % 2 == 0).float())


@defence("masked-at-random", "partial gradient")
def masked_at_random(base: Base) -> Pair:
    """A gradient on half of the values, drawn once."""
    return _masked(base, (torch.rand(base.x.shape[1:], generator=generator(11)) < 0.5).float())


@defence("masked-faintly", "partial gradient")
def masked_faintly(base: Base) -> Pair:
    """A hundredth of the gradient on every second pixel, so that it is nowhere zero."""
    row, column = _places(base)
    scale = torch.where((row + column) % 2 == 0, 1.0, FAINT)
    return Pair(
        defended=Around(base.net, backward(lambda grad: grad * scale)), counterpart=base.net
    )


@defence("masked-low-band", "partial gradient")
def masked_low_band(base: Base) -> Pair:
    """The means of four by four pixels are detached, so that only what differs within has one."""

    def split(x: Tensor) -> Tensor:
        low = F.interpolate(F.avg_pool2d(x, 4), x.shape[2:], mode="nearest")
        return low.detach() + (x - low)

    return Pair(defended=Around(base.net, split), counterpart=base.net)


@defence("masked-high-band", "partial gradient")
def masked_high_band(base: Base) -> Pair:
    """Only the means of two by two pixels have a gradient, and what differs within has none."""

    def split(x: Tensor) -> Tensor:
        low = F.interpolate(F.avg_pool2d(x, 2), x.shape[2:], mode="nearest")
        return low + (x - low).detach()

    return Pair(defended=Around(base.net, split), counterpart=base.net)


@defence("masked-bright-samples", "partial gradient")
def masked_bright_samples(base: Base) -> Pair:
    """Inputs brighter than the median have no gradient, and darker ones have all of it."""
    middle = base.x.flatten(1).mean(1).median()

    def split(x: Tensor) -> Tensor:
        bright = (x.flatten(1).mean(1) > middle).view(-1, *[1] * (x.dim() - 1))
        return torch.where(bright, x.detach(), x)

    return Pair(defended=Around(base.net, split), counterpart=base.net)


class SurelyDetached(nn.Module):
    """A network without a gradient where its first class leads by more than usual."""

    def __init__(self, net: nn.Module, usual: Tensor) -> None:
        super().__init__()
        self.net, self.usual = net, usual

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        z = self.net(x)
        two = z.topk(2).values
        sure = (two[:, 0] - two[:, 1] > self.usual)[:, None]
        return torch.where(sure, z.detach(), z)


@defence("masked-sure-samples", "partial gradient")
def masked_sure_samples(base: Base) -> Pair:
    """Inputs of which the network is surer than of half of the data have no gradient."""
    with torch.no_grad():
        two = base.net(base.x).topk(2).values
    usual = (two[:, 0] - two[:, 1]).median()
    return Pair(defended=SurelyDetached(base.net, usual), counterpart=base.net)


@defence("masked-features", "partial gradient")
def masked_features(base: Base) -> Pair:
    """Every second feature behind each ReLU is detached."""

    def half(x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.dim() - 2))
        kept = (torch.arange(x.shape[1]) % 2 == 0).view(shape)
        return torch.where(kept, x.relu(), x.relu().detach())

    return Pair(defended=Activated(base.net, half), counterpart=base.net)


def mixed(change: Change) -> Change:
    """Half of the input, and half of what a change makes of it, whose gradient is not there."""
    return lambda x: 0.5 * x + 0.5 * change(x).detach()


@defence("median-mix", "wrong gradient")
def median_mix(base: Base) -> Pair:
    """Half of the input and half of its median over 3 by 3, with the gradient of the identity.

    The counterpart has the median's own gradient.
    """

    def passed(x: Tensor) -> Tensor:
        return x + (mixed(median_path)(x) - x).detach()

    true = Around(base.net, lambda x: 0.5 * x + 0.5 * median_path(x))
    return Pair(
        defended=Around(base.net, passed),
        counterpart=true,
        surrogates=(Around(base.net, mixed(median_path)),),
    )


@defence("rounding-mix", "partial gradient")
def rounding_mix(base: Base) -> Pair:
    """Half of the input and half of its rounding to eight levels, of which the first half alone has
    a gradient.
    """
    return around(base, mixed(levels(8)))
