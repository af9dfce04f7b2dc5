"""CIFAR-10 networks whose published weights load key for key.

All take images in [0, 1] and normalise them inside.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Normalise(nn.Module):
    """Subtract a mean and divide by a deviation per channel.

    The state dict contains neither of them.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to the same shape.

        Raises:
            ValueError: another number of channels; grey images would be broadcast to three without
                a word.
        """
        if x.shape[1] != len(self.mean):
            raise ValueError(f"images have {x.shape[1]} channels, not {len(self.mean)}")
        return (x - self.mean) / self.std


class ThinBlock(nn.Module):
    """Two 3x3 convolutions; where the width grows, the shortcut drops every other pixel and pads
    channels with zeros.
    """

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.stride = 1 if width == width_in else 2
        self.pad = (width - width_in) // 2
        self.conv1 = nn.Conv2d(width_in, width, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, width, h / stride, w / stride)."""
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.pad:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(inner + x)


class ThinResNet(nn.Module):
    """The CIFAR ResNet of He et al. 2015 with n blocks in each of three stages of width 16, 32 and
    64: 6 n + 2 layers.
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self.normalise = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(ThinBlock(16, 16) for _ in range(n)))
        self.layer2 = nn.Sequential(ThinBlock(16, 32), *(ThinBlock(32, 32) for _ in range(n - 1)))
        self.layer3 = nn.Sequential(ThinBlock(32, 64), *(ThinBlock(64, 64) for _ in range(n - 1)))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) in [0, 1] to (n, 10) logits."""
        x = F.relu(self.bn1(self.conv1(self.normalise(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


class PlainCnn(nn.Module):
    """Two convolutions and three linear layers: the network of PyTorch's CIFAR-10 tutorial, as
    captum trained it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) in [0, 1] to (n, 10) logits."""
        x = F.max_pool2d(F.relu(self.conv1(self.normalise(x))), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class BiasBlock(nn.Module):
    """Two 3x3 convolutions with bias and no batch norm; a 1x1 convolution as shortcut where the
    shape changes.
    """

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1)
        changes = stride != 1 or width_in != width
        self.shortcut = (
            nn.Sequential(nn.Conv2d(width_in, width, 1, stride)) if changes else nn.Sequential()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, width, h / stride, w / stride)."""
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


class BiasResNet(nn.Module):
    """A small ResNet without batch norm, for verifiers; `stages` lists (width, stride) of the
    blocks of each stage.
    """

    def __init__(
        self, width: int, stages: Sequence[Sequence[tuple[int, int]]], features: int
    ) -> None:
        super().__init__()
        self.normalise = Normalise((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
        self.conv1 = nn.Conv2d(3, width, 3, 2, 1)
        self.stages = len(stages)
        for number, stage in enumerate(stages, start=1):
            blocks = []
            for out, stride in stage:
                blocks.append(BiasBlock(width, out, stride))
                width = out
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        self.linear1 = nn.Linear(features, 100)
        self.linear2 = nn.Linear(100, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) in [0, 1] to (n, 10) logits."""
        x = F.relu(self.conv1(self.normalise(x)))
        for number in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return self.linear2(F.relu(self.linear1(x.flatten(1))))


class Wide(nn.Sequential):
    """Two strided convolutions and two linear layers, trained for provable robustness.

    The first layer has no weights to load.
    """

    def __init__(self) -> None:
        super().__init__()
        layers = (
            nn.Conv2d(3, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2048, 100),
            nn.ReLU(),
            nn.Linear(100, 10),
        )
        self.add_module("normalise", Normalise((0.485, 0.456, 0.406), (0.225, 0.225, 0.225)))
        for number, layer in enumerate(layers):
            self.add_module(str(number), layer)


def resnet20() -> nn.Module:
    """ResNet-20, clean accuracy 0.9173 with the weights of akamaster/pytorch_resnet_cifar10."""
    return ThinResNet(3)


def resnet32() -> nn.Module:
    """ResNet-32, 0.9263."""
    return ThinResNet(5)


def resnet44() -> nn.Module:
    """ResNet-44, 0.9310."""
    return ThinResNet(7)


def captum_cnn() -> nn.Module:
    """Captum's plain network, 0.5907."""
    return PlainCnn()


def resnet2b() -> nn.Module:
    """The robust resnet2b of alpha-beta-CROWN, 0.6925."""
    return BiasResNet(8, [[(16, 2), (16, 1)]], 1024)


def resnet4b() -> nn.Module:
    """The robust resnet4b of alpha-beta-CROWN, 0.7720."""
    return BiasResNet(16, [[(32, 2), (32, 1)], [(32, 2), (32, 1)]], 512)


def cnn_wide_kw() -> nn.Module:
    """The provably robust wide network of alpha-beta-CROWN's OVAL set, 0.6162."""
    return Wide()
