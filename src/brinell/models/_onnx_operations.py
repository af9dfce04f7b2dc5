"""Operations of ONNX in torch: what `models._onnx_network` needs to carry out a graph with gradients.

The operations are those of the specification (ONNX operators, default domain) in the forms of versions 7 to 23: a setting that
moved from the attributes to the inputs is read from where it is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["OPERATIONS", "Attributes", "Inputs", "Unconvertible"]


class Unconvertible(Exception):
    """An operation, or a form of it, that has no counterpart in torch here; the text is a clause about the operation."""


Attributes = Mapping[str, Any]
"""Attributes of a node by name: numbers, text, lists, or a tensor."""
TYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
}
"""Element types of ONNX by their numbers."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs and attributes of a node."""

    values: Sequence[Tensor | None]
    """None where an optional input is left out."""
    attributes: Attributes
    batch: int | None
    """Number of samples that the file was exported for; None for any number."""
    samples: int
    """Number of samples of this call."""

    def __getitem__(self, position: int) -> Tensor:
        """A required input."""
        value = self.optional(position)
        if value is None:
            raise Unconvertible(f"lacks its input {position}")
        return value

    def optional(self, position: int) -> Tensor | None:
        """An input, or None."""
        return self.values[position] if position < len(self.values) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def numbers(self, name: str, position: int) -> list[int] | None:
        """Whole numbers that are an attribute in old versions and an input in new ones."""
        value = self.optional(position)
        if value is not None:
            return [int(number) for number in value.flatten().tolist()]
        stored = self.attribute(name)
        return None if stored is None else [int(number) for number in (stored if isinstance(stored, list) else [stored])]

    def number(self, name: str, position: int, default: float | None = None) -> float | None:
        """A number that is an attribute in old versions and an input in new ones."""
        value = self.optional(position)
        return self.attribute(name, default) if value is None else float(value)


Operation = Callable[[Inputs], Tensor | tuple[Tensor, ...]]
"""Carries out a node."""


def _pads(inputs: Inputs, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """Padding before and after each axis of space."""
    mode = inputs.attribute("auto_pad", "NOTSET")
    axes = len(kernel)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for length, k, s, d in zip(inputs[0].shape[2:], kernel, stride, dilation, strict=True):
            total = max(0, (math.ceil(length / s) - 1) * s + d * (k - 1) + 1 - length)
            pads.append((total // 2, total - total // 2) if mode == "SAME_UPPER" else (total - total // 2, total // 2))
        return pads
    pads_ = inputs.attribute("pads") if mode == "NOTSET" else None
    return list(zip(pads_[:axes], pads_[axes:], strict=True)) if pads_ else [(0, 0)] * axes


def _around(
    x: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0, most: Sequence[int] | None = None
) -> tuple[Tensor, list[int]]:
    """Padding that torch's layers take themselves where both sides are alike, up to `most`; otherwise the padded input and 0."""
    if all(before == after for before, after in pads) and all(p <= m for (p, _), m in zip(pads, most or (), strict=False)):
        return x, [before for before, _ in pads]
    return F.pad(x, list(chain.from_iterable(reversed(pads))), value=value), [0] * len(pads)


def _convolution(inputs: Inputs) -> Tensor:
    weight = inputs[1]
    axes = weight.dim() - 2
    stride, dilation = inputs.attribute("strides", [1] * axes), inputs.attribute("dilations", [1] * axes)
    x, padding = _around(inputs[0], _pads(inputs, weight.shape[2:], stride, dilation))
    layer = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}.get(axes)
    if layer is None:
        raise Unconvertible(f"has {axes} axes of space")
    return layer(x, weight, inputs.optional(2), stride, padding, dilation, inputs.attribute("group", 1))


def _transposed_convolution(inputs: Inputs) -> Tensor:
    weight = inputs[1]
    axes = weight.dim() - 2
    layer = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}.get(axes)
    unit = [1] * axes
    pads = _pads(inputs, weight.shape[2:], unit, unit)
    if layer is None or any(before != after for before, after in pads) or inputs.attribute("output_shape"):
        raise Unconvertible("has a form that torch lacks")
    stride, dilation = inputs.attribute("strides", unit), inputs.attribute("dilations", unit)
    extra, groups = inputs.attribute("output_padding", [0] * axes), inputs.attribute("group", 1)
    return layer(inputs[0], weight, inputs.optional(2), stride, [before for before, _ in pads], extra, groups, dilation)


def _gemm(inputs: Inputs) -> Tensor:
    first = inputs[0].T if inputs.attribute("transA", 0) else inputs[0]
    second = inputs[1] if inputs.attribute("transB", 0) else inputs[1].T
    alpha, beta, bias = inputs.attribute("alpha", 1.0), inputs.attribute("beta", 1.0), inputs.optional(2)
    scaled = second if alpha == 1 else alpha * second
    if bias is None:
        return F.linear(first, scaled)
    bias = bias if beta == 1 else beta * bias
    return F.linear(first, scaled, bias) if bias.dim() == 1 else F.linear(first, scaled) + bias


def _batch_norm(inputs: Inputs) -> Tensor:
    if inputs.attribute("training_mode", 0):
        raise Unconvertible("normalises by statistics of its batch")
    scale, shift, mean, variance = (inputs[k] for k in range(1, 5))
    return F.batch_norm(inputs[0], mean, variance, scale, shift, False, 0.0, inputs.attribute("epsilon", 1e-5))


def _layer_norm(inputs: Inputs) -> Tensor:
    axis = inputs.attribute("axis", -1)
    shape = inputs[0].shape[axis:]
    bias = inputs.optional(2)
    return F.layer_norm(inputs[0], shape, inputs[1].reshape(shape), bias, inputs.attribute("epsilon", 1e-5))


def _instance_norm(inputs: Inputs) -> Tensor:
    return F.instance_norm(inputs[0], None, None, inputs[1], inputs[2], True, 0.0, inputs.attribute("epsilon", 1e-5))


def _pool(inputs: Inputs, largest: bool) -> Tensor:
    kernel: list[int] = inputs.attribute("kernel_shape")
    unit = [1] * len(kernel)
    stride, dilation = inputs.attribute("strides", unit), inputs.attribute("dilations", unit)
    pads, partial = _pads(inputs, kernel, stride, dilation), bool(inputs.attribute("ceil_mode", 0))
    if len(kernel) not in (1, 2, 3):
        raise Unconvertible(f"has {len(kernel)} axes of space")
    if largest:
        x, padding = _around(inputs[0], pads, -math.inf, [k // 2 for k in kernel])
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
        return pool(x, kernel, stride, padding, dilation, partial)
    counted = bool(inputs.attribute("count_include_pad", 0))
    x, padding = _around(inputs[0], pads, most=[k // 2 for k in kernel])
    if any(d != 1 for d in dilation) or (x is not inputs[0] and not counted):
        raise Unconvertible("averages windows that torch lacks")
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
    return average(x, kernel, stride, padding, partial, counted)


def _reduced(function: Callable[..., Tensor]) -> Operation:
    def reduce(inputs: Inputs) -> Tensor:
        axes = inputs.numbers("axes", 1)
        if axes is None and inputs.attribute("noop_with_empty_axes", 0):
            return inputs[0]
        return function(inputs[0], axes or list(range(inputs[0].dim())), keepdim=bool(inputs.attribute("keepdims", 1)))

    return reduce


def _reshape(inputs: Inputs) -> Tensor:
    x, shape = inputs[0], inputs.numbers("shape", 1)
    if shape is None:
        raise Unconvertible("does not say its shape")
    if not inputs.attribute("allowzero", 0):
        shape = [x.shape[k] if length == 0 else length for k, length in enumerate(shape)]
    if shape and x.dim() and shape[0] == inputs.batch != inputs.samples == x.shape[0]:
        shape[0] = inputs.samples  # the number of samples at the export
    return x.reshape(shape)


def _flatten(inputs: Inputs) -> Tensor:
    axis = inputs.attribute("axis", 1)
    if axis == 1:
        return inputs[0].flatten(1)
    return inputs[0].reshape(math.prod(inputs[0].shape[:axis]), -1)


def _squeeze(inputs: Inputs) -> Tensor:
    axes = inputs.numbers("axes", 1)
    return inputs[0].squeeze() if axes is None else inputs[0].squeeze(tuple(axes))


def _unsqueeze(inputs: Inputs) -> Tensor:
    value, axes = inputs[0], inputs.numbers("axes", 1) or []
    rank = value.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        value = value.unsqueeze(axis)
    return value


def _transpose(inputs: Inputs) -> Tensor:
    order = inputs.attribute("perm")
    return inputs[0].permute(order if order else tuple(reversed(range(inputs[0].dim()))))


def _concatenate(inputs: Inputs) -> Tensor:
    return torch.cat([value for value in inputs.values if value is not None], inputs.attribute("axis"))


def _split(inputs: Inputs) -> tuple[Tensor, ...]:
    axis, sizes = inputs.attribute("axis", 0), inputs.numbers("split", 1)
    if sizes is None:
        return torch.chunk(inputs[0], inputs.attribute("num_outputs", inputs.attribute("outputs")), axis)
    return torch.split(inputs[0], sizes, axis)


def _slice(inputs: Inputs) -> Tensor:
    x, starts, ends = inputs[0], inputs.numbers("starts", 1) or [], inputs.numbers("ends", 2) or []
    axes, steps = inputs.numbers("axes", 3), inputs.numbers("steps", 4)
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = axes[k] if axes else k, steps[k] if steps else 1
        positions = list(range(x.shape[axis]))[slice(start, end if end >= -x.shape[axis] else None, step)]
        if step > 0:
            first, last = (positions[0], positions[-1] + 1) if positions else (0, 0)
            x = torch.ops.aten.slice(x, axis, first, last, step)
        else:
            x = x.index_select(axis, torch.tensor(positions, device=x.device))
    return x


def _gather(inputs: Inputs) -> Tensor:
    x, index, axis = inputs[0], inputs[1].long(), inputs.attribute("axis", 0)
    index = torch.where(index < 0, index + x.shape[axis], index)
    if index.dim() == 0:
        return x.select(axis, int(index))
    axis %= x.dim()
    return x.index_select(axis, index.flatten()).reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def _pad(inputs: Inputs) -> Tensor:
    x, pads, value = inputs[0], inputs.numbers("pads", 1) or [], inputs.number("value", 2, 0.0) or 0.0
    axes = inputs.numbers("axes", 3) or list(range(x.dim()))
    around = [(0, 0)] * x.dim()
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        around[axis] = (before, after)
    mode = inputs.attribute("mode", "constant")
    while len(around) > 1 and around[0] == (0, 0) and (mode == "constant" or len(around) > x.dim() - 2):
        around = around[1:]
    flat = list(chain.from_iterable(reversed(around)))
    return F.pad(x, flat, value=value) if mode == "constant" else F.pad(x, flat, mode={"edge": "replicate"}.get(mode, mode))


def _constant(inputs: Inputs) -> Tensor:
    kinds = {"value_float": torch.float32, "value_floats": torch.float32, "value_int": torch.int64, "value_ints": torch.int64}
    for name, dtype in kinds.items():
        if name in inputs.attributes:
            return torch.tensor(inputs.attribute(name), dtype=dtype)
    value = inputs.attribute("value")
    if not isinstance(value, Tensor):
        raise Unconvertible("holds something else than numbers")
    return value


def _filled(inputs: Inputs) -> Tensor:
    value: Tensor = inputs.attribute("value", torch.zeros(1))
    return value.flatten()[0].expand([int(length) for length in inputs[0].tolist()]).clone()


def _cast(inputs: Inputs) -> Tensor:
    dtype = TYPES.get(inputs.attribute("to"))
    if dtype is None:
        raise Unconvertible(f"converts to the type {inputs.attribute('to')}")
    return inputs[0].to(dtype)


def _clip(inputs: Inputs) -> Tensor:
    return inputs[0].clamp(inputs.number("min", 1), inputs.number("max", 2))


def _expand(inputs: Inputs) -> Tensor:
    x, shape = inputs[0], [int(length) for length in inputs[1].tolist()]
    common = [
        max(pair) for pair in zip(*([1] * (max(x.dim(), len(shape)) - len(s)) + list(s) for s in (x.shape, shape)), strict=True)
    ]
    return x.expand(common)


def _tile(inputs: Inputs) -> Tensor:
    return inputs[0].repeat([int(times) for times in inputs[1].tolist()])


def _shape(inputs: Inputs) -> Tensor:
    lengths = inputs[0].shape[inputs.attribute("start", 0) : inputs.attribute("end")]
    return torch.tensor(lengths, dtype=torch.int64)


def _dropout(inputs: Inputs) -> Tensor:
    return inputs[0]


def _prelu(inputs: Inputs) -> Tensor:
    x, slope = inputs[0], inputs[1]
    if slope.numel() == 1:
        return F.leaky_relu(x, float(slope))
    return x.clamp(min=0) + slope * x.clamp(max=0)


def _softmax(function: Callable[..., Tensor]) -> Operation:
    def soften(inputs: Inputs) -> Tensor:
        axis = inputs.attribute("axis", -1)
        return function(inputs[0], axis)

    return soften


def _of_one(function: Callable[..., Tensor], **defaults: float) -> Operation:
    """A function of one value, with attributes in the order of the function's arguments."""
    return lambda inputs: function(inputs[0], *(inputs.attribute(name, default) for name, default in defaults.items()))


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    return lambda inputs: function(inputs[0], inputs[1])


def _of_all(function: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    def combine(inputs: Inputs) -> Tensor:
        value, *others = [value for value in inputs.values if value is not None]
        for other in others:
            value = function(value, other)
        return value

    return combine


def _quotient(first: Tensor, second: Tensor) -> Tensor:
    whole = not first.is_floating_point() and not second.is_floating_point()
    return torch.div(first, second, rounding_mode="trunc" if whole else None)


def _gelu(inputs: Inputs) -> Tensor:
    return F.gelu(inputs[0], approximate=inputs.attribute("approximate", "none"))


def _hard_sigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    return (alpha * x + beta).clamp(0, 1)


OPERATIONS: Mapping[str, Operation] = {
    "Abs": _of_one(torch.abs),
    "Add": _of_two(torch.add),
    "And": _of_two(torch.logical_and),
    "AveragePool": lambda inputs: _pool(inputs, largest=False),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concatenate,
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Div": _of_two(_quotient),
    "Dropout": _dropout,
    "Elu": _of_one(F.elu, alpha=1.0),
    "Equal": _of_two(torch.eq),
    "Erf": _of_one(torch.erf),
    "Exp": _of_one(torch.exp),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _of_one(torch.floor),
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda inputs: inputs[0].mean(tuple(range(2, inputs[0].dim())), keepdim=True),
    "GlobalMaxPool": lambda inputs: inputs[0].amax(tuple(range(2, inputs[0].dim())), keepdim=True),
    "Greater": _of_two(torch.gt),
    "HardSigmoid": _of_one(_hard_sigmoid, alpha=0.2, beta=0.5),
    "HardSwish": _of_one(F.hardswish),
    "Identity": _dropout,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _of_one(F.leaky_relu, alpha=0.01),
    "Less": _of_two(torch.lt),
    "Log": _of_one(torch.log),
    "LogSoftmax": _softmax(torch.log_softmax),
    "MatMul": _of_two(torch.matmul),
    "Max": _of_all(torch.maximum),
    "MaxPool": lambda inputs: _pool(inputs, largest=True),
    "Min": _of_all(torch.minimum),
    "Mish": _of_one(F.mish),
    "Mul": _of_two(torch.mul),
    "Neg": _of_one(torch.neg),
    "Not": _of_one(torch.logical_not),
    "Or": _of_two(torch.logical_or),
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": _of_two(torch.pow),
    "Reciprocal": _of_one(torch.reciprocal),
    "ReduceL2": _reduced(lambda x, axes, keepdim: x.square().sum(axes, keepdim=keepdim).sqrt()),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean),
    "ReduceMin": _reduced(torch.amin),
    "ReduceSum": _reduced(torch.sum),
    "Relu": _of_one(torch.relu),
    "Reshape": _reshape,
    "Selu": _of_one(F.selu),
    "Shape": _shape,
    "Sigmoid": _of_one(torch.sigmoid),
    "Sign": _of_one(torch.sign),
    "Slice": _slice,
    "Softmax": _softmax(torch.softmax),
    "Softplus": _of_one(F.softplus),
    "Split": _split,
    "Sqrt": _of_one(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _of_two(torch.sub),
    "Sum": _of_all(torch.add),
    "Tanh": _of_one(torch.tanh),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": lambda inputs: torch.where(inputs[0], inputs[1], inputs[2]),
}
"""Operations by their names in ONNX."""
