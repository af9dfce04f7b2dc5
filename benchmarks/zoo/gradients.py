"""Defences that leave the answers as they are and break a part of the gradient.

The counterpart is the network itself.

None of them is a paper's; all of them are mistakes that published code has made: arrays that leave
torch, tensors detached in one branch, and straight-through estimates that are not what they claim
(Athalye, Carlini & Wagner 2018, sections 4 and 5).
"""

import numpy as np
import torch
from torch import Tensor

from benchmarks.zoo.base import Base
from benchmarks.zoo.pair import Around, Bpda, Change, Pair, backward, defence, generator, noise_like


def _plain(base: Base, before: Change) -> Pair:
    return Pair(defended=Around(base.net, before), counterpart=base.net)


def _open_where(keep: Tensor) -> Change:
    """The identity with a gradient where `keep` (h, w) is true."""
    return lambda x: torch.where(keep, x, x.detach())


def _grid(base: Base) -> tuple[Tensor, Tensor]:
    height, width = base.x.shape[-2:]
    return torch.arange(height)[:, None].expand(height, width), torch.arange(width)[None].expand(
        height, width
    )


@defence("all-numpy", "no gradient")
def all_numpy(base: Base) -> Pair:
    """The whole input goes through numpy."""
    return _plain(base, lambda x: torch.from_numpy(np.array(x.detach().numpy())))


@defence("one-channel-numpy", "partial gradient")
def one_channel_numpy(base: Base) -> Pair:
    """The last colour channel (blue) goes through numpy: no gradient there."""
    return _plain(
        base,
        lambda x: torch.cat([x[:, :-1], torch.from_numpy(np.array(x[:, -1:].detach().numpy()))], 1),
    )


@defence("checkerboard", "partial gradient")
def checkerboard(base: Base) -> Pair:
    """A gradient on every second pixel only."""
    row, column = _grid(base)
    return _plain(base, _open_where((row + column) % 2 == 0))


@defence("blind-three-quarters", "partial gradient")
def blind_three_quarters(base: Base) -> Pair:
    """A gradient on one pixel of each square of four."""
    row, column = _grid(base)
    return _plain(base, _open_where((row % 2 == 0) & (column % 2 == 0)))


@defence("blind-region", "partial gradient")
def blind_region(base: Base) -> Pair:
    """No gradient in the middle quarter of the image."""
    row, column = _grid(base)
    height, width = base.x.shape[-2:]
    middle = (
        (row >= height // 4)
        & (row < height - height // 4)
        & (column >= width // 4)
        & (column < width - width // 4)
    )
    return _plain(base, _open_where(~middle))


@defence("blind-classes", "partial gradient")
def blind_classes(base: Base) -> Pair:
    """The logits of the even classes are detached."""

    def half(z: Tensor) -> Tensor:
        return torch.where(torch.arange(z.shape[1]) % 2 == 0, z.detach(), z)

    return Pair(defended=Around(base.net, after=half), counterpart=base.net)


@defence("opposite-channel", "wrong gradient")
def flipped_channel(base: Base) -> Pair:
    """The gradient of the last channel has the opposite sign."""
    sign = torch.ones(base.x.shape[1], 1, 1)
    sign[-1] = -1
    return _plain(base, backward(lambda grad: grad * sign))


@defence("lying-straight-through", "wrong gradient")
def lying_straight_through(base: Base) -> Pair:
    """The inputs pass as they are, and the gradient comes back moved by half the image, as of a
    layout that was mixed up.
    """
    height, width = base.x.shape[-2:]
    return _plain(base, backward(lambda grad: grad.roll((height // 2, width // 2), (-2, -1))))


@defence("gradient-noise", "wrong gradient")
def gradient_noise(base: Base) -> Pair:
    """To each gradient is added Gaussian noise of three times its norm."""
    rng = generator()

    def noisy(grad: Tensor) -> Tensor:
        scale = 3 * grad.flatten(1).norm(dim=1) / grad[0].numel() ** 0.5
        return grad + scale.view(-1, *[1] * (grad.dim() - 1)) * noise_like(grad, rng)

    return _plain(base, backward(noisy))


@defence("high-band-gradient", "partial gradient")
def high_band_gradient(base: Base) -> Pair:
    """Only the high spatial frequencies of the gradient come back (above a quarter of the sampling
    rate on either axis).
    """
    height, width = base.x.shape[-2:]
    high = (torch.fft.fftfreq(height).abs()[:, None] > 0.25) | (
        torch.fft.rfftfreq(width)[None] > 0.25
    )
    return _plain(
        base,
        backward(lambda grad: torch.fft.irfft2(torch.fft.rfft2(grad) * high, s=(height, width))),
    )


@defence("stale-gradient", "wrong gradient")
def stale_gradient(base: Base) -> Pair:
    """The gradient is that of a network whose weights were disturbed by half their deviation: a
    stale stand-in.
    """
    import copy

    stale, rng = copy.deepcopy(base.net), generator(7)
    for weight in stale.parameters():
        weight.data += 0.5 * weight.data.std() * noise_like(weight, rng) if weight.dim() > 1 else 0
    return Pair(defended=Bpda(base.net, stale), counterpart=base.net)
