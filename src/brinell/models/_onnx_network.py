"""A network in ONNX as a module of torch, so that attacks get gradients and proofs see its layers.

The module carries out the nodes of the graph one after another (`models._onnx_operations`). Whoever uses it compares its answers
with those of ONNX Runtime first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.detection import BoxForm
from brinell.core.errors import RequestError, one_line
from brinell.core.model import Model
from brinell.models import _onnx_operations
from brinell.models._answers import random_inputs
from brinell.models._detections import Decoded, Decoder
from brinell.models._onnx_operations import Attributes, Inputs, Unconvertible
from brinell.models._onnx_resize import resize
from brinell.models._torch_model import TorchModel

__all__ = ["Form", "OnnxNetwork", "Unconvertible", "compare", "convert"]

OPERATIONS = {**_onnx_operations.OPERATIONS, "Resize": resize}
"""Functions that carry out the nodes of a graph, by the names of the operations."""
COMPARED = 8
"""Number of random inputs on which both networks must agree."""
TOLERANCE = 1e-3
"""Largest difference between their answers, as a share of the largest score."""

DEFAULT_DOMAINS = ("", "ai.onnx")
"""Names of the domain of ONNX's own operations."""
MOST_NODES = 100_000
"""Maximum number of nodes of a graph."""


class OnnxNetwork(nn.Module):
    """A graph of ONNX with one input that depends on the samples.

    Args:
        model: the parsed file, an `onnx.ModelProto`.
        folder: the folder of its external weights.
        output: name of the output to answer.
        before_softmax: answer the argument of that output if it is a softmax over the classes.

    Raises:
        Unconvertible: an operation that is not known here.
    """

    def __init__(self, model: Any, folder: Path, output: str, before_softmax: bool = True) -> None:
        super().__init__()
        from onnx import numpy_helper

        graph = model.graph
        if before_softmax:
            output = next((str(node.input[0]) for node in graph.node if output in node.output and _is_last_softmax(node)), output)
        if len(graph.node) > MOST_NODES:
            raise Unconvertible(f"has {len(graph.node)} nodes, and at most {MOST_NODES} are converted")
        self._output = output
        self._constants: dict[str, str] = {}
        """Name of the buffer of each constant."""
        for tensor in graph.initializer:
            self._add_constant(tensor.name, numpy_helper.to_array(tensor, base_dir=str(folder)))
        (self._input,) = (port.name for port in graph.input if port.name not in self._constants)
        self.batch = _batch_of(next(port for port in graph.input if port.name == self._input))
        unknown = sorted({_public_name(node) for node in graph.node if _operation_name(node) is None})
        if unknown:
            raise Unconvertible(f"has operations without a counterpart in torch here: {', '.join(unknown)}")
        self._nodes = [
            (str(node.op_type), tuple(node.input), tuple(node.output), _attributes(node, str(folder))) for node in graph.node
        ]
        self._last_use = {
            name: k for k, (_, inputs, outputs, _) in enumerate(self._nodes) for name in (*inputs, *outputs) if name != output
        }

    def _add_constant(self, name: str, value: "np.ndarray[Any, Any]") -> None:
        """Keep a constant as a buffer."""
        buffer = f"constant_{len(self._constants)}"
        self.register_buffer(buffer, torch.from_numpy(np.array(value)))
        self._constants[name] = buffer

    def forward(self, x: Tensor) -> Tensor:
        """The output for inputs (n, *shape) in the layout of the file."""
        values: dict[str, Tensor] = {name: getattr(self, buffer) for name, buffer in self._constants.items()}
        values[self._input] = x
        for k, (operation, names, outputs, attributes) in enumerate(self._nodes):
            inputs = Inputs([values[name] if name else None for name in names], attributes, self.batch, len(x))
            try:
                result = OPERATIONS[operation](inputs)
            except Unconvertible as error:
                raise Unconvertible(f"has an operation {operation} that {error}") from None
            results = result if isinstance(result, tuple) else (result,)
            values.update((name, value) for name, value in zip(outputs, results, strict=False) if name)
            for name in names:
                if self._last_use.get(name) == k:
                    values.pop(name, None)  # activations are not kept longer than they are needed
        return values[self._output]


class _Rows(nn.Module):
    """The network on inputs (n, *shape) with the channels first."""

    def __init__(
        self, network: OnnxNetwork, last: bool, sides: tuple[int, ...] | None, dtype: torch.dtype, batch: int | None = None
    ) -> None:
        super().__init__()
        self.network, self._last, self._sides, self._dtype, self._batch = network, last, sides, dtype, batch

    def forward(self, x: Tensor) -> Tensor:
        """(n, classes) scores."""
        x = x.to(self._dtype)
        x = x.movedim(1, -1) if self._last else x
        x = x if self._sides is None else x.reshape(len(x), *self._sides)
        if self._batch is None:
            scores: Tensor = self.network(x)
            return scores
        filling = -len(x) % self._batch
        x_full = torch.cat([x, x[-1:].expand(filling, *x.shape[1:])]) if filling else x
        parts = [x_full[start : start + self._batch] for start in range(0, len(x_full), self._batch)]
        return torch.cat([self.network(part) for part in parts])[: len(x)]


@dataclass(frozen=True, kw_only=True)
class Form:
    """Inputs and output of a file."""

    output: str
    """Name of the output that holds the scores."""
    last: bool
    """True if images have their channels last."""
    sides: tuple[int, ...] | None
    """Shape of flattened inputs; None for inputs of the data's shape."""
    element_type: str
    """Name of the type of numbers, as numpy calls it."""


def convert(model: Model, file: Path, form: Form, preprocessing: Mapping[str, Any], decode: Decoder | None = None) -> TorchModel:
    """The network of a file in torch, for any number of inputs at once or else for as many as the file was exported for.

    Args:
        model: the same network in ONNX Runtime, with whose answers those in torch are compared.
        file: the file.
        form: its inputs and its output.
        preprocessing: as of a TorchModel.
        decode: what turns the output into the boxes of a detector, if it is one.

    Raises:
        RequestError: an operation that has no counterpart in torch here, or answers that are not those of ONNX Runtime.
    """
    import onnx

    clause = ""
    try:
        network = OnnxNetwork(onnx.load(file), file.parent, form.output)
        for batch in (None, network.batch) if network.batch else (None,):
            rows = _Rows(network, form.last, form.sides, TORCH_TYPES[form.element_type], batch)
            try:
                return _compared(model, rows if decode is None else Decoded(rows, decode), preprocessing)
            except FAILURES as error:
                clause = clause or _clause(error)
    except FAILURES as error:
        clause = _clause(error)
    raise RequestError(
        f"{file} {clause}: leave out gradients=true, which leaves attacks that need scores alone, or give the network in torch"
    )


def _clause(error: Exception) -> str:
    """Why a network cannot be carried out in torch."""
    return str(error) if isinstance(error, Unconvertible) else f"cannot be carried out in torch ({one_line(error, 120)})"


def _compared(model: Model, module: nn.Module, preprocessing: Mapping[str, Any]) -> TorchModel:
    """The model around a converted network, once its answers are those of ONNX Runtime."""
    boxes = model.info.output
    converted = TorchModel(
        module.eval(),
        model.domain,
        classes=model.classes,
        map_output=boxes,
        name=model.name,
        preprocessing=preprocessing,
        code=model.digest(),
        architecture="ONNX",
        class_names=model.info.class_names,
    )
    x = random_inputs(model.domain, COMPARED)
    with torch.no_grad():
        answers = model.predict(x), converted.predict(x)
    if isinstance(boxes, BoxForm):
        candidates = [boxes.unflatten(answer) for answer in answers]
        compare(*(part[..., :4] for part in candidates))
        compare(*(part[..., 4:] for part in candidates))
    else:
        compare(*(scores.double().log_softmax(1) for scores in answers))
    return converted


def compare(expected: Tensor, answers: Tensor) -> None:
    """Compare the answers of ONNX Runtime with those in torch.

    Raises:
        Unconvertible: they differ by more than rounding.
    """
    difference = float((expected - answers).abs().max()) if expected.shape == answers.shape else float("inf")
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise Unconvertible(f"answers differently in torch than in ONNX Runtime, by up to {difference:.3g}")


FAILURES = (Unconvertible, RequestError, RuntimeError, TypeError, IndexError, ValueError)
"""Errors of a network that torch cannot carry out."""
TORCH_TYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16}
"""Element types by the names of numpy."""


def _is_last_softmax(node: Any) -> bool:
    """True for a softmax along the last of two axes."""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1)
    return node.op_type == "Softmax" and node.domain in DEFAULT_DOMAINS and axis in (-1, 1)


def _operation_name(node: Any) -> str | None:
    return node.op_type if node.domain in DEFAULT_DOMAINS and node.op_type in OPERATIONS else None


def _public_name(node: Any) -> str:
    """Name of an operation as a message shows it."""
    return f"{node.domain}.{node.op_type}" if node.domain not in DEFAULT_DOMAINS else str(node.op_type)


def _batch_of(port: Any) -> int | None:
    """Number of samples that a file was exported for; None for any number."""
    lengths = port.type.tensor_type.shape.dim
    return int(lengths[0].dim_value) or None if lengths else None


def _attributes(node: Any, folder: str) -> Attributes:
    """Attributes of a node as numbers, text, lists and tensors."""
    from onnx import AttributeProto, helper, numpy_helper

    attributes: dict[str, Any] = {"outputs": len(node.output)}
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            attributes[attribute.name] = torch.from_numpy(np.array(numpy_helper.to_array(attribute.t, base_dir=folder)))
            continue
        value = helper.get_attribute_value(attribute)
        attributes[attribute.name] = value.decode() if isinstance(value, bytes) else list(value) if _is_list(value) else value
    return attributes


def _is_list(value: Any) -> bool:
    """True for repeated numbers."""
    return not isinstance(value, str | bytes | int | float) and hasattr(value, "__iter__")
