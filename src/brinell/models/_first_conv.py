"""The gradient of a network's first convolution to the image, two to five times faster on a CPU (docs/performance.md).

Where a convolution has few input channels, the libraries below torch take several times as long back to its input as forward,
and on small networks that is a quarter of a whole pass. The gradient to the input is itself a convolution: with a stride of s,
each of the s x s phases of the input sees every s-th weight along each axis, so one convolution of the output's gradient gives
all phases, and `pixel_shuffle` puts them side by side. With one channel and a stride of 1 it is a matrix product and a `fold`.
"""

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

FEW = 4
"""Input channels up to which it pays."""
WASTE = 1.5
"""How many weights the phases may have, zeros included, for each of the kernel's: 16 for the 9 of a 3 x 3 with a stride of 2 are
too many."""


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
    def pays(self) -> bool:
        """Whether this convolution of images is one whose gradient is found faster by another way."""
        few = self.weight.ndim == self.x.ndim == 4 and self.weight.shape[1] <= FEW and self.groups == 1
        if not few or isinstance(self.padding, str) or _pair(self.dilation) != (1, 1) or self.x.dtype != torch.float32:
            return False
        down, right = _pair(self.stride)
        if down != right or down == 1:
            return down == right and self.weight.shape[1] == 1
        sides = self.weight.shape[2:]
        return prod(down * -(-side // down) for side in sides) <= WASTE * prod(sides)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    down, right = (value, value) if isinstance(value, int) else (value[0], value[-1])
    return int(down), int(right)


def called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Call | None:
    """The call of `conv2d` that a `__torch_function__` receives, if a faster gradient pays for it."""
    if getattr(func, "__name__", "") != "conv2d":
        return None
    named = {{"input": "x"}.get(name, name): value for name, value in (kwargs or {}).items()}
    call = Call(*args, **named)
    return call if call.pays else None


def input_gradient(grad: Tensor, weight: Tensor, size: tuple[int, int], stride: int, padding: tuple[int, int]) -> Tensor:
    """(n, C, *size) gradient to the input of a convolution by `weight` (O, C, k, l), from that to its output (n, O, h, w)."""
    out, channels, *kernel = weight.shape
    if stride == 1 and channels == 1:
        columns = torch.matmul(weight.flatten(1).t(), grad.flatten(2))
        return F.fold(columns, size, tuple(kernel), padding=padding, stride=stride)
    steps = [-(-side // stride) for side in kernel]
    filled = [step * stride - side for step, side in zip(steps, kernel, strict=True)]
    phases = _padded(weight, filled).reshape(out, channels, steps[0], stride, steps[1], stride).permute(1, 3, 5, 0, 2, 4)
    phases = phases.reshape(channels * stride**2, out, *steps).flip(2, 3)
    whole = F.pixel_shuffle(F.conv2d(grad, phases, padding=(steps[0] - 1, steps[1] - 1)), stride)
    # What the convolution never reached, at the far ends, has no gradient.
    short = [max(0, pad + side - have) for pad, side, have in zip(padding, size, whole.shape[2:], strict=True)]
    return _padded(whole, short)[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]


def _padded(x: Tensor, more: list[int]) -> Tensor:
    return F.pad(x, (0, more[1], 0, more[0])) if any(more) else x


class _Attached(torch.autograd.Function):
    """The output of a convolution, as it is, with a way back to its input."""

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
    """While it is on, convolutions that pay get their way back to the input from `input_gradient`; weights keep their own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = called(func, args, kwargs)
        if call is None or not (torch.is_grad_enabled() and call.x.requires_grad) or torch.is_autocast_enabled("cpu"):
            return func(*args, **(kwargs or {}))
        y = func(call.x.detach(), *call[1:])
        return _Attached.apply(y, call.x, call.weight, _pair(call.stride)[0], _pair(call.padding))  # type: ignore[arg-type]
