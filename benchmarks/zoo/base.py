"""The networks that defences are put around, with the images on which they are audited."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks import measure

DEFAULT = "resnet4b"
"""The CIFAR-10 network, robust by training, of the table of most defences."""
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
    with the package.
    """
    if name == "digits":
        return _digits(samples, keep)
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
