"""Small vision transformers, mixers and mobile networks for CIFAR-10 and MNIST, which
examples/train_families.py trains.

`vit_onnx` is a published robust vision transformer as a module: the weights come out of the ONNX
file, so that attacks have gradients, and its answers are those of the file. All take images in [0,
1] and normalise them inside.
"""

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NORMAL = {1: ((0.1307,), (0.3081,)), 3: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))}
"""Mean and deviation by the number of channels: those of MNIST and of CIFAR-10."""


class Normalise(nn.Module):
    """Subtract a mean and divide by a deviation per channel.

    The state dict contains neither of them.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, values in zip(("mean", "std"), NORMAL[channels], strict=True):
            self.register_buffer(name, torch.tensor(values).reshape(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to the same shape."""
        return (x - self.mean) / self.std


class OverFeatures(nn.BatchNorm1d):
    """Batch normalisation of the last axis of (n, tokens, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same shape."""
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention with several heads (Vaswani et al. 2017)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same shape."""
        n, tokens, width = x.shape
        q, k, v = (
            layer(x).reshape(n, tokens, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        return self.out(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width)
        )


class Added(nn.Module):
    """x + fn(norm(x))."""

    def __init__(self, norm: nn.Module, fn: nn.Module) -> None:
        super().__init__()
        self.norm, self.fn = norm, fn

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same shape."""
        return x + self.fn(self.norm(x))


class Vit(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021) with a class token, whose head sees the mean
    over all tokens.

    Args:
        channels: of the images.
        side: their height and width.
        patch: side of a patch.
        width: of a token.
        depth: blocks.
        heads: of the attention.
        published: with batch normalisation and ReLU, as the robust ones of VNN-COMP 2023; otherwise
            layers and GELU.
    """

    def __init__(
        self,
        *,
        channels: int,
        side: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        published: bool = False,
    ) -> None:
        super().__init__()
        norm, act = (OverFeatures, nn.ReLU) if published else (nn.LayerNorm, nn.GELU)
        self.normalise = Normalise(channels)
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(width))
        self.positions = nn.Parameter(0.02 * torch.randn((side // patch) ** 2 + 1, width))
        blocks = []
        for _ in range(depth):
            blocks.append(Added(norm(width), Attention(width, heads)))
            blocks.append(
                Added(
                    norm(width),
                    nn.Sequential(nn.Linear(width, 2 * width), act(), nn.Linear(2 * width, width)),
                )
            )
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm1d(width) if published else nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, side, side) in [0, 1] to (n, 10) logits."""
        tokens = self.patches(self.normalise(x)).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), 1, -1), tokens], 1) + self.positions
        return self.head(self.norm(self.blocks(tokens).mean(1)))


class Turned(nn.Module):
    """A module over the tokens in place of their features."""

    def __init__(self, fn: nn.Module) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same shape."""
        return self.fn(x.transpose(1, 2)).transpose(1, 2)


class Mixer(nn.Module):
    """An MLP-Mixer (Tolstikhin et al. 2021): layers over patches and over features in turns,
    without attention.
    """

    def __init__(self, *, channels: int, side: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        tokens = (side // patch) ** 2
        self.normalise = Normalise(channels)
        self.patches = nn.Conv2d(channels, width, patch, patch)
        blocks = []
        for _ in range(depth):
            over = nn.Sequential(
                nn.Linear(tokens, width // 2), nn.GELU(), nn.Linear(width // 2, tokens)
            )
            blocks.append(Added(nn.LayerNorm(width), Turned(over)))
            feed_forward = nn.Sequential(
                nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
            )
            blocks.append(Added(nn.LayerNorm(width), feed_forward))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, side, side) in [0, 1] to (n, 10) logits."""
        tokens = self.patches(self.normalise(x)).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def _separable(before: int, after: int, stride: int) -> nn.Sequential:
    """A convolution channel by channel, and one over the channels (Howard et al. 2017, MobileNets)."""
    return nn.Sequential(
        nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False),
        nn.BatchNorm2d(before),
        nn.ReLU(),
        nn.Conv2d(before, after, 1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


def _mobile(channels: int) -> nn.Sequential:
    widths = (32, 64, 64, 128, 128, 256, 256)
    strides = (1, 1, 2, 1, 2, 1)
    blocks = (_separable(*sizes) for sizes in zip(widths[:-1], widths[1:], strides, strict=True))
    first = (
        nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(),
    )
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))
    return nn.Sequential(Normalise(channels), *first, *blocks, *last)


def cifar10_vit() -> nn.Module:
    """A vision transformer over patches of 4 x 4: 0.21 million parameters."""
    return Vit(channels=3, side=32, patch=4, width=96, depth=4, heads=3)


def cifar10_mixer() -> nn.Module:
    """A mixer over patches of 4 x 4."""
    return Mixer(channels=3, side=32, patch=4, width=96, depth=4)


def cifar10_mobile() -> nn.Module:
    """Separable convolutions."""
    return _mobile(3)


def mnist_vit() -> nn.Module:
    """A vision transformer over patches of 7 x 7."""
    return Vit(channels=1, side=28, patch=7, width=64, depth=3, heads=4)


def mnist_mixer() -> nn.Module:
    """A mixer over patches of 7 x 7."""
    return Mixer(channels=1, side=28, patch=7, width=64, depth=3)


def mnist_mobile() -> nn.Module:
    """Separable convolutions."""
    return _mobile(1)


def vit_onnx(file: str = "vit_pgd_2_3_16.onnx") -> nn.Module:
    """A robust vision transformer of VNN-COMP 2023 (Shi et al.), with the weights of its ONNX file.

    Args:
        file: a path, or the name of a file in the folder onnx of the shared data.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it holds another network.
    """
    import onnx

    shared = Path(
        os.environ.get("BRINELL_SHARED") or Path(__file__).resolve().parents[3] / "shared" / "data"
    )
    path = Path(file) if Path(file).is_file() else shared / "onnx" / file
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: say args=file=FILE")
    tensors = _tensors(onnx.load(path))
    depth = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("1."))
    width, channels, patch, _ = tensors["0.projection.weight"].shape
    side = patch * round((len(tensors["0.positions"]) - 1) ** 0.5)
    net = Vit(
        channels=channels, side=side, patch=patch, width=width, depth=depth, heads=3, published=True
    )
    state = net.state_dict()
    if missing := [
        name
        for name in state
        if _published(name) not in tensors and not name.endswith("num_batches_tracked")
    ]:
        raise ValueError(f"{path.name} holds no {missing[0]}: it is another network")
    net.load_state_dict(
        {name: tensors.get(_published(name), value) for name, value in state.items()}
    )
    return net


def _tensors(model: object) -> dict[str, Tensor]:
    """The weights by the names that they had; those of matrix products, which lost theirs, by the
    bias that is added after.
    """
    from onnx import numpy_helper

    graph = model.graph  # type: ignore[attr-defined]
    tensors = {
        initializer.name: torch.from_numpy(numpy_helper.to_array(initializer).copy())
        for initializer in graph.initializer
    }
    product = {
        node.output[0]: tensors[node.input[1]]
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in tensors
    }
    for node in graph.node:
        if node.op_type == "Add" and node.input[1] in product and node.input[0].endswith(".bias"):
            tensors[node.input[0].removesuffix("bias") + "weight"] = product[node.input[1]].T
    return tensors


def _published(name: str) -> str:
    """Name of a weight of `Vit` in the file."""
    first, *parts = name.split(".")
    if first == "blocks":
        number, part, *last = parts
        block, half = divmod(int(number), 2)
        if part == "norm":
            return ".".join(["1", str(block), str(half), "fn.0.norm", *last])
        last = [{"0": "0", "2": "3"}.get(last[0], last[0]), *last[1:]]
        return ".".join(["1", str(block), str(half), "fn.1", *last])
    prefixes = {
        "patches": "0.projection",
        "token": "0.cls_token",
        "positions": "0.positions",
        "norm": "2.1",
        "head": "2.2",
    }
    return ".".join([prefixes.get(first, first), *parts])
