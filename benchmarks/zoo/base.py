"""The networks that defences are put around, with the images on which they are audited."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks import measure

DEFAULT = "resnet4b"
"""The CIFAR-10 network, robust by training, of the table of most defences."""
SMALL = {"quick": (1, "0.08"), "colour": (3, "0.03")}
"""Bases of the quick members, with the channels of their images and the budget: the digits, grey or
tinted."""
SMALL_WEIGHTS = Path(__file__).with_name("quick.safetensors")
"""Their weights, and those of the networks that defences train around them, so that a truth that
was computed once holds on every machine; `python -m benchmarks.zoo.quick` makes them."""
TINTS = (1.0, 0.8, 0.6)
"""Brightness of a digit in each channel of a colour image."""
EPS = {"cnn4_pgd": "0.32"}
"""Budgets that differ from those of `measure`: here a part of the samples is robust and a part
is not."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A network and the samples that it is audited on."""

    name: str
    net: nn.Module
    """(n, *shape) in [0, 1] to (n, classes) logits, in evaluation mode, weights frozen."""
    x: Tensor
    """(n, *shape) images in [0, 1], right or wrong."""
    y: Tensor
    """(n,) labels."""
    eps: str
    """Budget in Linf as the command line takes it."""
    train: Callable[[int], tuple[Tensor, Tensor]]
    """So many training images with labels."""
    empty: Callable[[], nn.Module]
    """The architecture with weights that nothing has trained."""
    keep: Path | None = None
    """Folder in which networks are kept that a defence trains; none trains them anew."""

    @property
    def classes(self) -> int:
        """How many logits the network has."""
        with torch.no_grad():
            return self.net(self.x[:1]).shape[1]


def load(name: str = DEFAULT, samples: int = 100, keep: Path | None = None) -> Base:
    """A network of the shared data with its first test images; `digits` is the network that ships
    with the package, and `quick` and `colour` are networks of a few thousand kept weights.
    """
    if name == "digits":
        return _digits(samples, keep)
    if name in SMALL:
        return _small(name, samples)
    subject = measure.subject(name)
    x, y = subject.first(samples)
    train = (
        "mnist/mnist_train.npz"
        if subject.data.startswith("mnist")
        else "cifar10/cifar10_train_a.npz"
    )
    return Base(
        name=name,
        net=subject.module(),
        x=x,
        y=y,
        eps=EPS.get(name, subject.eps_text),
        train=lambda n: measure.images(train, slice(n)),
        empty=subject.empty,
        keep=keep,
    )


def _digits(samples: int, keep: Path | None) -> Base:
    from brinell.core.domain import Domain
    from brinell.core.splits import digits
    from brinell.models import digits_cnn

    def split(part: str, n: int) -> tuple[Tensor, Tensor]:
        x, y = digits(part)
        return torch.from_numpy(x)[:n], torch.from_numpy(y)[:n]

    x, y = split("test", samples)
    model = digits_cnn.DigitsCnn()(Domain(kind="image", shape=(1, 8, 8), levels=17))
    net = model.module.requires_grad_(False)
    return Base(
        name="digits",
        net=net,
        x=x,
        y=y,
        eps="0.1",
        train=lambda n: split("train", n),
        empty=digits_cnn.build,
        keep=keep,
    )


def small_network(channels: int = 1) -> nn.Sequential:
    """Two small layers with a batch norm, for images of 8 by 8 values; weights not yet trained."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def kept_weights(name: str) -> dict[str, Tensor]:
    """The weights of a quick member's network; empty if none are kept under the name."""
    opening = f"{name}/"
    weights = load_file(SMALL_WEIGHTS) if SMALL_WEIGHTS.is_file() else {}
    return {
        key.removeprefix(opening): value.float() if value.dtype == torch.float16 else value
        for key, value in weights.items()
        if key.startswith(opening)
    }


def _small(name: str, samples: int) -> Base:
    from brinell.core.splits import digits

    channels, eps = SMALL[name]
    tints = torch.tensor(TINTS[:channels]).view(1, channels, 1, 1)

    def split(part: str, n: int) -> tuple[Tensor, Tensor]:
        x, y = digits(part)
        return torch.from_numpy(x)[:n] * tints, torch.from_numpy(y)[:n]

    net = small_network(channels)
    if weights := kept_weights(name):
        net.load_state_dict(weights)
    x, y = split("test", samples)
    return Base(
        name=name,
        net=net.eval().requires_grad_(False),
        x=x,
        y=y,
        eps=eps,
        train=lambda n: split("train", n),
        empty=lambda: small_network(channels),
    )
