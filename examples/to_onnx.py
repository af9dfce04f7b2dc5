"""Export a torch module to an ONNX file with a first axis of any length, as Brinell and most
servers need it.

    python examples/to_onnx.py examples/models/mnist.py:cnn4 WEIGHTS.safetensors cnn4.onnx 1 28 28

The last numbers are the shape of one input. It needs onnx, onnxruntime and onnxscript (pip install
'brinell[onnx]' onnxscript).
"""

import sys
from pathlib import Path

import torch
from torch import nn

from brinell.core.user_files import import_file
from brinell.models._weights import load_weights, read_weights


def export(module: nn.Module, shape: tuple[int, ...], file: Path) -> None:
    """Write the file, with the weights inside it.

    Args:
        module: takes (n, *shape).
        shape: the shape of one input.
        file: the file to write.
    """
    example = torch.zeros(2, *shape)
    axis = {0: torch.export.Dim("samples")}
    torch.onnx.export(
        module.eval(),
        (example,),
        file,
        dynamo=True,
        external_data=False,
        dynamic_shapes=(axis,),
        verbose=False,
    )


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(f"usage: {__doc__}")
    source, weights, out, *sides = sys.argv[1:]
    path, _, factory = source.rpartition(":")
    network = getattr(import_file(Path(path)), factory)()
    load_weights(network, read_weights(Path(weights)), weights)
    export(network, tuple(map(int, sides)), Path(out))
