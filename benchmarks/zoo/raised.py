"""Defences whose scores are honest near the boundary: beyond a small lead a pattern of the input
raises the first class.

Gradients are true, and follow the pattern wherever the model is sure. The counterpart answers the
network's own logits, so that the truth is that of the network.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import Base
from benchmarks.zoo.pair import Pair, defence

Pattern = Callable[[Tensor], Tensor]
"""(n, *shape) inputs to (n,) numbers, at least 0."""


class Turned(nn.Module):
    """A linear layer whose answers are (classes, n)."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        """(classes, n) in place of (n, classes)."""
        return self.linear.weight @ x.T + self.linear.bias[:, None]


def turned(net: nn.Module) -> nn.Module:
    """A network whose last layer, and so its answer, is (classes, n)."""
    net = copy.deepcopy(net)
    name = [name for name, layer in net.named_modules() if isinstance(layer, nn.Linear)][-1]
    parent, _, last = name.rpartition(".")
    setattr(net.get_submodule(parent), last, Turned(net.get_submodule(name)))
    return net


class Raised(nn.Module):
    """The lead of the first class, in (classes, n), is raised by a pattern times what it has beyond
    a threshold.

    Args:
        scores: (n, *shape) to (classes, n) logits.
        pattern: what raises it.
        beyond: the threshold.
        classes: the classes that are raised; None for all.
    """

    def __init__(
        self, scores: Any, pattern: Pattern, beyond: float, classes: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        self.scores, self.pattern, self.beyond, self.classes = scores, pattern, beyond, classes

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        z = self.scores(x)
        top = z.topk(2, 0)
        bonus = (top.values[0] - top.values[1] - self.beyond).relu() * self.pattern(x)
        if self.classes is not None:
            bonus = bonus * torch.isin(top.indices[0], torch.tensor(self.classes))
        return (z + F.one_hot(top.indices[0], len(z)).T * bonus).T


def _waves(base: Base, directions: Tensor) -> Pattern:
    """A sum of sines along random directions (k, values)."""
    scale = (3072 / directions.shape[1]) ** 0.5
    return lambda x: 6 * (1 + torch.sin(scale * ((x - 0.5).flatten(1) @ directions.T))).mean(1)


def _random(base: Base, seed: int, count: int) -> Tensor:
    return torch.randn(count, base.x[0].numel(), generator=torch.Generator().manual_seed(seed))


@defence("raised-by-signs", "answers")
def raised_by_signs(base: Base) -> Pair:
    """Beyond a lead of 0.05 a sum of waves along random signs raises the first class; scores lie as
    (classes, n).
    """
    return Pair(
        defended=Raised(turned(base.net), _waves(base, _random(base, 2, 8).sign()), 0.05),
        counterpart=base.net,
    )


@defence("raised-by-patches", "answers")
def raised_by_patches(base: Base) -> Pair:
    """The same beyond 0.1 by the weighted means of patches, for classes 1, 3, 5, 7 and 9 alone."""
    side = max(1, base.x.shape[-1] // 8)
    weights = torch.randn(
        1, *F.avg_pool2d(base.x[:1], side).shape[1:], generator=torch.Generator().manual_seed(3)
    )

    def pattern(x: Tensor) -> Tensor:
        total = (F.avg_pool2d(x, side) * weights).flatten(1).sum(1)
        return 5 * (1 + torch.sin(20 * total)) + 30 * total.abs()

    return Pair(
        defended=Raised(turned(base.net), pattern, 0.1, (1, 3, 5, 7, 9)), counterpart=base.net
    )


@defence("raised-by-low-bits", "answers")
def raised_by_low_bits(base: Base) -> Pair:
    """The same beyond 0.2 by what the low bits of each value are, made smooth; the scores are
    computed in a closure.
    """
    phase = torch.rand(1, *base.x.shape[1:], generator=torch.Generator().manual_seed(4))
    net = turned(base.net)

    def pattern(x: Tensor) -> Tensor:
        return 6 * (1 + torch.sin(2 * math.pi * (255 / 4 * x + phase)).flatten(1).sum(1).sin())

    return Pair(defended=Raised(lambda x: net(x), pattern, 0.2), counterpart=base.net)
