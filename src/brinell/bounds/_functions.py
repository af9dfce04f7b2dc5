"""Smooth functions of one value: what lines around them and their ranges are made from."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class SmoothFunction:
    """A function whose second derivative is bounded, or keeps its sign."""

    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    curvature: float = 0.0
    """The largest absolute value of the second derivative, rounded up; 0 where `bend` says its
    sign."""
    bend: int = 0
    """1 for a convex function, -1 for a concave one, 0 for others."""
    valley: float | None = None
    """The place of the least value of the function, falling before and rising behind it; None
    for a monotonous one."""
    positive: bool = False
    """True if its argument must be positive."""


def _cdf(x: Tensor) -> Tensor:
    """Cumulative distribution function of the standard normal distribution."""
    return (1 + torch.erf(x / math.sqrt(2))) / 2


def _density(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _tanh_of_gelu(x: Tensor) -> Tensor:
    return torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def _slope_of_tanh_gelu(x: Tensor) -> Tensor:
    # The product rule: derivative of x (1 + tanh u(x)) / 2.
    t = _tanh_of_gelu(x)
    return (1 + t) / 2 + x * (1 - t * t) / 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def _slope_of_silu(x: Tensor) -> Tensor:
    # The product rule: derivative of x s(x), where s' = s (1 - s).
    s = torch.sigmoid(x)
    return s * (1 + x * (1 - s))


FUNCTIONS = {
    "sigmoid": SmoothFunction(
        value=torch.sigmoid,
        derivative=lambda x: torch.sigmoid(x) * torch.sigmoid(-x),
        curvature=0.0963,
    ),
    "tanh": SmoothFunction(
        value=torch.tanh, derivative=lambda x: 1 - torch.tanh(x) ** 2, curvature=0.77
    ),
    "erf": SmoothFunction(
        value=torch.erf,
        derivative=lambda x: 2 / math.sqrt(math.pi) * torch.exp(-x * x),
        curvature=0.969,
    ),
    "gelu": SmoothFunction(
        value=F.gelu,
        derivative=lambda x: _cdf(x) + x * _density(x),
        curvature=0.798,
        valley=-0.7517915246935645,
    ),
    "gelu_tanh": SmoothFunction(
        value=lambda x: F.gelu(x, approximate="tanh"),
        derivative=_slope_of_tanh_gelu,
        curvature=0.81,
        valley=-0.7524614220710,
    ),
    "silu": SmoothFunction(
        value=F.silu, derivative=_slope_of_silu, curvature=0.501, valley=-1.2784645427610738
    ),
    "elu": SmoothFunction(
        value=F.elu, derivative=lambda x: torch.exp(x.clamp(max=0)), curvature=1.0
    ),
    "softplus": SmoothFunction(
        value=lambda x: torch.logaddexp(x, torch.zeros_like(x)), derivative=torch.sigmoid, bend=1
    ),
    "exp": SmoothFunction(value=torch.exp, derivative=torch.exp, bend=1),
    "square": SmoothFunction(value=torch.square, derivative=lambda x: 2 * x, bend=1, valley=0.0),
    "reciprocal": SmoothFunction(
        value=torch.reciprocal, derivative=lambda x: -1 / (x * x), bend=1, positive=True
    ),
    "rsqrt": SmoothFunction(
        value=torch.rsqrt, derivative=lambda x: -0.5 * x**-1.5, bend=1, positive=True
    ),
    "sqrt": SmoothFunction(
        value=lambda x: x.clamp(min=0).sqrt(),
        derivative=lambda x: 0.5 * x.clamp(min=0) ** -0.5,
        bend=-1,
    ),
}
"""By name, as `_graph.Activation` has it."""
