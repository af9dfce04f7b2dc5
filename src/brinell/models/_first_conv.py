"""The gradient of a network's first convolution to the image, two to five times faster on a CPU (docs/results/performance.md).

If a convolution has few input channels, the libraries below torch take several times as long for its input gradient as for the
forward pass. On small networks that is a quarter of a full pass. The input gradient is itself a convolution: with stride s,
each of the s x s phases of the input depends on every s-th weight along each axis. So one convolution of the output's gradient
gives all phases, and `pixel_shuffle` interleaves them. With one channel and stride 1 it is a matrix product and a `fold`.
"""

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

MOST_CHANNELS = 4
"""Maximum number of input channels for which the faster gradient pays."""
MOST_WASTE = 1.5
"""Maximum number of weights of all phases, zeros included, per weight of the kernel. The 16 weights for the 9 of a 3 x 3 kernel
with stride 2 are too many.
"""


class Call(NamedTuple):
    """The arguments of a `conv2d`."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] | str = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1

    @property
    def is_faster(self) -> bool:
        """True if the gradient of this convolution to images is computed faster here than by torch."""
        suitable = self.weight.ndim == self.x.ndim == 4 and self.weight.shape[1] <= MOST_CHANNELS and self.groups == 1
        if not suitable or isinstance(self.padding, str) or _pair(self.dilation) != (1, 1) or self.x.dtype != torch.float32:
            return False
        down, right = _pair(self.stride)
        if down != right or down == 1:
            return down == right and self.weight.shape[1] == 1
        sides = self.weight.shape[2:]
        return prod(down * -(-side // down) for side in sides) <= MOST_WASTE * prod(sides)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    down, right = (value, value) if isinstance(value, int) else (value[0], value[-1])
    return int(down), int(right)


def convolution_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Call | None:
    """The call of `conv2d` that a `__torch_function__` receives, if the faster gradient pays for it; otherwise None."""
    if getattr(func, "__name__", "") != "conv2d":
        return None
    arguments = {{"input": "x"}.get(name, name): value for name, value in (kwargs or {}).items()}
    call = Call(*args, **arguments)
    return call if call.is_faster else None


def input_gradient(grad: Tensor, weight: Tensor, size: tuple[int, int], stride: int, padding: tuple[int, int]) -> Tensor:
    """Gradient (n, C, *size) to the input of a convolution."""
    out, channels, *kernel = weight.shape
    if stride == 1 and channels == 1:
        columns = torch.matmul(weight.flatten(1).t(), grad.flatten(2))
        return F.fold(columns, size, tuple(kernel), padding=padding, stride=stride)
    steps = [-(-side // stride) for side in kernel]
    padding_sizes = [step * stride - side for step, side in zip(steps, kernel, strict=True)]
    phases = _padded(weight, padding_sizes).reshape(out, channels, steps[0], stride, steps[1], stride).permute(1, 3, 5, 0, 2, 4)
    phases = phases.reshape(channels * stride**2, out, *steps).flip(2, 3)
    full = F.pixel_shuffle(F.conv2d(grad, phases, padding=(steps[0] - 1, steps[1] - 1)), stride)
    # Values at the far ends that the convolution never reached have no gradient.
    missing = [max(0, pad + side - length) for pad, side, length in zip(padding, size, full.shape[2:], strict=True)]
    return _padded(full, missing)[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]


def _padded(x: Tensor, amounts: list[int]) -> Tensor:
    return F.pad(x, (0, amounts[1], 0, amounts[0])) if any(amounts) else x


class _WithInputGradient(torch.autograd.Function):
    """Returns the output of a convolution unchanged; its backward pass gives the gradient to the input."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, weight: Tensor, stride: int, padding: tuple[int, int]) -> Tensor:
        ctx.mark_dirty(y)  # so that what comes next may write into it, as it may into a convolution's output
        ctx.save_for_backward(weight)
        ctx.how = x.shape[2:], stride, padding
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        return grad, input_gradient(grad, weight, *ctx.how), None, None, None


class FastGradient(TorchFunctionMode):
    """While active, convolutions that profit get their input gradient from `input_gradient`; torch computes the others."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = convolution_call(func, args, kwargs)
        if call is None or not (torch.is_grad_enabled() and call.x.requires_grad) or torch.is_autocast_enabled("cpu"):
            return func(*args, **(kwargs or {}))
        y = func(call.x.detach(), *call[1:])
        return _WithInputGradient.apply(y, call.x, call.weight, _pair(call.stride)[0], _pair(call.padding))  # type: ignore[arg-type]
