"""A network as it was read for bounds, as a file of ONNX."""

import io
import warnings

import torch
from torch import Tensor, nn

from brinell.bounds._graph import Graph

OPSET = 17
"""Version that the verifiers of the competitions read."""


class _Scores(nn.Module):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Tensor) -> Tensor:
        return self.graph.values(x)[-1]


def onnx_bytes(graph: Graph, x: Tensor) -> bytes:
    """A network in float32 as a file of ONNX: one input `X` (1, *shape) as `x`, one output `Y`."""
    file = io.BytesIO()
    names = {"input_names": ["X"], "output_names": ["Y"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's age, and of shapes that are constants
        torch.onnx.export(_Scores(graph), (x,), file, dynamo=False, opset_version=OPSET, **names)  # type: ignore[arg-type]
    return file.getvalue()
