"""Wide residual networks for CIFAR-10 as robust training uses them, with the parameter names of their published checkpoints.

The plain one follows Gowal et al. 2020 (arXiv 2010.03593) with SiLU, as Wang et al. 2023 (arXiv 2302.04638) and Cui et al. 2023
(arXiv 2305.13948) trained it; the other one, with squeeze and excitation and its own widths and depths, is RaWideResNet of Peng
et al. 2023 (arXiv 2308.16258). Both take images in [0, 1] and normalise them inside.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)
"""Of CIFAR-10."""


class SqueezeExcitation(nn.Module):
    """Channels scaled by a gate that sees their means (Hu et al. 2018)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to the same shape."""
        gate: Tensor = self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True))))
        return x * gate.sigmoid()


class Block(nn.Module):
    """Two convolutions, normalised and activated beforehand, beside a shortcut."""

    def __init__(self, width_in: int, width: int, stride: int, squeeze: float) -> None:
        super().__init__()
        self.batchnorm_0 = nn.BatchNorm2d(width_in)
        self.conv_0 = nn.Conv2d(width_in, width, 3, stride, bias=False)
        self.batchnorm_1 = nn.BatchNorm2d(width)
        self.conv_1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(width_in, width, 1, stride, bias=False) if width_in != width else None
        self.se = SqueezeExcitation(width, round(squeeze * width)) if squeeze else None
        # TensorFlow's "same": an even input with stride 2 is padded on the right and below alone.
        self.padding = (1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, width, h / stride, w / stride)."""
        active = F.silu(self.batchnorm_0(x))
        out = self.conv_0(F.pad(active, self.padding))
        out = self.conv_1(F.silu(self.batchnorm_1(out)))
        out = out if self.se is None else self.se(out)
        kept = x if self.shortcut is None else self.shortcut(active)
        return torch.add(kept, out)


class Group(nn.Module):
    """Blocks of one width, the first of which may halve the picture."""

    def __init__(self, blocks: int, width_in: int, width: int, stride: int, squeeze: float) -> None:
        super().__init__()
        first = Block(width_in, width, stride, squeeze)
        self.block = nn.Sequential(first, *(Block(width, width, 1, squeeze) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, width, h / stride, w / stride)."""
        out: Tensor = self.block(x)
        return out


class WideResNet(nn.Module):
    """Three groups of blocks over pictures of 32 x 32.

    Args:
        first: channels of the first convolution.
        blocks: in each of the three groups.
        widths: channels of each group.
        squeeze: width of the gate of squeeze and excitation as a share of a block's; 0 for none.
        classes: number of logits.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, first: int, blocks: Sequence[int], widths: Sequence[int], *, squeeze: float = 0.0, classes: int = 10
    ) -> None:
        super().__init__()
        # On the CPU even where the weights are not yet anywhere, since no checkpoint holds them.
        self.register_buffer("mean", torch.tensor(MEAN, device="cpu").view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD, device="cpu").view(-1, 1, 1), persistent=False)
        self.init_conv = nn.Conv2d(3, first, 3, padding=1, bias=False)
        sizes = zip(blocks, (first, *widths), widths, (1, 2, 2), strict=False)
        self.layer = nn.Sequential(*(Group(*size, squeeze) for size in sizes))
        self.batchnorm = nn.BatchNorm2d(widths[-1])
        self.logits = nn.Linear(widths[-1], classes)

    def stages(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, 3, 32, 32) in [0, 1] to what the groups make of them, at 32, 16 and 8 pixels a side."""
        first = self.layer[0](self.init_conv((x - self.mean) / self.std))
        second = self.layer[1](first)
        return first, second, self.layer[2](second)

    def classify(self, x: Tensor) -> Tensor:
        """What the last group made, (n, width, 8, 8), to (n, classes) logits."""
        pooled = F.avg_pool2d(F.silu(self.batchnorm(x)), 8)
        logits: Tensor = self.logits(pooled.flatten(1))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) in [0, 1] to (n, classes) logits."""
        return self.classify(self.stages(x)[2])


def wide_resnet(depth: int, width: int) -> WideResNet:
    """WRN-depth-width."""
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth is {depth}; it must be 4 more than a multiple of 6")
    return WideResNet(16, (blocks,) * 3, (16 * width, 32 * width, 64 * width))


def ra_wide_resnet() -> WideResNet:
    """RaWRN-70-16."""
    return WideResNet(96, (30, 31, 10), (216, 432, 864), squeeze=0.25)
