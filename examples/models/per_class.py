"""The networks for CIFAR-10 of the per-class study, with the parameter names of their published
checkpoints.

`WideResNet` follows Gowal et al. 2020 (arXiv 2010.03593) with SiLU, as Wang et al. 2023 (arXiv
2302.04638) and Cui et al. 2023 (arXiv 2305.13948) trained it. With squeeze and excitation and
different widths and depths it is RaWideResNet of Peng et al. 2023 (arXiv 2308.16258). `Mixture` is
adaptive smoothing, Bai et al. 2023 (arXiv 2301.12554) in its variant `edm`. It mixes an accurate
network, BiT-M-R152x2 (Kolesnikov et al. 2020, arXiv 1912.11370) on images enlarged to 128 pixels,
with a robust one, WRN-70-16. A third network computes the weight of the robust one. Its answers are
log-probabilities, which differ less between classes than logits would. All networks take images in
[0, 1] and normalise them inside.

RobustBench (Croce et al. 2021, arXiv 2010.09670) publishes the checkpoints:
`per_class.py:wang2023?weights=FILE.pt`. The networks are made without weights, which the checkpoint
brings: the largest has 567 million.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)
"""Of CIFAR-10."""
TINY = 1e-10
"""Added to the variance of weights before they are divided by its root."""


class SqueezeExcitation(nn.Module):
    """Scales channels by a gate computed from their means (Hu et al. 2018)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to the same shape."""
        gate: Tensor = self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True))))
        return x * gate.sigmoid()


class Block(nn.Module):
    """Two convolutions, normalised and activated beforehand, with a shortcut."""

    def __init__(self, width_in: int, width: int, stride: int, squeeze: float) -> None:
        super().__init__()
        self.batchnorm_0 = nn.BatchNorm2d(width_in)
        self.conv_0 = nn.Conv2d(width_in, width, 3, stride, bias=False)
        self.batchnorm_1 = nn.BatchNorm2d(width)
        self.conv_1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Conv2d(width_in, width, 1, stride, bias=False) if width_in != width else None
        )
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
    """Blocks of one width, the first of which may halve the image."""

    def __init__(self, blocks: int, width_in: int, width: int, stride: int, squeeze: float) -> None:
        super().__init__()
        first = Block(width_in, width, stride, squeeze)
        self.block = nn.Sequential(
            first, *(Block(width, width, 1, squeeze) for _ in range(blocks - 1))
        )

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
        self,
        first: int,
        blocks: Sequence[int],
        widths: Sequence[int],
        *,
        squeeze: float = 0.0,
        classes: int = 10,
    ) -> None:
        super().__init__()
        # On the CPU even where the weights are not yet anywhere, since no checkpoint holds them.
        self.register_buffer(
            "mean", torch.tensor(MEAN, device="cpu").view(-1, 1, 1), persistent=False
        )
        self.register_buffer(
            "std", torch.tensor(STD, device="cpu").view(-1, 1, 1), persistent=False
        )
        self.init_conv = nn.Conv2d(3, first, 3, padding=1, bias=False)
        sizes = zip(blocks, (first, *widths), widths, (1, 2, 2), strict=False)
        self.layer = nn.Sequential(*(Group(*size, squeeze) for size in sizes))
        self.batchnorm = nn.BatchNorm2d(widths[-1])
        self.logits = nn.Linear(widths[-1], classes)

    def stages(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, 3, 32, 32) in [0, 1] to the outputs of the three groups, with sides of 32, 16 and 8."""
        first = self.layer[0](self.init_conv((x - self.mean) / self.std))
        second = self.layer[1](first)
        return first, second, self.layer[2](second)

    def classify(self, x: Tensor) -> Tensor:
        """Output (n, width, 8, 8) of the last group to (n, classes) logits."""
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


class StandardisedConv(nn.Conv2d):
    """A convolution whose filters are brought to mean 0 and variance 1 before they are used (Qiao
    et al. 2019).
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, in, h, w) to (n, out, h / stride, w / stride)."""
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        return F.conv2d(
            x, (self.weight - mean) / (variance + TINY).sqrt(), self.bias, self.stride, self.padding
        )


class Unit(nn.Module):
    """A bottleneck with group normalisation before each convolution; the stride is on the middle
    one.
    """

    def __init__(self, width_in: int, width: int, middle: int, stride: int, groups: int) -> None:
        super().__init__()
        self.gn1, self.gn2, self.gn3 = (
            nn.GroupNorm(groups, width) for width in (width_in, middle, middle)
        )
        self.conv1 = StandardisedConv(width_in, middle, 1, bias=False)
        self.conv2 = StandardisedConv(middle, middle, 3, stride, 1, bias=False)
        self.conv3 = StandardisedConv(middle, width, 1, bias=False)
        projects = stride != 1 or width_in != width
        self.downsample = (
            StandardisedConv(width_in, width, 1, stride, bias=False) if projects else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, width, h / stride, w / stride)."""
        out = F.relu(self.gn1(x))
        kept = x if self.downsample is None else self.downsample(out)
        out = self.conv2(F.relu(self.gn2(self.conv1(out))))
        return torch.add(kept, self.conv3(F.relu(self.gn3(out))))


class BiT(nn.Module):
    """Big Transfer's ResNet v2 with `units[i]` units in block i; the `width` of bottlenecks is 64
    times the width factor.
    """

    def __init__(
        self, units: Sequence[int], width: int, *, groups: int = 32, classes: int = 10
    ) -> None:
        super().__init__()
        self.root = nn.Sequential()
        self.root.add_module("conv", StandardisedConv(3, width, 7, 2, 3, bias=False))
        # Zeros around, not the minus infinity of a padded pool: the input has no activation yet.
        self.root.add_module("pad", nn.ConstantPad2d(1, 0.0))
        self.root.add_module("pool", nn.MaxPool2d(3, 2))
        self.body = nn.Sequential()
        wide = width
        for number, count in enumerate(units):
            block, middle = nn.Sequential(), width * 2**number
            for unit in range(count):
                stride = 2 if number and not unit else 1
                block.add_module(
                    f"unit{unit + 1:02d}", Unit(wide, 4 * middle, middle, stride, groups)
                )
                wide = 4 * middle
            self.body.add_module(f"block{number + 1}", block)
        self.head = nn.Sequential()
        self.head.add_module("gn", nn.GroupNorm(groups, wide))
        self.head.add_module("relu", nn.ReLU())
        self.head.add_module("avg", nn.AdaptiveAvgPool2d(1))
        self.head.add_module("conv", nn.Conv2d(wide, classes, 1))

    def stages(self, x: Tensor) -> list[Tensor]:
        """(n, 3, h, w) in [0, 1] to the output of each block; the first has a quarter of the sides."""
        found, x = [], self.root(2 * x - 1)
        for block in self.body:
            x = block(x)
            found.append(x)
        return found

    def classify(self, x: Tensor) -> Tensor:
        """Output of the last block to (n, classes) logits."""
        logits: Tensor = self.head(x).flatten(1)
        return logits


class MixingBlock(nn.Module):
    """Two convolutions, normalised and activated beforehand, with a shortcut."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(width_in), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.shortcut = nn.Sequential()
        if stride != 1 or width_in != width:
            self.shortcut.append(nn.Conv2d(width_in, width, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, width, h / stride, w / stride)."""
        out = F.relu(self.bn1(x))
        return torch.add(self.shortcut(out), self.conv2(F.relu(self.bn2(self.conv1(out)))))


class Mixing(nn.Module):
    """Takes the first two stages of both networks and returns one number for each input.

    Args:
        first: channels of both networks' first stages together.
        second: channels of both networks' second stages together.
        widths: channels of the layers, each of two blocks.
    """

    def __init__(self, first: int, second: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(MixingBlock(before, width, 2), MixingBlock(width, width, 1))
            for before, width in pairwise((first, *widths))
        )
        self.linear = nn.Linear(widths[-1], 1, bias=False)
        self.conv1x1 = nn.Conv2d(second, widths[0], 1, bias=False)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """(n, first, s, s) and (n, second, s / 2, s / 2) to (n, 1)."""
        x = self.layers[0](first) + self.conv1x1(second)
        for layer in self.layers[1:]:
            x = layer(x)
        answer: Tensor = self.linear(x.mean((2, 3)))
        return answer


class Mixture(nn.Module):
    """Log-probabilities of a mixture of both networks' answers; `mixing` computes the weight of the
    robust network.

    Images for the accurate network are resized to `side` pixels.
    """

    def __init__(self, standard: BiT, robust: WideResNet, mixing: Mixing, side: int = 128) -> None:
        super().__init__()
        self.standard, self.robust, self.mixing, self.side = standard, robust, mixing, side
        self.bn = nn.BatchNorm1d(1, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) in [0, 1] to (n, classes) log-probabilities."""
        large = F.interpolate(x, (self.side, self.side), mode="bilinear", align_corners=False)
        accurate, robust = self.standard.stages(large), self.robust.stages(x)
        first, second = (torch.cat((accurate[stage], robust[stage]), 1) for stage in (0, 1))
        posterior = 2.0 * self.bn(self.mixing(first, second)) + 1.05
        alpha = 0.04 * posterior.sigmoid() + 0.96
        answers = (
            (1.2 * self.standard.classify(accurate[-1])).softmax(1),
            (0.3 * self.robust.classify(robust[-1])).softmax(1),
        )
        return torch.log((1 - alpha) * answers[0] + alpha * answers[1])


def peng2023() -> nn.Module:
    """Peng2023Robust: RaWRN-70-16."""
    with torch.device("meta"):
        return WideResNet(96, (30, 31, 10), (216, 432, 864), squeeze=0.25)


def wang2023() -> nn.Module:
    """Wang2023Better_WRN-28-10, and Cui2023Decoupled_WRN-28-10, which has the same network."""
    with torch.device("meta"):
        return wide_resnet(28, 10)


def wang2023_large() -> nn.Module:
    """Wang2023Better_WRN-70-16."""
    with torch.device("meta"):
        return wide_resnet(70, 16)


def bai2023(accurate: str, robust: str, mixing: str) -> nn.Module:
    """Bai2023Improving_edm, from its three published files,
    `args=accurate=FILE,robust=FILE,mixing=FILE`.
    """
    with torch.device("meta"):
        network = Mixture(
            BiT((3, 8, 36, 3), 128),
            wide_resnet(70, 16),
            Mixing(512 + 256, 1024 + 512, (512, 768, 1024)),
        )
    fill(network, accurate, robust, mixing)
    return network


def fill(network: Mixture, accurate: str, robust: str, mixing: str) -> None:
    """Load the published files of an accurate, a robust and a mixing network; the last also holds
    the mixture's batch norm.
    """
    last = torch.load(mixing, map_location="cpu", weights_only=True)
    parts = {network.standard: accurate, network.robust: robust}
    states = {
        part: torch.load(file, map_location="cpu", weights_only=True)
        for part, file in parts.items()
    }
    for part, state in (states | {network.mixing: last["model"], network.bn: last["bn"]}).items():
        state = state.get("state_dict", state)
        part.load_state_dict(
            {key.removeprefix("module."): value for key, value in state.items()}, assign=True
        )
