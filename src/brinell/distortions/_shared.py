"""Helpers that several distortions share. Inside a distortion every value runs from 0 to 1.

A distortion never sees the bounds of the data: `rlab.distort.distorted` moves inputs from their
bounds to [0, 1] and back, and leaves the values that the distortion left alone exactly as they
were. So one distortion serves photographs, millivolts and features of any unit, and a severity is
always a share of the range that a value has.
"""

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.core.contracts import Kind, Streams
from brinell.core.norms import per_sample as per_sample
from brinell.core.record import Array
from brinell.core.settings import Checked, Positive, Suite

SIDES = (32, 224)
"""Sides of the photographs on which scales are calibrated: CIFAR-10 and ImageNet."""


@dataclass(frozen=True)
class Scale:
    """The parameter of a distortion at severities 1 to 5, calibrated on photographs of two sizes.

    A blur of one pixel hides more of a small picture than of a large one. Between the two sizes the
    parameter is interpolated linearly in the logarithm of the side (the geometric mean of height
    and width; the length of a signal or a vector), and beyond them it stays.
    """

    small: tuple[float, float, float, float, float]
    """At 32 values a side."""
    large: tuple[float, float, float, float, float]
    """At 224 values a side."""

    @classmethod
    def constant(cls, *levels: float) -> "Scale":
        """A parameter that does not depend on the size, as for signals and for frames of a video.

        Raises:
            ValueError: not one value for each severity.
        """
        one, two, three, four, five = levels
        return cls(small=(one, two, three, four, five), large=(one, two, three, four, five))

    def __call__(self, severity: Tensor, x: Tensor) -> Tensor:
        """(n,) float32: the parameter for each severity (n,) on inputs of the size of `x`."""
        low = math.log(SIDES[0])
        high = math.log(SIDES[1])
        sides = frame(x)
        # The geometric mean.
        side = math.prod(sides) ** (1 / len(sides))
        share = min(1.0, max(0.0, (math.log(side) - low) / (high - low)))
        levels = [
            (1 - share) * small + share * large
            for small, large in zip(self.small, self.large, strict=True)
        ]
        parameters: Tensor = torch.tensor(levels, device=x.device)[severity - 1]
        return parameters


class Drawn(Checked, ABC):
    """A distortion that needs no model and has a fixed number of versions, or endless ones."""

    domains: ClassVar[frozenset[Kind]]
    suite: ClassVar[Suite] = "calibrated"
    """By default, only those of the suite calibrated are used where no distortion is named."""
    versions: ClassVar[int | None] = None
    """How many versions of an input there are at a severity: None where they are random, 1 where
    nothing is left open."""

    def draws(self, shape: tuple[int, ...]) -> int | None:
        """As many as there are `versions`, whatever the shape."""
        return self.versions


def suite_of(distortion: object) -> Suite:
    """The suite of a distortion; those of other packages name none and count as calibrated."""
    return distortion.suite if isinstance(distortion, Drawn) else "calibrated"


class Scaled(Drawn):
    """A distortion of one parameter, which a scale gives for each severity.

    A distortion need not be one of these.
    """

    scale: ClassVar[Scale]

    def __call__(self, x: Tensor, severity: Tensor, rng: Streams, draw: Tensor) -> Tensor:
        """(n, *shape) in [0, 1], each distorted at its own severity (n,)."""
        return self.distort(x, self.scale(severity, x), rng)

    @abstractmethod
    def distort(self, x: Tensor, parameter: Tensor, rng: Streams, /) -> Tensor:
        """`x` (n, *shape) distorted with this value (n,) of the parameter."""


@dataclass(frozen=True, kw_only=True)
class Sampled(Scaled):
    """A random distortion of signals that goes by the rate at which they were sampled."""

    rate: Positive = 125.0
    """Values per second of the signals."""

    domains = frozenset({"signal"})


def frame(x: Tensor) -> tuple[int, ...]:
    """Sides of the picture in each input: height and width, or the length of a signal or vector."""
    return tuple(x.shape[-2:]) if x.ndim >= 4 else tuple(x.shape[-1:])


def planes(x: Tensor) -> Tensor:
    """(n, planes, *frame): channels side by side, and every frame of a video with them.

    A view where that is possible.
    """
    return x.reshape(len(x), -1, *frame(x))


def by_level(x: Tensor, parameter: Tensor, function: Callable[[Tensor, float], Tensor]) -> Tensor:
    """`function(rows of x, value)` for each value in `parameter` (n,), put together again."""
    out = torch.empty_like(x)
    # Severities are few, so the rows of one severity share a call.
    for value in torch.unique(parameter).tolist():
        rows = parameter == value
        out[rows] = function(x[rows], value)
    return out


def opaque(shade: Tensor, cover: Tensor, x: Tensor) -> Tensor:
    """`x` behind something of a `shade` that lets 1 - `cover` through; all broadcast together."""
    return x + cover * (shade - x)


def middles(length: int, device: torch.device) -> Tensor:
    """(length,): where the middle of each value lies along an axis, as a share of its length."""
    return (torch.arange(length, device=device) + 0.5) / length


def each_picture(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Apply `change` to each picture in 8 bits.

    With other than one or three channels it is applied channel by channel.
    """
    n, channels, height, width = x.shape
    # Pillow knows pictures of one and of three channels.
    count = 3 if channels == 3 else 1
    channels_last = x.reshape(-1, count, height, width).movedim(1, -1)
    pixels = channels_last.mul(255).round().to("cpu", torch.uint8).numpy()

    pictures: list[Array] = []
    for picture in pixels:
        changed = change(Image.fromarray(picture if count == 3 else picture[..., 0]))
        pictures.append(np.asarray(changed).reshape(height, width, count))

    stacked = torch.from_numpy(np.stack(pictures)).to(x.device).movedim(-1, 1)
    return stacked.to(x.dtype).div(255).reshape(x.shape)


def as_jpeg(picture: Image.Image, quality: int) -> Image.Image:
    """A picture stored as JPEG by Pillow's encoder, at its default subsampling, and read back."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return Image.open(file, formats=["JPEG"])
