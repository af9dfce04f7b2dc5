"""Operations of torch by name, and the nodes that they become.

A reader gets the recorder, the arguments `b` of the operation by name, and the shape of its value
without the batch; it adds the nodes that compute the value, and returns the number of the last.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from brinell.bounds._graph import (
    Activation,
    Concatenation,
    Convolution,
    Linear,
    MaxPool,
    Product,
    Reshape,
    Scaling,
    Sum,
)
from brinell.bounds._recorder import GraphRecorder, Reader, Unbounded


def _double(value: Any) -> Tensor:
    """A constant in float64 on the processor."""
    return torch.as_tensor(value).detach().cpu().double()


def _pair(value: Sequence[int]) -> tuple[int, int]:
    """A setting of both axes, which may be one number for both."""
    return (int(value[0]), int(value[-1]))


def _convolution(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    node = trace.node(b["input"])
    is_plain = trace.node(b["weight"]) is None and not b["transposed"]
    if node is None or not is_plain or len(shape) not in (2, 3):
        raise Unbounded("there is no bound for this kind of convolution")
    weight = _double(b["weight"])
    bias = None if b["bias"] is None else _double(b["bias"])
    stride = b["stride"]
    padding = b["padding"]
    dilation = b["dilation"]
    if len(shape) == 3:
        convolution = Convolution(
            weight, bias, _pair(stride), _pair(padding), _pair(dilation), b["groups"]
        )
        return trace.add(convolution, [node], shape)

    # A signal is a map of height 1.
    channels, length = trace.shape(node)
    node = trace.add(Reshape((channels, 1, length)), [node], (channels, 1, length))
    convolution = Convolution(
        weight[:, :, None],
        bias,
        _pair((1, stride[0])),
        _pair((0, padding[0])),
        _pair((1, dilation[0])),
        b["groups"],
    )
    out = trace.add(convolution, [node], (shape[0], 1, shape[1]))
    return trace.add(Reshape(shape), [out], shape)


def _linear(trace: GraphRecorder, node: Any, weight: Any, bias: Any, shape: tuple[int, ...]) -> int:
    """A matrix product with a weight (out, in), and a bias or None."""
    argument = trace.node(node)
    if argument is None:
        raise Unbounded("there is no bound for a matrix product of this kind")
    linear = Linear(_double(weight), None if bias is None else _double(bias))
    return trace.add(linear, [argument], shape)


def _addmm(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if b["beta"] != 1 or b["alpha"] != 1 or trace.node(b["mat2"]) is not None:
        raise Unbounded("there is no bound for a matrix product of this kind")
    return _linear(trace, b["mat1"], b["mat2"].t(), b["self"].expand(shape[-1:]), shape)


def _mm(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if trace.node(b["mat2"]) is not None:
        raise Unbounded("there is no bound for a matrix product of this kind")
    return _linear(trace, b["self"], b["mat2"].t(), bias=None, shape=shape)


def _matrices(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    """Products of matrices (n, ..., k, m) and (n, ..., m, l)."""
    nodes = [trace.node(b[name]) for name in ("self", "mat2")]
    if None in nodes:
        raise Unbounded("there is no bound for products of values with matrices by sample")
    # The recorder has split the batch of bmm, which may hold samples and heads, into both.
    parts = [node for node in nodes if node is not None]
    return trace.add(Product(matrices=True), parts, shape)


def _scaled(
    trace: GraphRecorder, node: int, factor: Any, shift: Any, shape: tuple[int, ...]
) -> int:
    """`node * factor + shift`, broadcast."""
    node = _broadcast(trace, node, shape)
    factor = _constant(_double(factor), shape)
    shift = _constant(_double(shift), shape)
    return trace.add(Scaling(factor, shift), [node], shape)


def _constant(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A constant (*shape), from one that may have an axis of equal samples."""
    if value.dim() == len(shape) + 1:
        if len(value) != 1 and not bool((value == value[:1]).all()):
            raise Unbounded("the network adds another constant to each input of a batch")
        value = value[0]
    return value.expand(shape).contiguous()


def _sum(sign: float) -> "Reader":
    """Reads a sum (1) or a difference (-1), with the factor `alpha` of the second value."""

    def read(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
        scale = sign * float(b.get("alpha") or 1)
        first = trace.node(b["self"])
        second = trace.node(b["other"])
        # Two values that depend on the input stay a sum; with a constant it is a scaling.
        if first is not None and second is not None:
            terms = [_broadcast(trace, first, shape), _broadcast(trace, second, shape)]
            return trace.add(Sum((1.0, scale)), terms, shape)
        if first is not None:
            return _scaled(trace, first, 1.0, scale * _double(b["other"]), shape)
        assert second is not None
        return _scaled(trace, second, scale, b["self"], shape)

    return read


def _product(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    first = trace.node(b["self"])
    second = trace.node(b["other"])
    if first is not None and second is not None:
        return _multiplied(trace, first, second, shape)
    node, factor = (first, b["other"]) if first is not None else (second, b["self"])
    assert node is not None
    return _scaled(trace, node, factor, 0.0, shape)


def _multiplied(trace: GraphRecorder, first: int, second: int, shape: tuple[int, ...]) -> int:
    """The product of two nodes, broadcast; of one with itself its square, of a tighter range."""
    first = _broadcast(trace, first, shape)
    second = _broadcast(trace, second, shape)
    if first == second:
        return trace.add(Activation("square"), [first], shape)
    return trace.add(Product(), [first, second], shape)


def _broadcast(trace: GraphRecorder, node: int, shape: tuple[int, ...]) -> int:
    """A node with the value of another, broadcast to a shape."""
    if trace.shape(node) == shape:
        return node
    missing = (1,) * (len(shape) - len(trace.shape(node)))
    return trace.indexed(
        node, lambda x: x.reshape(len(x), *missing, *x.shape[1:]).expand(len(x), *shape), shape
    )


def _quotient(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    node = trace.node(b["self"])
    divisor = trace.node(b["other"])
    if divisor is None:
        assert node is not None
        return _scaled(trace, node, 1.0 / _double(b["other"]), 0.0, shape)

    # A quotient is a product with the reciprocal: both have relaxations.
    inverse = trace.add(Activation("reciprocal"), [divisor], trace.shape(divisor))
    if node is None:
        return _scaled(trace, inverse, b["self"], 0.0, shape)
    return _multiplied(trace, node, inverse, shape)


def _negative(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    return _scaled(trace, b["self"].node, -1.0, 0.0, shape)


def _batch_norm(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if b.get("training"):
        raise Unbounded("the network normalises by statistics of its batch: set it to evaluation")
    mean = _double(b["running_mean"])
    var = _double(b["running_var"])
    weight = 1.0 if b["weight"] is None else _double(b["weight"])
    bias = 0.0 if b["bias"] is None else _double(b["bias"])
    # In evaluation mode batch norm is one factor and one shift for each channel.
    factor = weight / (var + b["eps"]).sqrt()
    shift = bias - mean * factor

    channels = [-1] + [1] * (len(shape) - 1)  # along the first axis of the shape
    return _scaled(trace, b["input"].node, factor.reshape(channels), shift.reshape(channels), shape)


def _activation(name: str) -> "Reader":
    """Reads an activation by its name in `_graph.Activation`."""

    def read(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
        slope = float(b.get("negative_slope", 0.0)) if name == "leaky_relu" else 0.0
        return trace.add(Activation(name, slope), [b["self"].node], shape)

    return read


def _gelu(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    return _activation("gelu_tanh" if b["approximate"] == "tanh" else "gelu")(trace, b, shape)


def _plain(name: str, **settings: float) -> "Reader":
    """An activation whose settings are those that are known."""

    def read(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
        if any(b[key] != value for key, value in settings.items()):
            raise Unbounded(f"there is a bound for {name} with {settings} alone")
        return _activation(name)(trace, b, shape)

    return read


def _absolute(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    # |x| is x above 0 and -x below: leaky ReLU of slope -1.
    return trace.add(Activation("leaky_relu", -1.0), [b["self"].node], shape)


def _power(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    names = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
    exponent = b["exponent"]
    if isinstance(exponent, Tensor) or float(exponent) not in names:
        raise Unbounded(f"there is no bound for powers other than {', '.join(map(str, names))}")
    return _activation(names[float(exponent)])(trace, b, shape)


def _softmax(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    # Counted from the end, where samples do not shift it.
    axis = b["dim"] if b["dim"] < 0 else b["dim"] - b["self"].dims
    if len(shape) < -axis or b["self"].dims + axis == 0:
        raise Unbounded("the network mixes inputs of a batch")
    return _softmax_of(trace, b["self"].node, axis)


def _softmax_of(trace: GraphRecorder, node: int, axis: int) -> int:
    """1 / sum of exp(x_j - x_i) over an axis from the end.

    Each difference is one value, so that a constant added to all cancels.
    """
    shape = trace.shape(node)
    count = shape[axis]
    # One value for each pair: where i is the place along the axis and j that along the new last
    # one, `columns` holds x_i and `rows` x_j.
    wide = (*shape, count)
    columns = trace.indexed(node, lambda x: x.unsqueeze(-1).expand(len(x), *wide), wide)
    rows = trace.indexed(
        node, lambda x: x.movedim(axis, -1).unsqueeze(axis - 1).expand(len(x), *wide), wide
    )
    differences = trace.add(Sum((1.0, -1.0)), [rows, columns], wide)
    exponentials = trace.add(Activation("exp"), [differences], wide)

    weights = torch.ones(1, count, dtype=torch.float64)
    total = trace.add(Linear(weights, bias=None), [exponentials], (*shape, 1))
    total = trace.add(Reshape(shape), [total], shape)
    return trace.add(Activation("reciprocal"), [total], shape)


def _layer_norm(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    count = len(b["normalized_shape"])
    width = prod(b["normalized_shape"])
    return _normalised(trace, b, shape, (*shape[:-count], width), b["weight"], b["bias"])


def _group_norm(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    channels = (shape[0], *[1] * (len(shape) - 1))
    weight = None if b["weight"] is None else b["weight"].reshape(channels)
    bias = None if b["bias"] is None else b["bias"].reshape(channels)
    return _normalised(trace, b, shape, (b["group"], prod(shape) // b["group"]), weight, bias)


def _normalised(
    trace: GraphRecorder,
    b: dict[str, Any],
    shape: tuple[int, ...],
    groups: tuple[int, ...],
    weight: Any,
    bias: Any,
) -> int:
    """The last axis of `groups` less its mean, over its deviation; then scaled in the own shape."""
    node = b["input"].node
    width = groups[-1]
    row = (*groups[:-1], 1)  # one value for each group
    node = node if groups == shape else trace.add(Reshape(groups), [node], groups)

    # The mean is subtracted by a matrix, so that centring is one linear node of the graph.
    centring = torch.eye(width, dtype=torch.float64) - 1 / width
    centred = trace.add(Linear(centring, bias=None), [node], groups)

    squares = trace.add(Activation("square"), [centred], groups)
    mean = torch.full((1, width), 1 / width, dtype=torch.float64)
    eps = torch.full((1,), b["eps"], dtype=torch.float64)
    # The small number in the root keeps the variance away from 0, where its inverse has no bound.
    variance = trace.add(Linear(mean, eps), [squares], row)

    inverse = trace.add(Activation("rsqrt"), [variance], row)
    node = _multiplied(trace, centred, inverse, groups)
    node = node if groups == shape else trace.add(Reshape(shape), [node], shape)
    scale = 1.0 if weight is None else weight
    shift = 0.0 if bias is None else bias
    return _scaled(trace, node, scale, shift, shape)


def _clamp(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    node = b["self"].node
    low = b.get("min")
    high = b.get("max")
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        raise Unbounded("there is no bound for a clamp by tensors")
    if low is not None:
        node = _clamped(trace, node, 1.0, float(low), shape)
    return node if high is None else _clamped(trace, node, -1.0, float(high), shape)


def _clamped(
    trace: GraphRecorder, node: int, sign: float, end: float, shape: tuple[int, ...]
) -> int:
    """`end + sign * relu(sign * (x - end))`."""
    node = _scaled(trace, node, sign, -sign * end, shape)
    rectified = trace.add(Activation("relu"), [node], shape)
    return _scaled(trace, rectified, sign, end, shape)


def _max_pool(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if b["ceil_mode"] or any(d != 1 for d in b["dilation"]) or len(shape) != 3:
        raise Unbounded("there is no bound for max pooling with dilation or partial windows")
    kernel = _pair(b["kernel_size"])
    pool = MaxPool(kernel, _pair(b["stride"] or b["kernel_size"]), _pair(b["padding"]))
    return trace.add(pool, [b["self"].node], shape)


def _average_pool(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    kernel = _pair(b["kernel_size"])
    padding = _pair(b["padding"])
    if b["ceil_mode"] or len(shape) != 3 or (any(padding) and not b["count_include_pad"]):
        raise Unbounded("there is no bound for average pooling with partial windows")
    stride = _pair(b["stride"] or kernel)
    divisor = b["divisor_override"]
    return _averaged(trace, b["self"].node, kernel, stride, padding, shape, divisor)


def _averaged(
    trace: GraphRecorder,
    node: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    shape: tuple[int, ...],
    divisor: int | None = None,
) -> int:
    """Sums over windows, divided by `divisor` or by the size of a window: a convolution."""
    # One group for each channel, so that none are mixed.
    channels = trace.shape(node)[0]
    factor = 1.0 / (divisor or prod(kernel))
    weight = torch.full((channels, 1, *kernel), factor, dtype=torch.float64)
    return trace.add(Convolution(weight, None, stride, padding, groups=channels), [node], shape)


def _sum_or_mean(
    trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...], mean: bool
) -> int:
    node = b["self"].node
    before = trace.shape(node)
    axes = sorted(axis % (len(before) + 1) for axis in b["dim"] or [])
    if not axes or axes[0] == 0:
        raise Unbounded("the network mixes inputs of a batch")

    # Over height and width of a map, behind samples and channels, it is one pooling.
    if len(before) == 3 and axes == [2, 3]:
        kernel = (before[1], before[2])
        # With a divisor of 1 an average is a sum.
        out = _averaged(trace, node, kernel, kernel, (0, 0), (before[0], 1, 1), None if mean else 1)
        return trace.add(Reshape(shape), [out], shape)

    # Any other sum is a product with a matrix, found from its values at the unit vectors.
    size = prod(before)
    flat = trace.add(Reshape((size,)), [node], (size,))
    unit = torch.eye(size, dtype=torch.float64).reshape(size, *before)
    with torch.utils._python_dispatch._disable_current_modes():
        weight = (unit.mean(axes) if mean else unit.sum(axes)).reshape(size, -1).T.contiguous()
    out = trace.add(Linear(weight, bias=None), [flat], (len(weight),))
    return trace.add(Reshape(shape), [out], shape)


def _concatenated(trace: GraphRecorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    axis = b["dim"] % (len(shape) + 1)
    # The first axis is that of the samples, which no node of the graph has.
    if axis == 0:
        raise Unbounded("the network mixes inputs of a batch")
    values = []
    for part in b["tensors"]:
        node = trace.node(part)
        if node is None:
            # A part that does not depend on the input becomes a constant of the graph.
            node = trace.constant(_constant(_double(part), tuple(part.shape[1:])))
        values.append(node)
    # Counted without the axis of the samples.
    return trace.add(Concatenation(axis - 1), values, shape)


READERS: dict[str, Reader] = {
    "convolution": _convolution,
    "addmm": _addmm,
    "mm": _mm,
    "add": _sum(1.0),
    "sub": _sum(-1.0),
    "mul": _product,
    "div": _quotient,
    "neg": _negative,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "relu": _activation("relu"),
    "leaky_relu": _activation("leaky_relu"),
    **{
        name: _activation(name)
        for name in (
            "sigmoid",
            "tanh",
            "erf",
            "silu",
            "exp",
            "reciprocal",
            "rsqrt",
            "sqrt",
            "square",
        )
    },
    "gelu": _gelu,
    "elu": _plain("elu", alpha=1, scale=1, input_scale=1),
    "softplus": _plain("softplus", beta=1),
    "abs": _absolute,
    "pow": _power,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "bmm": _matrices,
    "clamp": _clamp,
    "max_pool2d_with_indices": _max_pool,
    "avg_pool2d": _average_pool,
    "mean": partial(_sum_or_mean, mean=True),
    "sum": partial(_sum_or_mean, mean=False),
    "cat": _concatenated,
    "_softmax": _softmax,
    "_safe_softmax": _softmax,
}
