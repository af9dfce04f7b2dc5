"""A network as it was read for bounds, written as a file of ONNX with one input `X` of a single sample and one output `Y`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.bounds._graph import (
    Activation,
    Concatenation,
    Convolution,
    Gather,
    Graph,
    Linear,
    MaxPool,
    Node,
    Reshape,
    Scale,
    Sum,
)

OPSET, IR_VERSION = 17, 8
"""Versions that the verifiers of the competitions read."""
ACTIVATIONS = {"relu": "Relu", "leaky_relu": "LeakyRelu", "sigmoid": "Sigmoid", "tanh": "Tanh"}
"""Operations of ONNX by the names of activations."""


@dataclass
class _Writer:
    """Collects nodes and constants."""

    helper: Any
    numpy_helper: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, value: "np.ndarray[Any, Any]") -> str:
        name = f"C{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def tensor(self, value: Tensor) -> str:
        return self.constant(value.detach().cpu().to(torch.float32).numpy())

    def add(self, operation: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Append a node; returns the name of its output."""
        output = output or f"T{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operation, list(inputs), [output], **attributes))
        return output

    def reshape(self, name: str, shape: Sequence[int], output: str = "") -> str:
        return self.add("Reshape", [name, self.constant(np.array([1, *shape], np.int64))], output)

    def write(self, node: Node, names: list[str], output: str) -> None:
        operation = node.operation
        if isinstance(operation, Convolution):
            inputs = [names[0], self.tensor(operation.weight)]
            inputs += [] if operation.bias is None else [self.tensor(operation.bias)]
            self.add(
                "Conv",
                inputs,
                output,
                strides=list(operation.stride),
                pads=[*operation.padding, *operation.padding],
                dilations=list(operation.dilation),
                group=operation.groups,
            )
        elif isinstance(operation, Linear):
            inputs = [names[0], self.tensor(operation.weight)]
            inputs += [] if operation.bias is None else [self.tensor(operation.bias)]
            self.add("Gemm", inputs, output, transB=1)
        elif isinstance(operation, Scale):
            scaled = self.add("Mul", [names[0], self.tensor(operation.factor)])
            self.add("Add", [scaled, self.tensor(operation.shift)], output)
        elif isinstance(operation, Reshape):
            self.reshape(names[0], operation.shape, output)
        elif isinstance(operation, Gather):
            zero = self.tensor(torch.zeros(1, 1))
            flat = self.add("Concat", [self.add("Flatten", [names[0]]), zero], axis=1)
            index = operation.index.flatten()  # -1 counts from the end, where the zero is
            picked = self.add("Gather", [flat, self.constant(index.cpu().numpy())], axis=1)
            self.reshape(picked, tuple(operation.index.shape), output)
        elif isinstance(operation, Sum):
            factors = zip(names, operation.factors, strict=True)
            parts = [name if f == 1 else self.add("Mul", [name, self.tensor(torch.tensor(f))]) for name, f in factors]
            self.add("Add", parts, output)
        elif isinstance(operation, Concatenation):
            self.add("Concat", names, output, axis=operation.axis + 1)
        elif isinstance(operation, MaxPool):
            pads = [*operation.padding, *operation.padding]
            self.add("MaxPool", names, output, kernel_shape=list(operation.kernel), strides=list(operation.stride), pads=pads)
        else:
            assert isinstance(operation, Activation)
            slope = {"alpha": operation.slope} if operation.name == "leaky_relu" else {}
            self.add(ACTIVATIONS[operation.name], names, output, **slope)


def onnx_bytes(graph: Graph) -> bytes:
    """The content of a file of ONNX that answers as a graph, in float32. Needs the package onnx."""
    from onnx import TensorProto, helper, numpy_helper

    writer = _Writer(helper, numpy_helper)
    names = ["X", *(f"N{k}" for k in range(1, len(graph.nodes)))]
    names[-1] = "Y"
    for k, node in enumerate(graph.nodes[1:], start=1):
        writer.write(node, [names[j] for j in node.arguments], names[k])
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *node.shape])
        for name, node in (("X", graph.nodes[0]), ("Y", graph.nodes[-1]))
    ]
    content = helper.make_graph(writer.nodes, "network", ports[:1], ports[1:], writer.constants)
    model = helper.make_model(content, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    packed: bytes = model.SerializeToString()
    return packed
