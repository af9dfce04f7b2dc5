"""Where the distortions of an example are placed: a mask over the clean input, a colour for each, denser where more severe."""

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from brinell.analysis.masks import Placed, placed
from brinell.core.record import Array, Records
from brinell.pages.figures import Frame, polyline, svg
from brinell.pages.filmstrip import thumbnail
from brinell.pages.format import NBSP, count, norm, percent, short
from brinell.store.run import Run

COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233))
"""Of the distortions, in the order in which they were named; told apart by those who see colours otherwise (Okabe & Ito 2008)."""
FADED = 0.45
"""Contrast that is left to the clean picture below the mask."""
DENSITY = (0.45, 0.55, 0.65, 0.75, 0.85)
"""Of the colour at severities 1 to 5."""
JOINED = "\u2060–\u2060"
"""A dash at which no line breaks."""
Colours = dict[str, tuple[int, int, int]]
SIDE = 224
"""Longest side of a mask in pixels; coarser inputs are enlarged by the page, finer ones shown smaller."""


def masks(run: Run, records: Records, model: str, rows: Sequence[int], clean: dict[int, Array]) -> dict[int, Markup]:
    """The masks of those adversarial examples that an attack on patches made, by sample.

    `rows` are their rows in the records; `clean` holds the clean inputs by sample.
    """
    found: dict[int, Markup] = {}
    for attack in {str(records.attack[row]) for row in rows}:
        mine = {int(records.sample_id[row]): row for row in rows if records.attack[row] == attack}
        names = run.legend(model, attack).get("distortions", [])
        colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
        for sample, one in placed(run, model, attack, list(mine)).items():
            found[sample] = _figure(run, records, mine[sample], one, clean[sample], colours)
    return found


def _figure(run: Run, records: Records, row: int, one: Placed, clean: Array, colours: Colours) -> Markup:
    distortions: dict[str, list[int]] = {}
    for standing in one.standing:
        distortions.setdefault(standing.distortion, []).append(standing.severity)
    order = sorted(distortions, key=lambda name: (-len(distortions[name]), name))
    domain = run.manifest["data"]["domain"]
    low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
    picture = _picture(one, np.asarray(clean, np.float64), colours, low, high)
    keys = "".join(
        f'<li><i style="background:rgb{colours[name]}"></i><b>{escape(name)}</b> '
        f"on {count(len(distortions[name]))}, {_severities(distortions[name])}</li>"
        for name in order
    )
    kind, cost = "mask" if picture else "mask bare", _cost(run, records, row, one)
    return Markup(f'<div class="{kind}">{picture}<div><ul>{keys}</ul><p>{cost}</p></div></div>')


def _severities(all_: list[int]) -> str:
    least, most = min(all_), max(all_)
    return f"severity{NBSP}{least}" if least == most else f"severity{NBSP}{least}{JOINED}{most}"


def _cost(run: Run, records: Records, row: int, one: Placed) -> str:
    """What it took: patches, how far what is placed was scaled down, L2 and queries."""
    parts = [f"{count(len(one.standing))} of {count(math.prod(one.lattice.shape))} patches, {percent(one.share())} of the input"]
    l2, distance = float(records.l2[row]), str(run.manifest["distance"])
    if distance == "l2" and one.length > 0 and l2 < 0.995 * one.length:
        parts.append(f"at {percent(l2 / one.length, 0)} of its strength")
    if distance != "l2":
        parts.append(f"{norm('l2')}{NBSP}{short(l2)}")
    asked = records.queries_to_success[row]
    if not np.ma.is_masked(asked):
        parts.append(f"{count(int(asked))} quer{'ies' if asked != 1 else 'y'} to the first success")
    return escape("; ".join(parts))


def _picture(one: Placed, clean: Array, colours: Colours, low: float, high: float) -> str:
    mask = one.mask()
    if clean.ndim == 1:  # the columns that changed are named beside it
        return ""
    if mask.ndim == 1:
        return _spans(one, clean, mask, colours)
    title = f"where distortions are placed, {len(one.standing)} patches"
    if mask.ndim == 3:  # of a video the frame that bears most
        frame = int((mask >= 0).sum((1, 2)).argmax())
        mask, clean = mask[frame], clean[:, frame]
        title += f", frame {frame + 1}"
    grey = (np.clip((clean.reshape(-1, *mask.shape) - low) / ((high - low) or 1.0), 0, 1).mean(0) - 0.5) * FADED + 0.62
    pixels = np.repeat(np.clip(grey, 0, 1)[..., None] * 255, 3, axis=2)
    for at, standing in enumerate(one.standing):
        here = mask == at
        density = DENSITY[min(max(standing.severity, 1), len(DENSITY)) - 1]
        pixels[here] = (1 - density) * pixels[here] + density * np.array(colours[standing.distortion])
    image = Image.fromarray(np.rint(pixels).astype(np.uint8))
    return thumbnail(image, SIDE, title)


def _spans(one: Placed, clean: Array, mask: Array, colours: Colours) -> str:
    """Signals: the first channel of the clean input, as high as it is, with what is placed on it as shaded spans."""
    frame = Frame(width=180, height=90, left=0, bottom=4, top=4, right=0)
    line = clean.reshape(-1, clean.shape[-1])[0]
    low, high = float(line.min()), float(line.max())
    ends = np.flatnonzero(np.diff(mask)) + 1
    parts = []
    for start, stop in zip([0, *ends], [*ends, len(mask)], strict=True):
        if mask[start] >= 0:
            standing = one.standing[int(mask[start])]
            x, wide = frame.x(start / len(mask)), frame.x((stop - start) / len(mask))
            density = DENSITY[min(max(standing.severity, 1), len(DENSITY)) - 1]
            tip = f"{standing.distortion}, severity {standing.severity}"
            parts.append(
                f'<rect x="{x:.1f}" y="0" width="{wide:.1f}" height="{frame.height}" fill="rgb{colours[standing.distortion]}" '
                f'fill-opacity="{density / 2:.2f}"><title>{escape(tip)}</title></rect>'
            )
    parts.append(polyline(frame, "s0", line.tolist(), low, high))
    return svg(frame, f"where distortions are placed, {len(one.standing)} patches", parts, "trace")
