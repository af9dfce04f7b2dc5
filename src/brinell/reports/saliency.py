"""Saliency maps as pictures: important places are coloured, other places fade, and a line surrounds
the most important places.

A single colour is readable for everybody and in print. The outline marks the places that the
measures of the table refer to.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from brinell.analysis.saliency import largest
from brinell.core.record import Array
from brinell.reports.film import boundary, frames_to_show, side_by_side, thumbnail
from brinell.reports.pictures import mean_bounds
from brinell.reports.traces import Mark, draw_signal, stretches

SIDE = 224
"""Longest side of a picture in pixels."""
MIN_SIDE = 112
"""Smallest longest side of a picture in pixels. Smaller pictures are enlarged, so the outline
stays thin."""
HEAT = np.array([230.0, 80.0, 0.0])
"""Colour of important places, as RGB."""
OUTLINE, OBJECT = (0, 0, 0), (0, 200, 120)
"""Colours of the lines around the most important places, and around the object."""
COLUMNS = 8
"""Largest number of columns of a vector on the page."""


def scale_map(values: Array) -> Array:
    """Scale a map to [0, 1]: the 1 % and 99 % quantiles map to 0 and 1."""
    low, high = np.quantile(values, [0.01, 0.99])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return np.asarray(np.clip((values - low) / ((high - low) or 1.0), 0, 1))


def draw_overlay(
    x: Array,
    values: Array | None,
    count: int,
    truth: Array | None,
    domain: Mapping[str, Any],
    sampling: Mapping[str, Any] | None,
    title: str,
) -> Markup:
    """Draw a map over its input as HTML, or the input alone; of a vector, whose columns are named,
    nothing without a map.

    Args:
        x: (*shape) the input.
        values: (*places) the map, or None for the input alone.
        count: number of most important places to outline.
        truth: (*places) 1 on the object, 0 off it, 255 ignored; None for none.
        domain: the domain of the inputs, as in a manifest.
        sampling: sampling of signals, as in a manifest, or None.
        title: description of the picture.
    """
    kind = str(domain["kind"])
    object_ = None if truth is None else truth == 1
    low, high = mean_bounds(domain)
    levels = np.clip((np.asarray(x, np.float64) - low) / ((high - low) or 1.0), 0, 1)
    places = x.shape[x.ndim - {"image": 2, "video": 3}.get(kind, 1) :]
    shade = np.zeros(places) if values is None else scale_map(values)
    mask = np.zeros(places, bool) if values is None else largest(values, count)

    if kind == "image":
        return thumbnail(
            _draw_image(levels, None if values is None else shade, mask, object_), SIDE, title
        )
    if kind == "video":
        return thumbnail(_draw_frames(levels, shade, mask, object_), 2 * SIDE, title)
    if kind == "signal":
        return _draw_signal(np.asarray(x, np.float64), shade, mask, object_, sampling, title)
    return Markup("") if values is None else _list_columns(values, domain, title)


def _draw_image(
    levels: Array, shade: Array | None, mask: Array, object_: Array | None
) -> Image.Image:
    """Draw an image (C, H, W) from 0 to 1 below the shade (H, W), with outlines of both regions."""
    # A picture of other than three channels is shown in grey.
    pixels = (
        levels if len(levels) == 3 else np.repeat(levels.mean(0, keepdims=True), 3, 0)
    ).transpose(1, 2, 0) * 255

    # The input shines through in grey, so that red stands for importance alone.
    if shade is not None:
        grey = np.repeat(pixels.mean(2, keepdims=True), 3, 2) * 0.45 + 128
        weight = (0.75 * shade)[..., None]
        pixels = (1 - weight) * grey + weight * (0.35 * pixels + 0.65 * HEAT)

    # Small pictures are enlarged by whole factors, since smoothing would move the outlines.
    factor = max(1, MIN_SIDE // max(mask.shape))
    enlarged = np.clip(np.rint(pixels), 0, 255).astype(np.uint8).repeat(factor, 0).repeat(factor, 1)

    for region, colour in ((mask, OUTLINE), (object_, OBJECT)):
        if region is not None and region.any():
            enlarged[boundary(region.repeat(factor, 0).repeat(factor, 1))] = colour
    return Image.fromarray(enlarged)


def _draw_frames(levels: Array, shade: Array, mask: Array, object_: Array | None) -> Image.Image:
    """Draw frames of a video (C, T, H, W) side by side: the most important frame of
    each quarter.
    """
    frames = [
        _draw_image(
            levels[:, index], shade[index], mask[index], None if object_ is None else object_[index]
        )
        for index in frames_to_show(shade.sum((1, 2)))
    ]
    return side_by_side(frames)


def _draw_signal(
    x: Array,
    shade: Array,
    mask: Array,
    object_: Array | None,
    sampling: Mapping[str, Any] | None,
    title: str,
) -> Markup:
    """Draw the first channels of a signal (C, T) with shaded important places.

    Bars mark the mask below and the object above.
    """
    # In ten steps, so that neighbours of one shade make one mark; the faintest get none.
    tenths = np.ceil(10 * shade - 0.2)
    marks = [
        Mark(
            first,
            last,
            f'fill="rgb{tuple(HEAT.astype(int).tolist())}" fill-opacity="{0.06 * tenth:.2f}"',
        )
        for tenth in range(1, 11)
        for first, last in stretches(tenths == tenth)
    ]

    for region, bar, colour in ((mask, "below", OUTLINE), (object_, "above", OBJECT)):
        if region is not None:
            fill = f'fill="rgb{colour}"'
            marks += [Mark(*ends, fill, bar=bar) for ends in stretches(region)]  # type: ignore[arg-type]
    return draw_signal([("s0", x)], marks, sampling, title=title)


def _list_columns(values: Array, domain: Mapping[str, Any], title: str) -> Markup:
    """The most important columns of a vector by name, each with a bar of its shade."""
    names = [str(column[0]) for column in domain.get("columns", ())] or [
        f"value {position + 1}" for position in range(len(values))
    ]

    shade = scale_map(values)
    indices: Sequence[int] = np.argsort(-values, kind="stable")[:COLUMNS].tolist()
    rows = "".join(
        f"<li><b>{escape(names[index])}</b> <i "
        f'style="display:inline-block;height:.6em;width:{60 * shade[index]:.0f}px;'
        f'background:rgb({int(HEAT[0])},{int(HEAT[1])},{int(HEAT[2])})"></i></li>'
        for index in indices
    )

    return Markup(
        f'<ul title="{escape(title)}" style="list-style:none;margin:0;padding:0">{rows}</ul>'
    )
