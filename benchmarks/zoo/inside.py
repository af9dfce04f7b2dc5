"""Defences inside a network whose weights stay as they are: other activations, and random or
batch-wide layers.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from benchmarks.zoo.base import Base
from benchmarks.zoo.pair import Bpda, Change, Pair, defence, generator


class _Instead(TorchFunctionMode):
    """Calls other functions in place of torch's while it is entered."""

    def __init__(self, replaced: dict[Any, Any]) -> None:
        super().__init__()
        self.replaced = replaced

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.replaced.get(func, func)(*args, **(kwargs or {}))


class Activated(nn.Module):
    """A network with another function in place of each ReLU, modules and calls alike."""

    def __init__(self, net: nn.Module, activation: Change) -> None:
        super().__init__()
        self.net, self.activation = net, activation

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        instead = lambda x, inplace=False: self.activation(x)  # noqa: E731
        with _Instead({F.relu: instead, torch.relu: instead}):
            return self.net(x)


def largest(share: float) -> Change:
    """k-WTA: keeps the largest share of each layer's values, where they are positive."""

    def keep(x: Tensor) -> Tensor:
        flat = x.flatten(1)
        least = flat.topk(max(1, math.floor(share * flat.shape[1])), dim=1).values[:, -1:]
        return (flat * (flat >= least)).view_as(x).clamp_min(0)

    return keep


@defence("k-wta", "wrong gradient")
def k_wta(base: Base) -> Pair:
    """The largest fifth of each layer's values in place of ReLU, untrained (Xiao, Zhong & Zheng
    2020): discontinuous.

    The counterpart averages gradients over neighbours (Tramèr et al. 2020, section 5); another
    route takes ReLU's gradient.
    """
    defended = Activated(base.net, largest(0.2))
    return Pair(
        defended=defended,
        counterpart=defended,
        surrogates=(Bpda(defended, base.net),),
        draws=8,
        spread=0.02,
    )


@defence("wiggly-activations", "wrong gradient")
def wiggly_activations(base: Base) -> Pair:
    """A fast sine of 0.02 on top of each ReLU; the counterpart has ReLU's gradient."""
    defended = Activated(base.net, lambda x: x.clamp_min(0) + 0.02 * torch.sin(200 * x))
    return Pair(defended=defended, counterpart=Bpda(defended, base.net), surrogates=(base.net,))


@defence("stair-activations", "no gradient")
def stair_activations(base: Base) -> Pair:
    """Activations are rounded to steps of 0.1 (binarised and quantised networks: Galloway, Taylor &
    Moussa 2018).

    The counterpart has ReLU's gradient.
    """
    defended = Activated(base.net, lambda x: torch.round(10 * x.clamp_min(0)) / 10)
    return Pair(defended=defended, counterpart=Bpda(defended, base.net), surrogates=(base.net,))


def dropped(share: float, seed: int) -> Change:
    """ReLU, of whose values a share becomes zero, with others scaled up."""
    rng = generator(seed)
    return lambda x: x.clamp_min(0) * (torch.rand(x.shape, generator=rng) >= share) / (1 - share)


@defence("dropout", "random")
def dropout(base: Base) -> Pair:
    """Dropout of a tenth at test time (Feinman et al. 2017; Gal & Ghahramani 2016); the counterpart
    is averaged over draws.
    """
    first, second = (Activated(base.net, dropped(0.1, seed)) for seed in (0, 1))
    return Pair(defended=first, counterpart=second, draws=4, surrogates=(base.net,))


def pruned(seed: int) -> Change:
    """ReLU that keeps the values drawn with replacement in proportion to their size."""
    rng = generator(seed)

    def prune(x: Tensor) -> Tensor:
        values = x.clamp_min(0).flatten(1)
        chance = (values / values.sum(1, keepdim=True).clamp_min(1e-12)).detach()
        kept_chance = -torch.expm1(values.shape[1] * torch.log1p(-chance.clamp(max=1 - 1e-6)))
        alive = torch.rand(values.shape, generator=rng) < kept_chance
        return (values * alive / kept_chance.clamp_min(1e-6)).view_as(x)

    return prune


@defence("activation-pruning", "random")
def activation_pruning(base: Base) -> Pair:
    """Stochastic activation pruning (Dhillon et al. 2018), as many draws as values; the counterpart
    is averaged over draws.

    Deviation: each value is kept independently, with the probability that it is drawn at least
    once.
    """
    first, second = (Activated(base.net, pruned(seed)) for seed in (0, 1))
    return Pair(defended=first, counterpart=second, draws=4, surrogates=(base.net,))


class Adapting(nn.Module):
    """A network whose batch norm takes the statistics of the batch, as in training, and keeps none."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes), each answer a function of the whole batch."""

        def of_batch(x: Tensor, mean: Tensor, var: Tensor, *affine: Any, **options: Any) -> Tensor:
            weight, bias = (
                (affine + (None, None))[:2]
                if affine
                else (options.get("weight"), options.get("bias"))
            )
            axes = [axis for axis in range(x.dim()) if axis != 1]
            shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
            spread, middle = torch.var_mean(x, axes, correction=0, keepdim=True)
            x = (x - middle) / (spread + 1e-5).sqrt()
            return x if weight is None else x * weight.view(shape) + bias.view(shape)

        with _Instead({F.batch_norm: of_batch}):
            return self.net(x)


@defence("batch-norm-in-training", "company", base="resnet20")
def batch_norm_in_training(base: Base) -> Pair:
    """Batch norm in training mode: test-time adaptation at its simplest (Croce et al. 2022, section
    4).

    Each answer depends on the whole batch; the truth attacks all samples together, as one batch,
    and judges them so.
    """
    defended = Adapting(base.net)
    return Pair(defended=defended, counterpart=defended)
