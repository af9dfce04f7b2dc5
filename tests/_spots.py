"""A detector with known answers: four quadrants are its candidates, and the brightness of a channel
is the score of a class.
"""

import json

import numpy as np
import torch
from PIL import Image
from torch import nn

from brinell.core.boxes import Objects

SIDE, STEEPNESS = 16, 10.0
QUADRANTS = torch.tensor(
    [[0, 0, 8, 8], [8, 0, 16, 8], [0, 8, 8, 16], [8, 8, 16, 16]], dtype=torch.float32
)
BRIGHT, DARK = 0.7, 0.2
VANISHING = BRIGHT - (0.5 + float(np.log(0.4 / 0.6)) / STEEPNESS)
"""Change of every pixel of an object at which its score falls to 0.4."""


class Spots(nn.Module):
    """Scores of three classes for each quadrant of a picture (n, 3, 16, 16)."""

    def forward(self, x):
        means = nn.functional.avg_pool2d(x, SIDE // 2).flatten(2).transpose(1, 2)
        scores = (STEEPNESS * (means - 0.5)).sigmoid()
        return torch.cat((QUADRANTS.to(x).expand(len(x), -1, -1), scores), 2)


class Final(nn.Module):
    """The same detector in torchvision's form: lists of final boxes."""

    def __init__(self):
        super().__init__()
        self.network = Spots()

    def forward(self, x):
        answers = []
        for boxes in self.network(x):
            scores, labels = boxes[:, 4:].max(1)
            shown = scores > 0.05
            answers.append(
                {"boxes": boxes[shown, :4], "scores": scores[shown], "labels": labels[shown]}
            )
        return answers


class Raw(nn.Module):
    """Brightness of the quadrants, for a function that decodes it."""

    def forward(self, x):
        return nn.functional.avg_pool2d(x, SIDE // 2)


def decode(raw):
    """What `Spots` answers, from what `Raw` does."""
    scores = (STEEPNESS * (raw.flatten(2).transpose(1, 2) - 0.5)).sigmoid()
    return torch.cat((QUADRANTS.to(raw).expand(len(raw), -1, -1), scores), 2)


def spots(*pictures):
    """Pictures (n, 3, 16, 16) and their objects, from (quadrant, class) of each object."""
    x, objects = np.full((len(pictures), 3, SIDE, SIDE), DARK, np.float32), []
    for number, picture in enumerate(pictures):
        for quadrant, label in picture:
            x0, y0, x1, y1 = QUADRANTS[quadrant].int().tolist()
            x[number, label, y0:y1, x0:x1] = BRIGHT
        boxes = QUADRANTS[[quadrant for quadrant, _ in picture]].double().numpy().reshape(-1, 4)
        labels = np.array([label for _, label in picture], np.int64)
        objects.append(Objects(boxes=boxes, labels=labels, crowd=np.zeros(len(labels), bool)))
    return x, objects


def entries(objects):
    """Objects as `brinell.data` takes them."""
    return [{"boxes": picture.boxes, "labels": picture.labels} for picture in objects]


NETWORK = """import torch

QUADRANTS = torch.tensor([[0, 0, 8, 8], [8, 0, 16, 8], [0, 8, 8, 16], [8, 8, 16, 16]], dtype=torch.float32)


class Raw(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x, 8)


def network():
    return Raw()


def decode(raw):
    scores = (10 * (raw.flatten(2).transpose(1, 2) - 0.5)).sigmoid()
    return torch.cat((QUADRANTS.to(raw).expand(len(raw), -1, -1), scores), 2)
"""


def write_spots(folder):
    """Write pictures and boxes.json into FOLDER/PICTURES, and the detector as detector.py and
    detector.onnx."""
    import onnx

    x, objects = spots([(0, 0), (3, 1)], [(1, 2)], [])
    (folder / "PICTURES" / "images").mkdir(parents=True)
    images = []
    for number, (picture, truth) in enumerate(zip(x, objects, strict=True)):
        Image.fromarray((255 * picture.transpose(1, 2, 0)).round().astype(np.uint8)).save(
            folder / "PICTURES" / "images" / f"{number}.png"
        )
        boxes, labels = truth.boxes.tolist(), truth.labels.tolist()
        images.append(
            {
                "file": f"{number}.png",
                "boxes": boxes,
                "labels": labels,
                "crowd": [False] * len(labels),
            }
        )
    content = {"classes": ["red", "green", "blue"], "images": images}
    (folder / "PICTURES" / "boxes.json").write_text(json.dumps(content))
    (folder / "detector.py").write_text(NETWORK)
    node = onnx.helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[8, 8], strides=[8, 8])
    ports = [
        onnx.helper.make_tensor_value_info(name, 1, ["n", 3, side, side])
        for name, side in (("x", 16), ("y", 2))
    ]
    graph = onnx.helper.make_graph([node], "detector", ports[:1], ports[1:])
    opset = [onnx.helper.make_opsetid("", 13)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "detector.onnx"
    )
