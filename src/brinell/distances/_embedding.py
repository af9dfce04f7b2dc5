"""Networks that map inputs to points, written as lists of layers, so that no code is loaded."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brinell.core.domain import Domain
from brinell.core.errors import one_line

Layers = Sequence[Sequence[Any]]
"""Each layer as its name and its numbers: ["centre", mean, spread], ["conv2d", in, out, kernel,
stride], ["linear", in, out], ["relu"], ["flatten"], ["unit"]. No layer at all is the input
itself, flattened."""
DIMENSIONS = 64
"""Values of an embedding."""
CHANNELS = (16, 32)
"""Channels of the first convolution, and of the others."""
KERNEL = {1: 5, 2: 5, 3: 3}
"""Values of a convolution's kernel along each axis, by the number of axes."""
SMALLEST = {1: 16, 2: 7, 3: 4}
"""Convolutions halve the sides until none is longer than this, by the number of axes."""
HIDDEN = 128
"""Width of the network for vectors, less where many values would make its first layer large."""
WEIGHTS = 120_000
"""Weights of its first layer at most, if it is to have any width at all."""


class CentreLayer(nn.Module):
    """(x - mean) / spread."""

    def __init__(self, mean: float, spread: float) -> None:
        super().__init__()
        if not spread > 0:
            raise ValueError(f"the spread is {spread}; it must be above 0")
        self.mean = float(mean)
        self.spread = float(spread)

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to the same shape."""
        return (x - self.mean) / self.spread


class Unit(nn.Module):
    """Points moved onto the unit sphere."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) to (n, d)."""
        return nn.functional.normalize(x, dim=1)


def _convolution(kind: type[nn.Module]) -> Callable[..., nn.Module]:
    """A builder of convolutions with half padding."""
    return lambda into, out, kernel, stride: kind(into, out, kernel, stride, kernel // 2)


_MAKE: dict[str, Callable[..., nn.Module]] = {
    "centre": CentreLayer,
    "conv1d": _convolution(nn.Conv1d),
    "conv2d": _convolution(nn.Conv2d),
    "conv3d": _convolution(nn.Conv3d),
    "linear": nn.Linear,
    "relu": nn.ReLU,
    "flatten": nn.Flatten,
    "unit": Unit,
}


def build(layers: Layers) -> nn.Sequential:
    """The network, without weights (on the meta device)."""
    modules = []
    # On the meta device: a file that names huge layers costs no memory before its weights are
    # checked.
    with torch.device("meta"):
        for name, *numbers in layers:
            if name not in _MAKE:
                raise ValueError(f"there is no layer {name!r}; there are {', '.join(_MAKE)}")
            try:
                modules.append(_MAKE[name](*numbers))
            except (TypeError, RuntimeError) as error:
                raise ValueError(
                    f"layer {name} cannot be made of {numbers}: {one_line(error)}"
                ) from None
    return nn.Sequential(*modules)


def layers_for(domain: Domain, mean: float, spread: float) -> list[list[Any]]:
    """A small network for inputs of this kind: convolutions along the axes, none for vectors.

    The `mean` of all values is taken off first, and they are divided by their standard deviation,
    `spread`.
    """
    layers: list[list[Any]] = [["centre", mean, spread]]
    if domain.kind == "vector":
        values = domain.shape[0]
        # As wide as the bound on the weights of the first layer allows.
        width = max(4, min(HIDDEN, WEIGHTS // values))
        layers += [
            ["linear", values, width],
            ["relu"],
            ["linear", width, HIDDEN],
            ["relu"],
            ["linear", HIDDEN, DIMENSIONS],
        ]
        return [*layers, ["unit"]]

    into, *sides = domain.shape
    axes = len(sides)
    out = CHANNELS[0]
    # Each convolution has a stride of 2; there is one at least.
    while max(sides) > SMALLEST[axes] or len(layers) == 1:
        layers += [[f"conv{axes}d", into, out, KERNEL[axes], 2], ["relu"]]
        sides = [-(-side // 2) for side in sides]  # rounded up, as half padding makes it
        into = out
        out = CHANNELS[1]

    values = into * int(torch.Size(sides).numel())
    return [*layers, ["flatten"], ["linear", values, DIMENSIONS], ["unit"]]
