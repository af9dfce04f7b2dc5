"""Defences by somebody who had not read the checks: margins bent, multiplied or hidden, above the
class of a network.

The counterpart answers the network's own logits, so that the truth is that of the network.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import Base
from benchmarks.zoo.pair import Change, Pair, defence
from benchmarks.zoo.shown import Shown

SLOPE = 0.2
"""Weight of the pattern that multiplies a margin: e to the power of 19 within 8/255 of a
CIFAR-10 image."""


def gap(z: Tensor) -> Tensor:
    """(n,): the lead of the first class."""
    two = z.topk(2).values
    return two[:, 0] - two[:, 1]


def arrange(z: Tensor, margin: Tensor, others: Tensor) -> Tensor:
    """(n, classes): scores `others`, with the class of `z` by `margin` above them."""
    first = F.one_hot(z.argmax(1), z.shape[1]).bool()
    best = others.masked_fill(first, -torch.inf).amax(1)
    return torch.where(first, (best + margin)[:, None], others)


class Decoy(nn.Module):
    """Smooth numbers of order one from a small network that nothing has trained."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        sizes = ((16, channels, 5, 5), (32, 16, 3, 3), (10, 32))
        weights = [
            torch.randn(size, generator=generator) / math.prod(size[1:]) ** 0.5 for size in sizes
        ]
        self.weights = nn.ParameterList(
            nn.Parameter(weight, requires_grad=False) for weight in weights
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) to (n, 10)."""
        first, second, last = self.weights
        stride = 2 if min(x.shape[2:]) >= 16 else 1
        maps = F.silu(
            F.conv2d(F.silu(F.conv2d(x - 0.5, first, stride=stride)), second, stride=stride)
        )
        return 20 * F.linear(maps.mean((2, 3)), last)


class Hidden(nn.Module):
    """A class that is decided outside of autograd and of the module, and a margin that a decoy
    bends.
    """

    def __init__(self, net: nn.Module, channels: int) -> None:
        super().__init__()
        self.decoy, self.functions = Decoy(channels), [net.forward]

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        with torch.no_grad():
            z = torch.from_numpy(self.functions[0](x.detach()).numpy())
        scores = self.decoy(x)
        return arrange(z, gap(z) * torch.exp(4 * scores[:, 0]), scores)


def _shown(base: Base, show: Change) -> Pair:
    return Pair(defended=Shown(base.net, show), counterpart=base.net)


def _pattern(x: Tensor) -> Tensor:
    """(n,): an image in a fine random pattern of signs."""
    signs = (
        torch.randint(0, 2, (1, *x.shape[1:]), generator=torch.Generator().manual_seed(1)) * 2 - 1
    )
    return (SLOPE * (x * signs).flatten(1).sum(1)).clamp(-40, 40)


@defence("reversed-margin", "answers")
def reversed_margin(base: Base) -> Pair:
    """A margin that grows as the true one shrinks."""
    return _shown(base, lambda x, z: arrange(z, 1 + 6 / (1 + gap(z)), z))


@defence("ranks", "answers")
def ranks(base: Base) -> Pair:
    """The ranks of the logits, and a part of a rank by a network that nothing has trained."""
    decoy = Decoy(base.x.shape[1])
    return _shown(base, lambda x, z: z.argsort(1).argsort(1).float() + 0.45 * torch.tanh(decoy(x)))


@defence("rounded-service", "answers")
def rounded_service(base: Base) -> Pair:
    """Probabilities in steps of 5 %, with the class never below 55 %."""

    def show(x: Tensor, z: Tensor) -> Tensor:
        first, steps = (
            F.one_hot(z.argmax(1), z.shape[1]).bool(),
            ((5 * z).softmax(1) * 20).round() / 20,
        )
        return torch.where(first, steps.clamp(min=0.55), steps.clamp(max=0.45))

    return _shown(base, show)


@defence("wild-scale", "answers")
def wild_scale(base: Base) -> Pair:
    """The logits times 10 to the power of -24 to 24, which a decoy sets for each image."""
    decoy = Decoy(base.x.shape[1])
    return _shown(base, lambda x, z: z * 10 ** (24 * torch.tanh(decoy(x)[:, :1] / 2)))


@defence("wavy-margin", "answers")
def wavy_margin(base: Base) -> Pair:
    """A margin with a dip every quarter of a logit."""
    return _shown(
        base, lambda x, z: arrange(z, gap(z) * (1 + 0.9 * torch.sin(25 * gap(z))) + 1e-6, z)
    )


@defence("on-grid", "answers")
def on_grid(base: Base) -> Pair:
    """The network's own logits for images of whole 255ths alone, and a decoy's scores below the
    class for others.
    """
    decoy = Decoy(base.x.shape[1])

    def show(x: Tensor, z: Tensor) -> Tensor:
        exact = ((255 * x - (255 * x).round()).abs().flatten(1).amax(1) < 1e-3)[:, None]
        scores = decoy(x)
        return torch.where(exact, z, arrange(z, 1 + F.softplus(scores[:, 0]), scores))

    return _shown(base, show)


@defence("ghost-classes", "answers")
def ghost_classes(base: Base) -> Pair:
    """Twenty further classes that never win and are always a hair below the winner."""
    decoy = Decoy(base.x.shape[1])

    def show(x: Tensor, z: Tensor) -> Tensor:
        ghosts = torch.cat([decoy(x), decoy(x.flip(-1))], 1)
        return torch.cat([z, z.amax(1, keepdim=True) - 0.05 * F.softplus(ghosts) - 1e-4], 1)

    return _shown(base, show)


@defence("sawtooth", "answers")
def sawtooth(base: Base) -> Pair:
    """Steps of 0.1 logits whose trend is true, while each slope points the wrong way."""
    return _shown(
        base,
        lambda x, z: arrange(
            z, 0.1 * ((gap(z) / 0.1).floor() + 1) + 0.1 - 0.98 * (gap(z) % 0.1), z
        ),
    )


@defence("pattern-gain", "answers")
def pattern_gain(base: Base) -> Pair:
    """The margin times e to the power of a fine linear pattern, which is what gradients see; lower
    scores set apart.
    """

    def show(x: Tensor, z: Tensor) -> Tensor:
        third = z.topk(3).values[:, 2:]
        return arrange(
            z, gap(z) * torch.exp(_pattern(x)), torch.where(z <= third, 0.01 * z - 5, 0.1 * z)
        )

    return _shown(base, show)


@defence("smooth-gain", "answers")
def smooth_gain(base: Base) -> Pair:
    """The margin times e to the power of a decoy's score, with the lower scores set by rank."""
    decoy = Decoy(base.x.shape[1])

    def show(x: Tensor, z: Tensor) -> Tensor:
        lower = z.argsort(1).argsort(1).float() - z.shape[1]
        return arrange(z, gap(z) * torch.exp((6 * decoy(x)[:, 0]).clamp(-30, 30)), lower)

    return _shown(base, show)


@defence("hidden-decision", "answers")
def hidden_decision(base: Base) -> Pair:
    """The class is decided where nobody can look, and the margin is the true one times a decoy's
    gain.
    """
    return Pair(defended=Hidden(base.net, base.x.shape[1]), counterpart=base.net)
