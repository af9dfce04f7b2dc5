"""Defences whose scores are not what decides: the class is the network's, and the scores say little
of how near another one is.

The counterpart answers the network's own logits, so that the truth is that of the network.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import SMALL, Base, load
from benchmarks.zoo.pair import Around, Change, Pair, defence

BELOW = -4.0
"""Logit of the classes that are not the decision, where a defence invents them."""


class Shown(nn.Module):
    """Answers `show(inputs, logits)`, in which the leading class is that of the network."""

    def __init__(self, net: nn.Module, show: Change, *networks: nn.Module) -> None:
        super().__init__()
        self.net, self.show, self.others = net, show, nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        return self.show(x, self.net(x))


def _shown(base: Base, show: Change, *networks: nn.Module) -> Pair:
    return Pair(defended=Shown(base.net, show, *networks), counterpart=base.net)


def label(z: Tensor) -> Tensor:
    """(n, classes): the one-hot code of the leading class."""
    return F.one_hot(z.argmax(1), z.shape[1]).float()


def brightness(x: Tensor) -> Tensor:
    """(n, 1): the mean of each input."""
    return x.flatten(1).mean(1, keepdim=True)


def invented(x: Tensor, z: Tensor) -> Tensor:
    """The label, with a confidence computed from the mean and the deviation of the image."""
    return (
        BELOW
        + label(z) * (6 + 4 * brightness(x) + 8 * x.flatten(1).std(1, keepdim=True))
        + 0.1 * x.flatten(1)[:, : z.shape[1]]
    )


@defence("invented-confidence", "answers")
def invented_confidence(base: Base) -> Pair:
    """The label, and a confidence computed from simple statistics of the image."""
    return _shown(base, invented)


@defence("borrowed-scores", "answers")
def borrowed_scores(base: Base) -> Pair:
    """The class of the network; all other scores are those of a plain one, arranged below the
    class.
    """
    lender = plain(base)

    def show(x: Tensor, z: Tensor) -> Tensor:
        borrowed, top = lender(x), z.argmax(1, keepdim=True)
        lead = borrowed.topk(2, 1).values
        return borrowed.scatter(1, top, lead[:, :1] + (lead[:, :1] - lead[:, 1:]))

    return _shown(base, show, lender)


def plain(base: Base) -> nn.Module:
    """A network that nothing made robust, of the same classes; elsewhere the base on a turned
    input.
    """
    if base.x.shape[1] == 3 and base.name not in SMALL:
        return load("resnet20", 1).net
    return Around(base.net, lambda x: x.transpose(-1, -2))


@defence("brightness-bonus", "answers")
def brightness_bonus(base: Base) -> Pair:
    """The leading class gets a bonus of 2 and 30 times the mean brightness, above the network's
    logits times 0.05.
    """
    return _shown(base, lambda x, z: 0.05 * z + label(z) * (2 + 30 * brightness(x)))


@defence("label-and-probability", "answers", base="cnn4_pgd", eps="0.3")
def label_and_probability(base: Base) -> Pair:
    """The label and its own probability, as many web services answer; all others are 0."""
    return _shown(base, lambda x, z: label(z) * z.softmax(1))


@defence("label-and-rest", "answers", base="cnn4_pgd", eps="0.3")
def label_and_rest(base: Base) -> Pair:
    """The label and its own probability; the rest is shared evenly by the other classes."""

    def show(x: Tensor, z: Tensor) -> Tensor:
        top = z.softmax(1).amax(1, keepdim=True)
        return torch.where(label(z) > 0, top, (1 - top) / (z.shape[1] - 1))

    return _shown(base, show)


@defence("tiny-logits", "none")
def tiny_logits(base: Base) -> Pair:
    """Logits times 1e-12. Nothing is broken."""
    return _shown(base, lambda x, z: 1e-12 * z)


@defence("bonus-of-two-classes", "answers")
def bonus_of_classes(base: Base) -> Pair:
    """The brightness bonus, of classes 3 and 5 alone."""
    return _shown(
        base,
        lambda x, z: (
            z
            + label(z)
            * (2 + 30 * brightness(x))
            * torch.isin(z.argmax(1), torch.tensor([3, 5]))[:, None]
        ),
    )


@defence("bonus-of-a-tenth", "answers")
def bonus_of_a_tenth(base: Base) -> Pair:
    """The brightness bonus, of a tenth of the samples: those of a narrow band of brightness."""
    low, high = torch.quantile(brightness(base.x)[:, 0], torch.tensor([0.45, 0.55]))

    def show(x: Tensor, z: Tensor) -> Tensor:
        value = brightness(x)
        return z + label(z) * (2 + 30 * value) * ((value > low - 0.01) & (value < high + 0.01))

    return _shown(base, show)


@defence("permuted-scores", "answers")
def permuted_scores(base: Base) -> Pair:
    """The scores behind the leading class are dealt out anew, by an order that the sum of the input
    draws.
    """

    def show(x: Tensor, z: Tensor) -> Tensor:
        shift = (x.flatten(1).sum(1) * 1e3).long() % (z.shape[1] - 1) + 1
        index = torch.arange(z.shape[1])[None].expand(len(z), -1)
        return (
            z.amin(1, keepdim=True)
            - 1
            + z.gather(1, (index + shift[:, None]) % z.shape[1]) * 0.1
            + label(z) * (8 + z.std(1, keepdim=True))
        )

    return _shown(base, show)


@defence("cliff", "answers")
def cliff(base: Base) -> Pair:
    """A margin that is continuous and stays large until just before the class changes."""

    def show(x: Tensor, z: Tensor) -> Tensor:
        lead = z.topk(2, 1).values
        gap = lead[:, :1] - lead[:, 1:]
        return z * 0.01 + label(z) * (5 + 5 * brightness(x)) * (gap / 0.02).tanh()

    return _shown(base, show)


@defence("narrow-cliff", "answers")
def narrow_cliff(base: Base) -> Pair:
    """The same with a hundredth of the width, of classes 3 and 5 alone."""

    def show(x: Tensor, z: Tensor) -> Tensor:
        lead = z.topk(2, 1).values
        gap = (lead[:, :1] - lead[:, 1:]) * torch.isin(z.argmax(1), torch.tensor([3, 5]))[:, None]
        return z + label(z) * (15 + 5 * brightness(x)) * (gap / 0.0002).tanh()

    return _shown(base, show)


@defence("top-three", "none")
def top_three(base: Base) -> Pair:
    """The three largest logits; all others are far below. Nothing is broken."""

    def show(x: Tensor, z: Tensor) -> Tensor:
        return torch.where(z >= z.topk(3, 1).values[:, -1:], z, z.amin(1, keepdim=True) - 5)

    return _shown(base, show)


@defence("varying-temperature", "none")
def varying_temperature(base: Base) -> Pair:
    """Logits times a factor that the brightness of the input decides. Nothing is broken."""
    return _shown(base, lambda x, z: z * (0.2 + 10 * brightness(x)))
