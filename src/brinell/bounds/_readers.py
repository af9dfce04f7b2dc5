"""Operations of torch by name, and the nodes that they become."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.bounds._graph import Activation, Concatenation, Convolution, Linear, MaxPool, Reshape, Scale, Sum
from brinell.bounds._recorder import Reader, Recorder, Unbounded

__all__ = ["READERS"]


def _double(value: Any) -> Tensor:
    return torch.as_tensor(value).detach().cpu().double()


def _pair(value: Sequence[int]) -> tuple[int, int]:
    return (int(value[0]), int(value[-1]))


def _convolution(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    node = trace.node(b["input"])
    if node is None or trace.node(b["weight"]) is not None or b["transposed"] or len(shape) not in (2, 3):
        raise Unbounded("there is no bound for this kind of convolution")
    weight = _double(b["weight"])
    geometry: list[Sequence[int]] = [b["stride"], b["padding"], b["dilation"]]
    if len(shape) == 2:
        c, length = trace.shape(node)
        node = trace.add(Reshape((c, 1, length)), [node], (c, 1, length))
        weight = weight[:, :, None]
        geometry = [(fill, g[0]) for fill, g in zip((1, 0, 1), geometry, strict=True)]
    bias = None if b["bias"] is None else _double(b["bias"])
    stride, padding, dilation = (_pair(g) for g in geometry)
    convolution = Convolution(weight, bias, stride, padding, dilation, b["groups"])
    out = trace.add(convolution, [node], shape if len(shape) == 3 else (shape[0], 1, shape[1]))
    return out if len(shape) == 3 else trace.add(Reshape(shape), [out], shape)


def _linear(trace: Recorder, node: Any, weight: Any, bias: Any, shape: tuple[int, ...]) -> int:
    """(out, in) weight."""
    argument = trace.node(node)
    if argument is None or len(trace.shape(argument)) != 1:
        raise Unbounded("there is no bound for a matrix product of this kind")
    return trace.add(Linear(_double(weight), None if bias is None else _double(bias)), [argument], shape)


def _addmm(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if b["beta"] != 1 or b["alpha"] != 1 or trace.node(b["mat2"]) is not None:
        raise Unbounded("there is no bound for a matrix product of this kind")
    return _linear(trace, b["mat1"], b["mat2"].t(), b["self"].expand(shape), shape)


def _mm(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if trace.node(b["mat2"]) is not None:
        raise Unbounded("the network multiplies values of its input with each other")
    return _linear(trace, b["self"], b["mat2"].t(), None, shape)


def _scaled(trace: Recorder, node: int, factor: Any, shift: Any, shape: tuple[int, ...]) -> int:
    """`node * factor + shift`, broadcast."""
    if trace.shape(node) != shape:
        node = trace.indexed(node, lambda x: x.expand(len(x), *shape) if x.dim() > 1 else x, shape)
    factor, shift = (_constant(_double(part), shape) for part in (factor, shift))
    return trace.add(Scale(factor, shift), [node], shape)


def _constant(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    if value.dim() == len(shape) + 1:
        if len(value) != 1 and not bool((value == value[:1]).all()):
            raise Unbounded("the network adds another constant to each input of a batch")
        value = value[0]
    return value.expand(shape).contiguous()


def _sum(sign: float) -> "Reader":
    def read(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
        first, second = b["self"], b["other"]
        scale = sign * float(b.get("alpha") or 1)
        nodes = trace.node(first), trace.node(second)
        if nodes[0] is not None and nodes[1] is not None:
            if trace.shape(nodes[0]) != trace.shape(nodes[1]):
                raise Unbounded("there is no bound for sums of values of different shapes")
            return trace.add(Sum((1.0, scale)), [nodes[0], nodes[1]], shape)
        if nodes[0] is not None:
            return _scaled(trace, nodes[0], 1.0, scale * _double(second), shape)
        assert nodes[1] is not None
        return _scaled(trace, nodes[1], scale, first, shape)

    return read


def _product(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    nodes = trace.node(b["self"]), trace.node(b["other"])
    if nodes[0] is not None and nodes[1] is not None:
        raise Unbounded("the network multiplies values of its input with each other")
    node, factor = (nodes[0], b["other"]) if nodes[0] is not None else (nodes[1], b["self"])
    assert node is not None
    return _scaled(trace, node, factor, 0.0, shape)


def _quotient(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    node = trace.node(b["self"])
    if node is None or trace.node(b["other"]) is not None:
        raise Unbounded("the network divides by values of its input")
    return _scaled(trace, node, 1.0 / _double(b["other"]), 0.0, shape)


def _negative(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    return _scaled(trace, trace.positions[id(b["self"])], -1.0, 0.0, shape)


def _batch_norm(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if b.get("training"):
        raise Unbounded("the network normalises by statistics of its batch: set it to evaluation")
    mean, var = _double(b["running_mean"]), _double(b["running_var"])
    factor = (1.0 if b["weight"] is None else _double(b["weight"])) / (var + b["eps"]).sqrt()
    shift = (0.0 if b["bias"] is None else _double(b["bias"])) - mean * factor
    tail = [1] * (len(shape) - 1)
    return _scaled(trace, trace.positions[id(b["input"])], factor.reshape(-1, *tail), shift.reshape(-1, *tail), shape)


def _activation(name: str) -> "Reader":
    def read(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
        slope = float(b.get("negative_slope", 0.0)) if name == "leaky_relu" else 0.0
        return trace.add(Activation(name, slope), [trace.positions[id(b["self"])]], shape)

    return read


def _clamp(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    node, low, high = trace.positions[id(b["self"])], b.get("min"), b.get("max")
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        raise Unbounded("there is no bound for a clamp by tensors")
    if low is not None:
        node = _clamped(trace, node, 1.0, float(low), shape)
    return node if high is None else _clamped(trace, node, -1.0, float(high), shape)


def _clamped(trace: Recorder, node: int, sign: float, end: float, shape: tuple[int, ...]) -> int:
    """`end + sign * relu(sign * (x - end))`."""
    node = _scaled(trace, node, sign, -sign * end, shape)
    return _scaled(trace, trace.add(Activation("relu"), [node], shape), sign, end, shape)


def _hardtanh(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    return _clamp(trace, {"self": b["self"], "min": b["min_val"], "max": b["max_val"]}, shape)


def _max_pool(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    if b["ceil_mode"] or any(d != 1 for d in b["dilation"]) or len(shape) != 3:
        raise Unbounded("there is no bound for max pooling with dilation or partial windows")
    kernel = _pair(b["kernel_size"])
    pool = MaxPool(kernel, _pair(b["stride"] or b["kernel_size"]), _pair(b["padding"]))
    return trace.add(pool, [trace.positions[id(b["self"])]], shape)


def _average_pool(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    kernel, padding = _pair(b["kernel_size"]), _pair(b["padding"])
    if b["ceil_mode"] or len(shape) != 3 or (any(padding) and not b["count_include_pad"]):
        raise Unbounded("there is no bound for average pooling with partial windows")
    return _averaged(
        trace, trace.positions[id(b["self"])], kernel, _pair(b["stride"] or kernel), padding, shape, b["divisor_override"]
    )


def _averaged(
    trace: Recorder,
    node: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    shape: tuple[int, ...],
    divisor: int | None = None,
) -> int:
    """A depthwise convolution with equal weights."""
    channels = trace.shape(node)[0]
    weight = torch.full((channels, 1, *kernel), 1.0 / (divisor or prod(kernel)), dtype=torch.float64)
    return trace.add(Convolution(weight, None, stride, padding, groups=channels), [node], shape)


def _adaptive_pool(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    node = trace.positions[id(b["self"])]
    before = trace.shape(node)[1:]
    if any(n % m for n, m in zip(before, shape[1:], strict=True)):
        raise Unbounded("there is no bound for adaptive pooling into windows of different sizes")
    kernel = _pair([n // m for n, m in zip(before, shape[1:], strict=True)])
    return _averaged(trace, node, kernel, kernel, (0, 0), shape)


def _mean(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    return _reduced(trace, b, shape, mean=True)


def _total(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    return _reduced(trace, b, shape, mean=False)


def _reduced(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...], mean: bool) -> int:
    """Sum or mean over axes of a value."""
    node = trace.positions[id(b["self"])]
    before = trace.shape(node)
    axes = sorted(axis % (len(before) + 1) for axis in b["dim"] or [])
    if not axes or axes[0] == 0:
        raise Unbounded("the network mixes inputs of a batch")
    if len(before) == 3 and axes == [2, 3]:
        kernel = (before[1], before[2])
        out = _averaged(trace, node, kernel, kernel, (0, 0), (before[0], 1, 1), None if mean else 1)
        return trace.add(Reshape(shape), [out], shape)
    size = prod(before)
    flat = trace.add(Reshape((size,)), [node], (size,))
    unit = torch.eye(size, dtype=torch.float64).reshape(size, *before)
    with torch.utils._python_dispatch._disable_current_modes():
        weight = (unit.mean(axes) if mean else unit.sum(axes)).reshape(size, -1).T.contiguous()
    out = trace.add(Linear(weight, None), [flat], (len(weight),))
    return trace.add(Reshape(shape), [out], shape)


def _selection(function: Callable[[Tensor, dict[str, Any]], Tensor]) -> "Reader":
    """An operation that selects, moves or pads values."""

    def read(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
        return trace.indexed(trace.positions[id(b["self"])], lambda x: function(x, b), shape)

    return read


def _viewed(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    return trace.add(Reshape(shape), [trace.positions[id(b["self"])]], shape)


def _padded(x: Tensor, b: dict[str, Any]) -> Tensor:
    if b["value"]:
        raise Unbounded("there is no bound for padding with other values than 0")
    return F.pad(x, b["pad"])


def _concatenated(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    axis = b["dim"] % (len(shape) + 1)
    nodes = [trace.node(part) for part in b["tensors"]]
    if axis == 0 or None in nodes:
        raise Unbounded("the network puts constants beside values, or mixes inputs of a batch")
    return trace.add(Concatenation(axis - 1), [node for node in nodes if node is not None], shape)


def _softmax(trace: Recorder, b: dict[str, Any], shape: tuple[int, ...]) -> int:
    raise Unbounded("probabilities are answered: name the output before the softmax, or leave it out")


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
    "sigmoid": _activation("sigmoid"),
    "tanh": _activation("tanh"),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "hardtanh": _hardtanh,
    "max_pool2d_with_indices": _max_pool,
    "avg_pool2d": _average_pool,
    "_adaptive_avg_pool2d": _adaptive_pool,
    "mean": _mean,
    "sum": _total,
    "view": _viewed,
    "_unsafe_view": _viewed,
    "reshape": _viewed,
    "unsqueeze": _viewed,
    "squeeze": _viewed,
    "slice": _selection(lambda x, b: torch.ops.aten.slice(x, b["dim"], b["start"], b["end"], b["step"])),
    "permute": _selection(lambda x, b: x.permute(b["dims"])),
    "transpose": _selection(lambda x, b: x.transpose(b["dim0"], b["dim1"])),
    "flip": _selection(lambda x, b: x.flip(b["dims"])),
    "select": _selection(lambda x, b: x.select(b["dim"], b["index"])),
    "expand": _selection(lambda x, b: x.expand(b["size"])),
    "constant_pad_nd": _selection(_padded),
    "cat": _concatenated,
    "_softmax": _softmax,
}
