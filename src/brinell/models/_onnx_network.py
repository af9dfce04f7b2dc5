"""A network in ONNX as a module of torch, so that attacks get gradients and proofs see its layers.

onnx2pytorch converts it, and its answers are compared with those of ONNX Runtime before anything
uses them.
"""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.detection import BoxForm
from brinell.core.errors import RequestError, one_line
from brinell.core.record import Array
from brinell.models._answers import are_probabilities, logits_of_probabilities, random_inputs
from brinell.models._containers import FixedBatch
from brinell.models._detections import Decoded
from brinell.models._function import FunctionModel
from brinell.models._torch_model import TorchModel

__all__ = ["FlatNetwork", "convert"]

COMPARED = 8
"""Number of random inputs on which both networks must agree."""
TOLERANCE = 1e-3
"""Largest difference between their answers, as a share of the largest score."""


class Rows(nn.Module):
    """The network on inputs (n, *shape) with the channels first."""

    def __init__(
        self, network: nn.Module, last: bool, sides: tuple[int, ...] | None, dtype: Any
    ) -> None:
        super().__init__()
        self.network, self._last, self._sides = network, last, sides
        self._dtype = torch.from_numpy(np.zeros(0, dtype)).dtype

    def forward(self, x: Tensor) -> Any:
        """Scores of the file's output."""
        x = x.to(self._dtype)
        x = x.movedim(1, -1) if self._last else x
        return self.network(x if self._sides is None else x.reshape(len(x), *self._sides))


def convert_file(file: Path, output: str, *, before_softmax: bool) -> tuple[nn.Module, int | None]:
    """The network of a file in torch, and the only number of inputs it takes, None for any."""
    import onnx
    from onnx2pytorch import ConvertModel

    model = onnx.load(file)
    graph = model.graph
    # The input of a softmax over the classes is the logits.
    if before_softmax:
        for node in graph.node:
            axis = next(
                (attribute.i for attribute in node.attribute if attribute.name == "axis"), -1
            )
            if output in node.output and node.op_type == "Softmax" and axis in (-1, 1):
                output = str(node.input[0])
                break
    # Its one output is the logits: nothing behind them is converted.
    del graph.output[:]
    graph.output.append(onnx.ValueInfoProto(name=output))

    # Initializers may be listed as inputs; the first other one is the input.
    constants = {tensor.name for tensor in graph.initializer}
    lengths = next(
        port for port in graph.input if port.name not in constants
    ).type.tensor_type.shape.dim
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it guesses shows in the comparison
        network = ConvertModel(model).eval()
    # Its Gather and Slice index by lists, at each call.
    warnings.filterwarnings("ignore", "Using a non-tuple sequence", UserWarning)
    # ONNX writes 0 for an axis of any length.
    return network, int(lengths[0].dim_value) or None if lengths else None


def convert(model: FunctionModel, file: Path, preprocessing: Mapping[str, Any]) -> TorchModel:
    """The network of a file in torch, for any number of inputs or for that of the file."""
    source = model.module.function
    try:
        network, size = convert_file(file, model.path or source.outputs[0], before_softmax=True)
    except ImportError:
        raise RequestError(
            "onnx2pytorch is not installed, which gradients=true needs: pip install 'brinell[onnx]'"
        ) from None

    module = Rows(network, source.last, source.sides, source.dtype)
    try:
        return _compared(model, module, preprocessing)
    except Exception:
        # A reshape in it may hold the number of inputs that the file was exported for.
        size = size or source.batch
        if size is None:
            raise
        return _compared(model, FixedBatch(module, size), preprocessing)


def _compared(
    model: FunctionModel, module: nn.Module, preprocessing: Mapping[str, Any]
) -> TorchModel:
    """The model around a converted network, once its answers are those of ONNX Runtime."""
    boxes, decode = model.info.output, model.module.function.decoder
    converted = TorchModel(
        (module if decode is None else Decoded(module, decode)).eval(),
        model.domain,
        classes=model.classes,
        map_output=boxes,
        name=model.name,
        preprocessing=preprocessing,
        code=model.digest(),
        architecture="ONNX",
        class_names=model.info.class_names,
    )

    # Random inputs reach branches that a few samples would not.
    x = random_inputs(model.domain, COMPARED)
    with torch.no_grad():
        answers = model.predict(x), converted.predict(x)
    if isinstance(boxes, BoxForm):
        candidates = [boxes.unflatten(answer) for answer in answers]
        # Corners and scores differ by orders of magnitude, so each has a tolerance of its own.
        compare(*(part[..., :4] for part in candidates))
        compare(*(part[..., 4:] for part in candidates))
    else:
        logits = [
            logits_of_probabilities(scores) if are_probabilities(scores) else scores
            for scores in answers
        ]
        # Logits are known up to a constant: their log-softmax is compared.
        compare(*(scores.double().log_softmax(1) for scores in logits))
    return converted


def compare(expected: Tensor, answers: Tensor) -> None:
    """Compare the answers of ONNX Runtime with those in torch."""
    difference = (
        float((expected - answers).abs().max()) if expected.shape == answers.shape else float("inf")
    )
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise ValueError(
            f"its answers differ from those of ONNX Runtime, by up to {difference:.3g}"
        )


class FlatNetwork:
    """A network of a file that is asked with flattened inputs; the same in torch if possible."""

    def __init__(self, network: Any, shape: tuple[int, ...], path: Path) -> None:
        self._network, self._shape = network, shape
        self.element_type, self.forwards = np.dtype(self._network.dtype), 0
        self.module: nn.Module | None = None
        self.obstacle = ""
        """Why there is no module."""

        try:
            converted, _ = convert_file(path, network.outputs[0], before_softmax=False)
            rows = Rows(converted, last=False, sides=self._shape, dtype=self.element_type)
            module = nn.Sequential(rows, nn.Flatten()).eval()
            x = np.random.default_rng(0).random((COMPARED, math.prod(self._shape)))
            with torch.no_grad():
                compare(torch.from_numpy(self.answer(x)), module(torch.from_numpy(x)).double())
            self.module = module
        except Exception as error:
            # The converter may fail in any way.
            self.obstacle = one_line(error, 120)

    def answer(self, x: Array) -> Array:
        """(n, outputs) float64 of inputs (n, inputs) in the type of the network, by
        ONNX Runtime.
        """
        self.forwards += len(x)
        outputs: Array = (
            np.asarray(self._network(x.reshape(len(x), *self._shape)))
            .reshape(len(x), -1)
            .astype(np.float64)
        )
        return outputs
