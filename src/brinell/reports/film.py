"""Videos on the page: a strip of frames with the touched places marked; and pictures as data."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from brinell.core.record import Array

STRIP_FRAMES = 4
"""Frames of a strip: one of each quarter of the video."""
SIDE = 96
"""Longest side of a frame on the page in pixels, at most."""
MARK = (255, 0, 170)
"""Colour of the line around touched places, which hardly any picture holds."""
VISIBLE = 0.02
"""A place counts as touched where it changes by more than this share of the range."""


def frames_to_show(weight: Array) -> list[int]:
    """Of each quarter of the frames (T,) the one that weighs most, or its first where all weigh the
    same.
    """
    parts = np.array_split(np.arange(len(weight)), min(STRIP_FRAMES, len(weight)))
    return [int(part[weight[part].argmax()]) for part in parts]


def thumbnail(image: Image.Image, side: int, title: str) -> Markup:
    """A picture as HTML, its longest side at most `side` pixels."""
    if max(image.size) > side:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    tiny = " tiny" if max(image.size) < 64 else ""
    return Markup(
        f'<img class="thumb{tiny}" alt="{escape(title)}" title="{escape(title)}" '
        f'src="{png(image)}">'
    )


def film(
    array: Array,
    low: float,
    high: float,
    *,
    title: str,
    clean: Array | None = None,
    frames: Sequence[int] = (),
) -> Markup:
    """One video (C, T, H, W) with values from `low` to `high` as HTML: a strip of frames.

    A line surrounds the places that differ from the `clean` video. `frames` are the numbers of the
    frames in the strip; by default the first of each quarter.
    """
    pixels = _pixels(array, low, high)
    changed = (
        None if clean is None else np.abs(array - clean).max(0) > VISIBLE * ((high - low) or 1.0)
    )

    numbers = frames or frames_to_show(np.zeros(len(pixels)))
    stills = [
        _frame(pixels[number], None if changed is None else changed[number]) for number in numbers
    ]

    strip = side_by_side(stills)
    words = escape(
        f"{title}, frames {', '.join(str(number + 1) for number in numbers)} of {len(pixels)}"
    )
    tiny = " tiny" if max(pixels.shape[1:3]) < SIDE else ""
    return Markup(f'<img class="strip{tiny}" alt="{words}" title="{words}" src="{png(strip)}">')


def side_by_side(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures of one height, a white line between each two."""
    strip = Image.new(
        "RGB",
        (sum(picture.width for picture in pictures) + len(pictures) - 1, pictures[0].height),
        "white",
    )
    offset = 0
    for picture in pictures:
        strip.paste(picture, (offset, 0))
        offset += picture.width + 1
    return strip


def boundary(region: Array) -> Array:
    """(H, W) bool: the places of a region at its edge, those at the border of the
    picture included.
    """
    # Inside are the places with the region above, below, left and right of them.
    around = np.pad(region, 1)
    return np.asarray(
        region & ~(around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:])
    )


def _pixels(array: Array, low: float, high: float) -> Array:
    """(T, H, W, 3) uint8. A video without exactly three channels is shown by their mean."""
    levels = np.clip((np.asarray(array, np.float64) - low) / ((high - low) or 1.0), 0, 1) * 255
    if len(levels) != 3:
        levels = np.repeat(levels.mean(0, keepdims=True), 3, 0)
    return np.rint(levels).astype(np.uint8).transpose(1, 2, 3, 0)


def _frame(pixels: Array, changed: Array | None) -> Image.Image:
    """One frame at its size on the page, with a line of one pixel within the edge of what is
    touched.
    """
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if max(image.size) > SIDE:
        image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)

    if changed is None or not changed.any():
        return image
    mask = (
        np.asarray(
            Image.fromarray(changed.astype(np.uint8) * 255).resize(
                image.size, Image.Resampling.NEAREST
            )
        )
        > 0
    )

    marked = np.array(image)
    marked[boundary(mask)] = MARK
    return Image.fromarray(marked)


def png(image: Image.Image) -> str:
    """A picture as a data URI."""
    file = io.BytesIO()
    image.save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
