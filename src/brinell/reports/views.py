"""Pictures with masks or boxes drawn: classes as colours, boxes by what they find."""

import colorsys
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import numpy as np
from PIL import Image, ImageDraw

from brinell.core.boxes import (
    FALSE,
    HIT,
    IGNORED,
    MISLABELLED,
    MISPLACED,
    MISSED,
    BoxOutcomes,
    Detections,
    Objects,
)
from brinell.core.record import Array
from brinell.reports.film import thumbnail
from brinell.reports.values import Picture

SIDE = 220
"""Longest side of a picture in pixels."""
GREY = (128, 128, 128)
"""Colour of pixels that a mask leaves out."""
DISTINCT = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66))
"""Colours that everybody tells apart (Okabe & Ito 2008)."""
OUTCOMES = {
    HIT: ((46, 160, 67), "finds an object"),
    FALSE: ((214, 39, 40), "false"),
    MISLABELLED: ((255, 153, 0), "another class"),
    MISPLACED: ((30, 120, 220), "misplaced"),
    MISSED: ((255, 255, 255), "missed object (thin)"),
    IGNORED: ((150, 150, 150), "in a crowd"),
}
"""Colour and text of boxes by outcome."""
Colours = dict[int, tuple[int, int, int]]
"""By label."""


def css(colour: tuple[int, int, int]) -> str:
    """A colour as CSS has it."""
    return f"rgb{colour}"


def colours_of(maps: Iterable[Array], classes: int) -> Colours:
    """The colour of each of the classes that occur on some maps, by label in rising order."""
    labels = {int(label) for array in maps for label in np.unique(array)}
    return dict(zip(sorted(labels.intersection(range(classes))), _distinct(), strict=False))


def _distinct() -> Iterator[tuple[int, int, int]]:
    """Dark grey, the colours that everybody tells apart, and then hues that lie far apart, without
    end.
    """
    yield 48, 48, 56
    yield from DISTINCT
    for number in count(1):
        # Steps of the golden ratio spread the hues evenly, however many there are.
        red, green, blue = colorsys.hsv_to_rgb(
            number * 0.618034 % 1, 0.65 + 0.3 * (number % 2), 0.95 - 0.25 * (number // 2 % 2)
        )
        yield round(255 * red), round(255 * green), round(255 * blue)


def draw_pixels(pixels: Array, caption: str) -> Picture:
    """(3, h, w) bytes."""
    return Picture(
        thumbnail(Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))), SIDE, caption),
        caption,
    )


def draw_map(classes: Array, colours: Colours, caption: str) -> Picture:
    """(h, w) classes as colours; grey where a mask leaves pixels out."""
    palette = np.full((256, 3), GREY, dtype=np.uint8)
    for label, colour in colours.items():
        palette[label] = colour
    return Picture(thumbnail(Image.fromarray(palette[classes]), SIDE, caption), caption)


def draw_boxes(
    pixels: Array, boxes: Detections, objects: Objects, outcomes: BoxOutcomes, caption: str
) -> Picture:
    """(3, h, w) bytes with the boxes, coloured by outcome, and thin the objects that are missed."""
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).convert("RGB")
    scale = SIDE / max(image.size)
    image = image.resize(
        (round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS
    )

    draw = ImageDraw.Draw(image)
    # From the lowest score to the highest, so that the best boxes lie on top.
    missed = [(corners, MISSED) for corners in objects.boxes[outcomes.objects == MISSED]]
    for corners, outcome in (*missed, *zip(boxes.boxes[::-1], outcomes.boxes[::-1], strict=True)):
        low = np.minimum(corners[:2], corners[2:])
        high = np.maximum(corners[:2], corners[2:])
        places = [float(value) * scale for value in (*low, *high)]
        draw.rectangle(places, outline=OUTCOMES[outcome][0], width=1 if outcome == MISSED else 2)
    return Picture(thumbnail(image, SIDE, caption), caption)


def legend_of(
    outcomes: Sequence[str] = (HIT, FALSE, MISLABELLED, MISPLACED, MISSED),
) -> list[tuple[str, str]]:
    """Colours and texts of outcomes of boxes."""
    return [(css(colour), text) for colour, text in (OUTCOMES[outcome] for outcome in outcomes)]
