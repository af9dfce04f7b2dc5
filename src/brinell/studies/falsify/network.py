"""The network of a query: ONNX Runtime, whose answers count, and the same in torch for attacks and proofs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.core.record import Array
from brinell.models._onnx_network import Rows, compare, convert_file
from brinell.models._onnx_session import TYPES, WRONG_FORMAT, digest_of, in_batches, open_session

COMPARED = 4
"""Inputs on which torch is compared with ONNX Runtime."""


@dataclass(eq=False)
class QueryNetwork:
    """A network of one input and one output, asked with flattened inputs."""

    path: Path
    session: Any
    shape: tuple[int, ...]
    """Shape of an input without the samples."""
    batch: int | None
    """Number of inputs that the file takes at once; None for any number."""
    outputs: int
    module: nn.Module | None
    """The same in torch; None where it cannot be converted."""
    obstacle: str
    """Why there is none."""
    forwards: int = field(default=0)
    """Inputs that ONNX Runtime answered."""

    @property
    def element_type(self) -> Any:
        """Element type of the inputs."""
        return TYPES[self.session.get_inputs()[0].type]

    def answer(self, x: Array) -> Array:
        """(n, outputs) float64 of inputs (n, inputs) in the type of the network."""
        rows = x.astype(self.element_type).reshape(len(x), *self.shape)
        name = self.session.get_inputs()[0].name
        (outputs,) = in_batches(lambda part: [np.asarray(self.session.run(None, {name: part})[0])], rows, self.batch)
        self.forwards += len(rows)
        return outputs.reshape(len(rows), -1).astype(np.float64)


def open_network(text: str, name: str, inputs: int, outputs: int) -> QueryNetwork:
    """Open the network of a query.

    Args:
        text: MODEL.onnx or NAME=MODEL.onnx.
        name: name of the network in the query; empty where it has none.
        inputs: number of inputs of the query.
        outputs: number of outputs of the query.

    Raises:
        RequestError: the file is missing, damaged, or has other inputs and outputs than the query.
    """
    if "?" in text or text.startswith("onnx:"):
        plain = text.partition("?")[0].removeprefix("onnx:")
        raise RequestError(f"the network is a file without options, and gradients are taken where they can be had: write {plain}")
    label, separator, file = text.partition("=")
    path = Path(file if separator else text).expanduser()
    if separator and name and label != name:
        raise RequestError(f"the query asks about a network {name!r}, and --network names {label!r}: write {name}={path}")
    if not path.is_file():
        raise RequestError(f"there is no file {str(path)!r}: name a network, such as --network MODEL.onnx")
    _, size = digest_of(path)
    with bounded.decoding(path, size, WRONG_FORMAT):
        session = open_session(path)
        shape, batch = _shape_of(path, session, inputs)
        network = QueryNetwork(path, session, shape, batch, outputs, None, "")
        width = network.answer(np.zeros((1, inputs))).shape[1]
        if width != outputs:
            raise RequestError(f"{path} answers with {width} values, and the query has {outputs} outputs")
        try:
            converted, _ = convert_file(path, session.get_outputs()[0].name, before_softmax=False)
            module = nn.Sequential(Rows(converted, last=False, sides=shape, dtype=network.element_type), nn.Flatten()).eval()
            x = np.random.default_rng(0).random((COMPARED, inputs))
            with torch.no_grad():
                compare(torch.from_numpy(network.answer(x)), module(torch.from_numpy(x)).double())
            network.module = module
        except Exception as error:  # whatever the converter meets
            network.obstacle = one_line(error, 120)
        return network


def _shape_of(path: Path, session: Any, inputs: int) -> tuple[tuple[int, ...], int | None]:
    """Shape of one input, and the number of inputs that the file takes at once."""
    entries = session.get_inputs()
    if len(entries) != 1 or entries[0].type not in TYPES:
        listing = ", ".join(f"{entry.name} {entry.type} {entry.shape}" for entry in entries)
        raise RequestError(f"{path} takes {listing}: only networks of one input of real numbers are asked")
    sides = list(entries[0].shape)
    lengths = [side for side in sides[1:] if isinstance(side, int)]
    size = int(np.prod(lengths)) if len(lengths) == len(sides) - 1 and sides else -1
    if size != inputs:
        raise RequestError(f"{path} takes inputs of shape {sides}, and the query has {inputs} inputs")
    return tuple(lengths), sides[0] if isinstance(sides[0], int) else None
