"""Maps as pictures: what matters is bright and coloured, the rest fades; lines are around the places that count most.

A map of one colour is read by everybody alike, in print too; the outline says which places the figures of the table are about.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from brinell.analysis.saliency import largest
from brinell.core.record import Array
from brinell.pages.figures import Frame, svg
from brinell.pages.filmstrip import thumbnail
from brinell.pages.traces import Axes

SIDE = 224
"""Longest side of a picture in pixels."""
LEAST = 112
"""Smaller pictures are enlarged until their longest side has as many, so that an outline is thin."""
HEAT = np.array([230.0, 80.0, 0.0])
"""Colour of what matters."""
OUTLINE, OBJECT = (0, 0, 0), (0, 200, 120)
"""Colours of the lines around the most important places, and around the object."""
FRAMES = 4
"""Frames of a video that are shown: one of each quarter, that which matters most."""
COLUMNS = 8
"""Columns of a vector that are listed."""


def shades(values: Array) -> Array:
    """A map in [0, 1]: its smallest and largest hundredth of the values at the ends."""
    low, high = np.quantile(values, [0.01, 0.99])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return np.asarray(np.clip((values - low) / ((high - low) or 1.0), 0, 1))


def overlay(
    x: Array,
    values: Array,
    count: int,
    truth: Array | None,
    domain: Mapping[str, Any],
    sampling: Mapping[str, Any] | None,
    title: str,
) -> Markup:
    """A map over its input as HTML.

    Args:
        x: (*shape) the input.
        values: (*places) the map.
        count: how many of the most important places are outlined.
        truth: (*places) 1 on the object, 0 off it, 255 ignored; None for none.
        domain: where inputs live, as a manifest has it.
        sampling: how signals were recorded, or nothing.
        title: what is shown.
    """
    low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
    mask, object_ = largest(values, count), None if truth is None else truth == 1
    levels = np.clip((np.asarray(x, np.float64) - low) / ((high - low) or 1.0), 0, 1)
    kind = str(domain["kind"])
    if kind == "image":
        return thumbnail(_picture(levels, shades(values), mask, object_), SIDE, title)
    if kind == "video":
        return thumbnail(_strip(levels, shades(values), mask, object_), 2 * SIDE, title)
    if kind == "signal":
        return _trace(np.asarray(x, np.float64), shades(values), mask, object_, sampling, title)
    return _columns(values, domain, title)


def plain(x: Array, truth: Array | None, domain: Mapping[str, Any], sampling: Mapping[str, Any] | None, title: str) -> Markup:
    """The input alone, with a line around the object where there is ground truth."""
    places = x.shape[len(x.shape) - {"image": 2, "video": 3}.get(str(domain["kind"]), 1) :]
    nothing = np.zeros(places)
    if domain["kind"] == "vector":
        return Markup("")
    if domain["kind"] == "image":
        low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
        levels = np.clip((np.asarray(x, np.float64) - low) / ((high - low) or 1.0), 0, 1)
        return thumbnail(_picture(levels, None, nothing.astype(bool), None if truth is None else truth == 1), SIDE, title)
    return overlay(x, nothing, 0, truth, domain, sampling, title)


def _picture(levels: Array, shade: Array | None, mask: Array, object_: Array | None) -> Image.Image:
    """One image (C, H, W) in [0, 1] below a map (H, W) in [0, 1]."""
    pixels = (levels if len(levels) == 3 else np.repeat(levels.mean(0, keepdims=True), 3, 0)).transpose(1, 2, 0) * 255
    if shade is not None:
        grey = np.repeat(pixels.mean(2, keepdims=True), 3, 2) * 0.45 + 128
        weight = (0.75 * shade)[..., None]
        pixels = (1 - weight) * grey + weight * (0.35 * pixels + 0.65 * HEAT)
    factor = max(1, LEAST // max(mask.shape))
    enlarged = np.clip(np.rint(pixels), 0, 255).astype(np.uint8).repeat(factor, 0).repeat(factor, 1)
    for region, colour in ((mask, OUTLINE), (object_, OBJECT)):
        if region is not None and region.any():
            enlarged[_edge(region.repeat(factor, 0).repeat(factor, 1))] = colour
    return Image.fromarray(enlarged)


def _edge(region: Array) -> Array:
    """The places of a region that touch its outside, at the border of the picture too."""
    around = np.pad(region, 1)
    return np.asarray(region & ~(around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]))


def _strip(levels: Array, shade: Array, mask: Array, object_: Array | None) -> Image.Image:
    """Frames of a video (C, T, H, W) side by side: of each quarter that which matters most."""
    parts = np.array_split(np.arange(shade.shape[0]), min(FRAMES, shade.shape[0]))
    chosen = [int(part[shade[part].sum((1, 2)).argmax()]) for part in parts]
    frames = [_picture(levels[:, at], shade[at], mask[at], None if object_ is None else object_[at]) for at in chosen]
    strip = Image.new("RGB", (sum(one.width for one in frames) + len(frames) - 1, frames[0].height), "white")
    left = 0
    for one in frames:
        strip.paste(one, (left, 0))
        left += one.width + 1
    return strip


def _spans(region: Array) -> list[tuple[int, int]]:
    """The stretches [from, to) of a region (T,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], region, [False]]).astype(np.int8)))
    return [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def _trace(x: Array, shade: Array, mask: Array, object_: Array | None, sampling: Mapping[str, Any] | None, title: str) -> Markup:
    """The first channels of a signal (C, T), shaded where it matters; bars below mark the mask, and above the object."""
    axes, length = Axes.of(sampling), x.shape[-1]
    lanes = x[:3]
    frame = Frame(width=330, height=36 + 64 * len(lanes), left=6, bottom=24, top=12, right=6)
    parts = []
    for first, last in _spans(shade > 0.02):
        for at in range(first, last):
            left, wide = frame.x(at / length), frame.x(1 / length) - frame.x(0)
            parts.append(
                f'<rect x="{left:.1f}" y="{frame.top}" width="{wide + 0.3:.2f}" height="{frame.y(0) - frame.top:.1f}" '
                f'fill="rgb({int(HEAT[0])},{int(HEAT[1])},{int(HEAT[2])})" fill-opacity="{0.6 * shade[at]:.2f}"/>'
            )
    for region, y, colour in ((mask, frame.y(0) + 1, OUTLINE), (object_, 4.0, OBJECT)):
        for first, last in _spans(region) if region is not None else []:
            left, wide = frame.x(first / length), frame.x(last / length) - frame.x(first / length)
            parts.append(f'<rect x="{left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="4" fill="rgb{colour}"/>')
    low, high = float(lanes.min()), float(lanes.max())
    height = (frame.y(0) - frame.top) / len(lanes)
    for lane, line in enumerate(lanes):
        share = (line - low) / ((high - low) or 1.0)
        points = " ".join(
            f"{frame.x((at + 0.5) / length):.1f},{frame.top + height * (lane + 0.95 - 0.9 * value):.1f}"
            for at, value in enumerate(share.tolist())
        )
        parts.append(f'<polyline class="line s0" points="{points}"/>')
    ends = (axes.at(0), axes.at(length - 1))
    unit = " s" if axes.rate else ""
    parts.append(f'<text x="{frame.x(0):.1f}" y="{frame.height - 4}">{ends[0]:.3g}{unit}</text>')
    parts.append(f'<text class="end" x="{frame.x(1):.1f}" y="{frame.height - 4}">{ends[1]:.3g}{unit}</text>')
    return svg(frame, title, parts, "trace")


def _columns(values: Array, domain: Mapping[str, Any], title: str) -> Markup:
    """The columns of a vector that matter most, with bars."""
    names = [str(column[0]) for column in domain.get("columns", ())] or [f"value {at + 1}" for at in range(len(values))]
    shade = shades(values)
    chosen: Sequence[int] = np.argsort(-values, kind="stable")[:COLUMNS].tolist()
    rows = "".join(
        f'<li><b>{escape(names[at])}</b> <i style="display:inline-block;height:.6em;width:{60 * shade[at]:.0f}px;'
        f'background:rgb({int(HEAT[0])},{int(HEAT[1])},{int(HEAT[2])})"></i></li>'
        for at in chosen
    )
    return Markup(f'<ul title="{escape(title)}">{rows}</ul>')
