"""Decoding of FastestDet (one scale, 80 COCO classes) for Brinell: its raw output to corners in
pixels and scores.

brinell audit --data boxes:FOLDER --model
'onnx:FastestDet.onnx?bgr=true&decode=examples/detectors/fastestdet.py:decode'
"""

import torch
from torch import Tensor

STRIDE = 16
"""Pixels of a cell."""


def decode(raw: Tensor) -> Tensor:
    """(n, 5 + classes, rows, columns) to (n, rows * columns, 4 + classes).

    The channels are objectness, four raw box numbers, and a share for each class. A score is
    objectness^0.6 * share^0.4.
    """
    rows, columns = raw.shape[-2:]
    y = torch.arange(rows, device=raw.device).reshape(-1, 1)
    x = torch.arange(columns, device=raw.device).reshape(1, -1)
    centre_x, centre_y = (raw[:, 1].tanh() + x) * STRIDE, (raw[:, 2].tanh() + y) * STRIDE
    half_width, half_height = (
        raw[:, 3].sigmoid() * columns * STRIDE / 2,
        raw[:, 4].sigmoid() * rows * STRIDE / 2,
    )
    corners = torch.stack(
        (
            centre_x - half_width,
            centre_y - half_height,
            centre_x + half_width,
            centre_y + half_height,
        ),
        1,
    )
    sides = corners.new_tensor([columns, rows, columns, rows]).reshape(1, 4, 1, 1) * STRIDE
    corners = torch.minimum(corners.clamp_min(0), sides)
    scores = raw[:, :1].clamp_min(1e-9) ** 0.6 * raw[:, 5:].clamp_min(1e-9) ** 0.4
    return torch.cat((corners, scores), 1).flatten(2).transpose(1, 2)
