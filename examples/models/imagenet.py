"""ImageNet networks whose published weights load key for key.

All take images in [0, 1] of any size they can be brought to.

MobileNet V1, V2 and MCUNet come from TFLite files and are described by a list of operations,
`NAME.graph.json`, that lies beside the weights `NAME.safetensors`; the factory reads it (and the
shapes of the weights) from there. Say where it is by `args=graph=FILE`, or set BRINELL_SHARED to
the folder that holds imagenet_weights/.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F

FILE = Path(__file__).resolve()


class Fire(nn.Module):
    """SqueezeNet's module: squeeze to few channels, then expand by 1x1 and by 3x3 filters side by
    side.
    """

    def __init__(self, width_in: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(width_in, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width_in, h, w) to (n, 2 * expand, h, w)."""
        x = F.relu(self.squeeze(x))
        return torch.cat((F.relu(self.expand1x1(x)), F.relu(self.expand3x3(x))), 1)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.0 as Caffe ran it: pixels 0 to 255 minus a mean, and a last convolution with
    padding.
    """

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(
            "mean", torch.tensor((123.0, 117.0, 104.0)).reshape(-1, 1, 1), persistent=False
        )
        self.conv1 = nn.Conv2d(3, 96, 7, 2)
        self.fire2, self.fire3, self.fire4 = Fire(96, 16, 64), Fire(128, 16, 64), Fire(128, 32, 128)
        self.fire5, self.fire6 = Fire(256, 32, 128), Fire(256, 48, 192)
        self.fire7, self.fire8, self.fire9 = (
            Fire(384, 48, 192),
            Fire(384, 64, 256),
            Fire(512, 64, 256),
        )
        self.conv10 = nn.Conv2d(512, 1000, 1, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 224, 224) in [0, 1] to (n, 1000) logits."""
        if x.shape[1] != 3:
            raise ValueError(f"images have {x.shape[1]} channels, not 3")
        x = _pool(F.relu(self.conv1(x * 255 - self.mean)))
        x = _pool(self.fire4(self.fire3(self.fire2(x))))
        x = _pool(self.fire8(self.fire7(self.fire6(self.fire5(x)))))
        return F.relu(self.conv10(self.fire9(x))).mean((2, 3))


def _pool(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 2, ceil_mode=True)


class GraphNet(nn.Module):
    """A network that is a list of operations over named values, from `x` to `logits`.

    Args:
        graph: the content of a `.graph.json`.
        shapes: shape of each weight by its name; the layers are made after them.
    """

    def __init__(self, graph: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.size: int = graph["input_size"]
        self.ops: list[dict[str, Any]] = graph["ops"]
        for op in self.ops:
            if op["op"] == "conv":
                out, width, *kernel = shapes[op["layer"] + ".weight"]
                layer = nn.Conv2d(
                    width * op["groups"], out, tuple(kernel), op["stride"], groups=op["groups"]
                )
                self.add_module(op["layer"], layer)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) in [0, 1], brought to the network's size, to (n, 1000) logits."""
        if x.shape[-2:] != (self.size, self.size):
            x = F.interpolate(
                x, (self.size, self.size), mode="bilinear", antialias=True, align_corners=False
            )
        values = {"x": x * 2 - 1}
        for op in self.ops:
            values[op["output"]] = self._run(op, values)
        return values["logits"]

    def _run(self, op: dict[str, Any], values: dict[str, Tensor]) -> Tensor:
        if op["op"] == "add":
            first, second = op["input"]
            return _activate(values[first] + values[second], op["act"])
        x = values[op["input"]]
        if op["op"] == "conv":
            x = F.pad(x, op["pad"]) if any(op["pad"]) else x
            return _activate(self.get_submodule(op["layer"])(x), op["act"])
        if op["op"] == "pad":
            return F.pad(x, op["pad"])
        if op["op"] == "global_avg_pool":
            return x.mean((2, 3), keepdim=True)
        if op["op"] == "flatten":
            return x.flatten(1)
        raise ValueError(f"the graph has an operation {op['op']!r}, which is not known here")


def _activate(x: Tensor, name: str) -> Tensor:
    return {"none": lambda x: x, "relu": F.relu, "relu6": F.relu6}[name](x)


def _graph_net(name: str, graph: str) -> nn.Module:
    shared = Path(os.environ.get("BRINELL_SHARED") or FILE.parents[3] / "shared" / "data")
    file = Path(graph) if graph else shared / "imagenet_weights" / f"{name}.graph.json"
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: say args=graph=FILE")
    with safe_open(
        file.with_name(file.name.replace(".graph.json", ".safetensors")), "pt"
    ) as tensors:
        shapes = {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}
    return GraphNet(json.loads(file.read_text()), shapes)


def squeezenet1_0() -> nn.Module:
    """SqueezeNet 1.0, pruned: 0.640 on the 250 photographs (weights of
    songhan/SqueezeNet-Deep-Compression).
    """
    return SqueezeNet()


def mobilenet_v1(graph: str = "") -> nn.Module:
    """MobileNet V1: 0.864 (weights of google-coral/test_data, taken out of their 8 bits)."""
    return _graph_net("mobilenet_v1", graph)


def mobilenet_v2(graph: str = "") -> nn.Module:
    """MobileNet V2: 0.868 (likewise)."""
    return _graph_net("mobilenet_v2", graph)


def mcunet_144(graph: str = "") -> nn.Module:
    """MCUNet at 144 pixels: 0.636 (weights of GreenWaves-Technologies/mobilenet)."""
    return _graph_net("mcunet_144", graph)
