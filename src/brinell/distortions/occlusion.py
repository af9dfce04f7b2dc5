"""Occlusion: things in front of the lens. In a signal, stretches without contact.

A few opaque boxes of random place, form and shade, the same in all channels and in every frame of a
video. Their size follows the severity while their middle stays.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, frame, middles

BOXES = 4
"""Boxes in front of each input."""
ASPECT = 2.0
"""The longest side of a box is at most so many times its shortest."""


@dataclass(frozen=True, kw_only=True)
class Occlusion(Scaled):
    """Opaque boxes at random places."""

    domains = frozenset({"image", "video", "signal"})
    scale = Scale(small=(0.016, 0.042, 0.096, 0.21, 0.4), large=(0.024, 0.06, 0.13, 0.26, 0.49))
    """Area of all boxes together, as a share of the picture, before they overlap or stick out."""

    def distort(self, x: Tensor, area: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, ..., *frame) behind boxes that cover this share (n,) of a frame in all."""
        sides = frame(x)
        numbers = rng.uniform(BOXES, 4)
        # For each box its middle (two numbers, of which a signal takes one), its form and its
        # shade.
        aspect = torch.ones_like(numbers[..., 2])
        if len(sides) == 2:
            aspect = ASPECT ** (numbers[..., 2] - 0.5)
        # The sides of a box without a form, as shares of the frame's: all boxes have equal areas.
        edge = (area / BOXES)[:, None] ** (1 / len(sides))
        half = torch.stack([edge * aspect, edge / aspect], 2) / 2

        for box in range(BOXES):
            hidden = torch.ones(len(x), *sides, dtype=torch.bool, device=x.device)
            for axis, length in enumerate(sides):
                positions = middles(length, x.device)
                offsets = (positions - numbers[:, box, axis, None]).abs()
                covered = offsets <= half[:, box, axis, None]
                lengths = [length if dim == axis else 1 for dim in range(len(sides))]
                hidden &= covered.reshape(len(x), *lengths)

            hidden = hidden.reshape(len(x), *[1] * (x.ndim - 1 - len(sides)), *sides)
            x = torch.where(hidden, numbers[:, box, 3].reshape(-1, *[1] * (x.ndim - 1)), x)
        return x
