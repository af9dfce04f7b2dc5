"""Defences that change the input before a network whose weights stay as they are."""

import io
import math

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import Base
from benchmarks.zoo.pair import Around, Bpda, Change, Pair, around, defence, generator, noise_like


def levels(n: int) -> Change:
    """Each value moves to the nearest of n levels from 0 to 1."""
    return lambda x: torch.round(x * (n - 1)) / (n - 1)


@defence("quantised", "no gradient")
def quantised(base: Base) -> Pair:
    """Inputs are rounded to eight levels (Guo et al. 2018, section 4); the counterpart rounds
    straight through.
    """
    return around(base, levels(8))


@defence("bit-depth", "no gradient")
def bit_depth(base: Base) -> Pair:
    """Inputs keep four of their eight bits (Xu, Evans & Qi 2018, section 2); the counterpart
    reduces them straight through.
    """
    return around(base, lambda x: torch.floor(x.clamp(0, 1) * 15 + 0.5) / 15)


@defence("soft-steps", "wrong gradient")
def soft_steps(base: Base) -> Pair:
    """Inputs climb smooth stairs, so that the gradient almost vanishes in places; the counterpart
    passes through.
    """
    return around(base, lambda x: x - torch.sin(16 * math.pi * x) / (16 * math.pi))


@defence("wiggly-inputs", "wrong gradient")
def wiggly_inputs(base: Base) -> Pair:
    """A fast sine of 0.01 is added to every input value: its slope drowns the gradient; the
    counterpart passes through.
    """
    return around(base, lambda x: x + 0.01 * torch.sin(2000 * x))


def pictures(x: Tensor) -> list[Image.Image]:
    """(n, 1 or 3, h, w) in [0, 1] as 8-bit pictures."""
    arrays = (x.detach().clamp(0, 1) * 255).round().to(torch.uint8).movedim(1, -1).numpy()
    return [Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array) for array in arrays]


def of_pictures(decoded: list[Image.Image], x: Tensor) -> Tensor:
    """Pictures as a tensor of the shape of x."""
    arrays = np.stack([np.asarray(picture, dtype=np.float32) for picture in decoded]) / 255
    return torch.from_numpy(arrays.reshape(len(x), *x.shape[2:], -1)).movedim(-1, 1).contiguous()


def jpeg(quality: int) -> Change:
    """Through Pillow's JPEG and back: no gradient."""

    def through(x: Tensor) -> Tensor:
        decoded = []
        for picture in pictures(x):
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=quality)
            decoded.append(Image.open(file))
        return of_pictures(decoded, x)

    return through


def median(x: Tensor) -> Tensor:
    """Pillow's median over 3 by 3 pixels: no gradient."""
    return of_pictures([picture.filter(ImageFilter.MedianFilter(3)) for picture in pictures(x)], x)


def median_path(x: Tensor) -> Tensor:
    """The same median by torch, with the gradient of the pixel that it takes."""
    windows = F.pad(x, (1, 1, 1, 1), mode="replicate").unfold(2, 3, 1).unfold(3, 3, 1)
    return windows.flatten(-2).median(-1).values


@defence("jpeg", "no gradient")
def jpeg_75(base: Base) -> Pair:
    """JPEG of quality 75 by Pillow (Dziugaite, Ghahramani & Roy 2016; Guo et al. 2018); the
    counterpart goes straight through.
    """
    return around(base, jpeg(75))


class Mean(nn.Module):
    """The mean of the logits of several models."""

    def __init__(self, *members: nn.Module) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        return torch.stack([member(x) for member in self.members]).mean(0)


@defence("jpeg-half", "partial gradient")
def jpeg_half(base: Base) -> Pair:
    """The mean of the network and of its copy behind detached JPEG; in the counterpart JPEG goes
    straight through.
    """
    pair = around(base, jpeg(75))
    return Pair(
        defended=Mean(base.net, pair.defended), counterpart=Mean(base.net, pair.counterpart)
    )


@defence("median", "no gradient")
def median_filter(base: Base) -> Pair:
    """A median filter of 3 by 3 by Pillow (Xu, Evans & Qi 2018, section 2); the counterpart has the
    median's own gradient.
    """
    pair = around(base, median, median_path)
    return Pair(
        defended=pair.defended,
        counterpart=pair.counterpart,
        surrogates=(around(base, median).counterpart,),
    )


def total_variation(x: Tensor) -> Tensor:
    """Ten steps down the squared distance from x plus a smoothed total variation."""
    z = x
    for _ in range(10):
        fall = z - x
        for axis in (-2, -1):
            step = z.diff(dim=axis)
            slope = step / (step.square() + 1e-3).sqrt()
            first, last = [0, 0, 0, 0], [0, 0, 0, 0]
            first[2 * (-1 - axis)], last[2 * (-1 - axis) + 1] = 1, 1
            fall = fall + 0.06 * (F.pad(slope, first) - F.pad(slope, last))
        z = z - 0.25 * fall
    return z


def unseen(change: Change) -> Change:
    """The change, behind no_grad."""

    def changed(x: Tensor) -> Tensor:
        with torch.no_grad():
            return change(x)

    return changed


@defence("total-variation", "no gradient")
def variation(base: Base) -> Pair:
    """Total variation is minimised behind no_grad (Guo et al. 2018, section 4); the counterpart
    differentiates each step.

    Deviation: gradient steps on the whole image in place of an exact solution on randomly kept
    pixels.
    """
    return Pair(
        defended=Around(base.net, unseen(total_variation)),
        counterpart=Around(base.net, total_variation),
    )


def shrunk(x: Tensor) -> Tensor:
    """Small coefficients of a Haar wavelet are pulled to zero."""
    kernel = 0.5 * torch.tensor(
        [[[1.0, 1], [1, 1]], [[1, -1], [1, -1]], [[1, 1], [-1, -1]], [[1, -1], [-1, 1]]]
    )
    kernel = kernel[:, None].repeat(x.shape[1], 1, 1, 1)
    parts = F.conv2d(x, kernel, stride=2, groups=x.shape[1]).unflatten(1, (x.shape[1], 4))
    parts = torch.cat([parts[:, :, :1], F.softshrink(parts[:, :, 1:], 0.03)], 2).flatten(1, 2)
    return F.conv_transpose2d(parts, kernel, stride=2, groups=x.shape[1])


@defence("denoiser", "no gradient")
def denoiser(base: Base) -> Pair:
    """Wavelet shrinkage behind no_grad (soft thresholds as in Prakash et al. 2018); the counterpart
    does without no_grad.
    """
    return Pair(defended=Around(base.net, unseen(shrunk)), counterpart=Around(base.net, shrunk))


@defence("anti-adversary", "wrong gradient")
def anti_adversary(base: Base) -> Pair:
    """Two signed gradient steps inside make the input look more like the predicted class (Alfarra
    et al. 2022).

    The class stays what it was, so that the counterpart takes the network's own gradient.
    """

    def purified(x: Tensor) -> Tensor:
        with torch.enable_grad():
            z = x.detach()
            label = base.net(z).argmax(1)
            for _ in range(2):
                z = z.detach().requires_grad_()
                loss = F.cross_entropy(base.net(z), label, reduction="sum")
                z = z - 0.15 * torch.autograd.grad(loss, z)[0].sign()
        return x + (z.detach() - x.detach())

    defended = Around(base.net, purified)
    return Pair(defended=defended, counterpart=Bpda(defended, base.net), surrogates=(base.net,))


@defence("one-step-inside", "no gradient")
def one_step_inside(base: Base) -> Pair:
    """One gradient step inside lowers the entropy of the answer, detached; the counterpart passes
    straight through.

    A small case of purification by optimisation at test time (Samangouei, Kabkab & Chellappa 2018;
    Croce et al. 2022, section 4).
    """

    def purified(x: Tensor) -> Tensor:
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            entropy = torch.distributions.Categorical(logits=base.net(z)).entropy().sum()
            step = torch.autograd.grad(entropy, z)[0].sign()
        return (z - 8 / 255 * step).clamp(0, 1).detach()

    pair = around(base, purified)
    return Pair(defended=pair.defended, counterpart=pair.counterpart, surrogates=(base.net,))


@defence("resize-pad", "random")
def resize_pad(base: Base) -> Pair:
    """Random resizing to 7/8 or more, and random padding (Xie et al. 2018); draws are averaged in
    the counterpart.
    """

    def randomise(seed: int) -> Change:
        rng = generator(seed)

        def resize_and_pad(x: Tensor) -> Tensor:
            size = x.shape[-1]
            side = int(torch.randint(size - size // 8, size + 1, (), generator=rng))
            x_offset, y_offset = (
                int(torch.randint(0, size - side + 1, (), generator=rng)) for _ in range(2)
            )
            small = F.interpolate(x, (side, side), mode="bilinear", align_corners=False)
            return F.pad(
                small, (x_offset, size - side - x_offset, y_offset, size - side - y_offset)
            )

        return resize_and_pad

    return Pair(
        defended=Around(base.net, randomise(0)), counterpart=Around(base.net, randomise(1)), draws=4
    )


@defence("input-noise", "random")
def input_noise(base: Base) -> Pair:
    """Gaussian noise of 0.06 on every input (Liu et al. 2018, at the input alone); the counterpart
    is averaged over draws.
    """

    def noisy(seed: int) -> Change:
        rng = generator(seed)
        return lambda x: x + 0.06 * noise_like(x, rng)

    return Pair(
        defended=Around(base.net, noisy(0)), counterpart=Around(base.net, noisy(1)), draws=4
    )
