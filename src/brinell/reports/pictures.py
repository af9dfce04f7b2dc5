"""Inputs as pictures: images as PNG, videos as film strips, signals and vectors as lines."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from brinell.core.record import Array
from brinell.reports.film import film, thumbnail
from brinell.reports.traces import draw_signal

THUMBNAIL = 112
"""Longest side of a picture in pixels; larger inputs are shown smaller."""


def mean_bounds(domain: Mapping[str, Any]) -> tuple[float, float]:
    """The lower and the upper bound of a domain as in a manifest; of several channels the mean."""
    return float(np.mean(domain["low"])), float(np.mean(domain["high"]))


def amplification(delta: Array, span: float) -> int:
    """The largest of 1, 2, 5, 10, 20, 50, ...
    by which `delta` can be enlarged without leaving half the range either way.
    """
    largest = float(np.abs(delta).max(initial=0.0))
    if largest <= 0:
        return 1
    room = span / 2 / largest * (1 + 1e-6)
    steps = [digit * 10**power for power in range(5) for digit in (1, 2, 5)]
    return max([step for step in steps if step <= room], default=1)


def picture(array: Array, kind: str, low: float, high: float, *, title: str) -> Markup:
    """One input with values from `low` to `high` as HTML, by its kind (a signal
    before and after a change: `reports.traces`).

    A PNG for an image (C, H, W), a film strip for a video (C, T, H, W), lines for a signal (C, T)
    or a vector (D,).
    """
    array = np.asarray(array, np.float64)
    if kind == "video" and array.ndim == 4:
        return film(array, low, high, title=title)
    if array.ndim == 3:
        return _image(array, low, high, title)
    return draw_signal([("s0", np.atleast_2d(array))], marks=[], sampling=None, title=title)


def _image(array: Array, low: float, high: float, title: str) -> Markup:
    """Values as a picture, scaled from `low` to `high`."""
    levels = np.clip((array - low) / ((high - low) or 1.0), 0, 1) * 255
    pixels = np.rint(levels).astype(np.uint8)
    if len(pixels) == 3:
        image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    else:
        # Other numbers of channels have no colours of their own: their mean is shown.
        image = Image.fromarray(np.rint(levels.mean(0)).astype(np.uint8))
    return thumbnail(image, THUMBNAIL, title)
