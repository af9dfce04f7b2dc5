"""Resize of ONNX in torch: larger maps by whole factors from the nearest pixel, and bilinear ones."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from brinell.models._onnx_operations import Inputs, Unconvertible

REPEATED = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
"""Coordinates and rounding under which a whole factor repeats every pixel."""
BILINEAR = {"half_pixel": False, "pytorch_half_pixel": False, "align_corners": True}
"""Coordinates of the bilinear form, and whether the outer pixels of both maps lie upon each other."""


def resize(inputs: Inputs) -> Tensor:
    """(n, c, h, w) to another height and width.

    Raises:
        Unconvertible: another form than these two.
    """
    x = inputs[0]
    if x.ndim != 4:
        raise Unconvertible(f"resizes {x.ndim} axes")
    height, width = _size(inputs, x)
    mode, coordinates = _text(inputs, "mode", "nearest"), _text(inputs, "coordinate_transformation_mode", "half_pixel")
    if mode == "nearest" and (coordinates, _text(inputs, "nearest_mode", "round_prefer_floor")) in REPEATED:
        if height % x.shape[2] == 0 and width % x.shape[3] == 0:
            return x.repeat_interleave(height // x.shape[2], 2).repeat_interleave(width // x.shape[3], 3)
    if mode == "linear" and coordinates in BILINEAR and min(height, width) > 1:
        return F.interpolate(x, (height, width), mode="bilinear", align_corners=BILINEAR[coordinates])
    raise Unconvertible(f"is {mode} with coordinates {coordinates} from {tuple(x.shape[2:])} to {(height, width)}")


def _size(inputs: Inputs, x: Tensor) -> tuple[int, int]:
    """Height and width of the result, from the input of sizes or of scales."""
    sizes, scales = inputs.optional(3), inputs.optional(2)
    if sizes is not None and sizes.numel():
        sides = [int(side) for side in sizes.tolist()]
    elif scales is not None and scales.numel():
        sides = [int(length * scale) for length, scale in zip(x.shape, scales.tolist(), strict=True)]
        if any(side != length * scale for side, length, scale in zip(sides, x.shape, scales.tolist(), strict=True)):
            raise Unconvertible("resizes to a fraction of a pixel")
    else:
        raise Unconvertible("has neither scales nor sizes")
    if sides[1] != x.shape[1]:
        raise Unconvertible("resizes the channels")
    return sides[2], sides[3]


def _text(inputs: Inputs, name: str, default: str) -> str:
    """A text among the attributes."""
    value: Any = inputs.attribute(name, default)
    return str(value)
