"""Serve a network by MLServer on loopback, in a separate environment (`make server`), until Ctrl-C.

    python examples/served/serve.py &
    brinell audit --data digits --model http://127.0.0.1:8080/v2/models/digits --attack black-box
    --queries 500

This serves the built-in network of the digits. `serving` does the same for any torch module that is
a chain of layers.
"""

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from torch import nn

ROOT = Path(__file__).resolve().parent.parent.parent
MLSERVER = ROOT / ".venv-server" / "bin" / "mlserver"
KINDS = {
    nn.Conv2d: "conv",
    nn.MaxPool2d: "pool",
    nn.ReLU: "relu",
    nn.Flatten: "flatten",
    nn.Linear: "linear",
}
SECONDS = 60
"""The longest time that the server may take to start."""


@contextmanager
def serving(
    chain: nn.Sequential, name: str, shape: tuple[int, ...], port: int = 0
) -> Iterator[tuple[str, int]]:
    """The URL of a model and the process id of its server, while it is served.

    Args:
        chain: convolutions, two by two pools, ReLU, flatten and linear layers.
        name: the name of the model.
        shape: the shape of one input.
        port: the port of the server; 0 for any that is free.
    """
    with tempfile.TemporaryDirectory(prefix="brinell-served-") as temporary:
        folder = Path(temporary)
        port = export(chain, folder, name, shape, port)
        with (folder / "server.log").open("w") as log:
            process = subprocess.Popen(
                [MLSERVER, "start", folder], stdout=log, stderr=log, cwd=folder
            )
        try:
            url = f"http://127.0.0.1:{port}/v2/models/{name}"
            _wait(process, f"{url}/ready", folder / "server.log")
            yield url, process.pid
        finally:
            process.terminate()
            process.wait(SECONDS)


def export(
    chain: nn.Sequential, folder: Path, name: str, shape: tuple[int, ...], port: int = 0
) -> int:
    """Write weights, runtime and settings of a model into a folder, and return the port in the
    settings.
    """
    arrays = {"kinds": np.array([KINDS[type(layer)] for layer in chain])}
    for index, layer in enumerate(chain):
        weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
        arrays[f"{index}.weight"] = np.zeros(0) if weight is None else weight.detach().numpy()
        arrays[f"{index}.bias"] = np.zeros(0) if bias is None else bias.detach().numpy()
        form = (layer.stride[0], layer.padding[0]) if isinstance(layer, nn.Conv2d) else ()
        arrays[f"{index}.form"] = np.array(form, dtype=np.int64)
    np.savez(folder / "weights.npz", **arrays)
    shutil.copy(Path(__file__).with_name("runtime.py"), folder)
    ports = [port or _free() for port in (port, 0, 0)]
    model = {
        "name": name,
        "implementation": "runtime.Chain",
        "platform": "numpy",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, *shape]}],
        "outputs": [
            {
                "name": "logits",
                "datatype": "FP32",
                "shape": [-1, len(arrays[f"{len(chain) - 1}.bias"])],
            }
        ],
    }
    server = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True)) | {
        "host": "127.0.0.1"
    }
    (folder / "model-settings.json").write_text(json.dumps(model))
    (folder / "settings.json").write_text(json.dumps(server | {"parallel_workers": 0}))
    return ports[0]


def _free() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        with suppress(urllib.error.URLError, OSError), opener.open(url, timeout=5) as response:
            if response.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")


if __name__ == "__main__":
    from brinell.core.domain import Domain
    from brinell.models.digits_cnn import DigitsCnn

    network = DigitsCnn()(Domain(kind="image", shape=(1, 8, 8), levels=17)).module
    with serving(network, "digits", (1, 8, 8), 8080) as (address, _), suppress(KeyboardInterrupt):
        print(f"{address} is served; Ctrl-C ends it")
        while True:
            time.sleep(1)
