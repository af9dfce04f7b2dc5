"""Adversarial examples of a run as pictures: the clean input, the enlarged perturbation, the
adversarial input.

For attacks that place distortions on patches a mask is shown too: one colour for each distortion
over the clean input, denser for higher severities.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from brinell.analysis.masks import PlacedDistortions, placements_of
from brinell.analysis.robust_accuracy import class_name, class_names, sizes
from brinell.core.record import Array, Records, has_broken
from brinell.reports import traces
from brinell.reports.film import film, frames_to_show, thumbnail
from brinell.reports.numbers import JOINED_DASH, NBSP, counted, distance, percent, short, whole
from brinell.reports.pictures import amplification, mean_bounds, picture
from brinell.reports.values import Example, Picture
from brinell.store.run import Run

COLUMNS = 5
"""Columns of a vector that are listed."""
PER_MODEL, OF_LARGE = 12, 6
"""Examples at most in a gallery, and in one of inputs of more than 64 x 64 places."""
COLOURS = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
)
"""Of the distortions, in the order in which they were named; told apart by those who see colours
otherwise (Okabe & Ito 2008)."""
AT_ONCE = 256
"""Examples whose inputs are read together."""
FADED = 0.45
"""Contrast that is left to the clean picture below the mask."""
LIGHT = 0.62
"""Brightness of its middle grey there, from 0 to 1."""
DENSITY = (0.45, 0.55, 0.65, 0.75, 0.85)
"""Of the colour at severities 1 to 5."""
SIDE = 224
"""Longest side of a mask in pixels; coarser inputs are enlarged by the page, finer ones shown
smaller."""
TEXT = {
    "image": "In the middle the perturbation alone, enlarged by the factor below it, on grey.",
    "signal": "Above the adversarial signal over the clean one, below the perturbation "
    "alone; what was touched is shaded.",
    "vector": "The columns that moved most, in their own units: as they were, the change, "
    "as they are now.",
    "video": "Of each quarter of a video the frame that changed most. In the middle the "
    "perturbation, "
    "enlarged by the factor below it, on grey; then the adversarial video, with "
    "lines around what was touched.",
}
"""By kind of input, what the pictures show."""


def draw_examples(
    run: Run, records: Records, model: str, clean: Mapping[int, Array]
) -> dict[int, Example]:
    """Adversarial examples as pictures, by sample.

    Args:
        run: the run.
        records: one row of each sample, of which `clean` has the input; a sample whose adversarial
            input is not stored is left out.
        model: name of the model.
        clean: clean inputs by sample.
    """
    drawn = {}

    for attack in dict.fromkeys(records.attack.tolist()):
        names = run.legend(model, attack).get("distortions", [])
        colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
        of_attack = np.flatnonzero(records.attack == attack)
        # Not all at once: a thousand large pictures do not fit the memory.
        for rows in np.split(of_attack, [*range(AT_ONCE, len(of_attack), AT_ONCE)]):
            ids = records.sample_id[rows].tolist()
            inputs = run.adversarial(model, attack, ids)
            placements = placements_of(run, model, attack, ids)
            for row, sample in zip(rows.tolist(), ids, strict=True):
                if sample not in inputs:
                    continue
                mask = _mask(run, records, row, placements.get(sample), clean[sample], colours)
                pair = clean[sample], inputs[sample]
                drawn[sample] = _example(run.manifest, records, row, *pair, mask)
    return drawn


def closest_rows(records: Records, model: str, distance: str) -> Array:
    """For each fooled sample, ascending, the row of its closest adversarial example."""
    rows = np.flatnonzero((records.model == model) & has_broken(records))
    # The last key counts first: by distance, of equal ones by budget; the first row of each sample.
    order = rows[np.lexsort((records.broken[rows], sizes(records, distance)[rows]))]
    return np.asarray(order[np.unique(records.sample_id[order], return_index=True)[1]])


Mask = tuple[Markup | None, list[tuple[str, str]], str]
"""A picture, its legend and what it cost."""


def _example(
    manifest: Mapping[str, Any],
    records: Records,
    row: int,
    clean: Array,
    x: Array,
    mask: Mask,
) -> Example:
    """One row as an example: its views, what broke it, and at which cost."""
    names = class_names(manifest)
    eps = dict(zip(manifest["eps"], manifest["eps_text"], strict=True))
    label = class_name(names, int(records.label[row]))
    before = class_name(names, int(records.clean_pred[row]))
    after = class_name(names, int(records.adv_pred[row]))
    confidence = records.adv_confidence[row]
    captions = (
        f"{before}, {percent(float(records.clean_confidence[row]), 0)} sure",
        after if np.ma.is_masked(confidence) else f"{after}, {percent(float(confidence), 0)} sure",
    )

    sample = int(records.sample_id[row])
    size = float(sizes(records, str(manifest["distance"]))[row])
    title = f"sample {sample}, clean, {label}"
    pictures, legend, further = compare_inputs(manifest, clean, x, title, captions)
    picture, colours, cost = mask
    stages = {stage["name"]: stage.get("label", stage["name"]) for stage in manifest["stages"]}
    parts = [
        f"Sample {sample}, true class {label}: broken within "
        f"{eps.get(float(records.broken[row]), f'{records.broken[row]:g}')} "
        f"by {stages.get(str(records.attack[row]), records.attack[row])}",
        f"{distance(str(manifest['distance']))} {short(size)}" if math.isfinite(size) else "",
        further,
        cost,
    ]
    return Example(
        pictures=[
            *pictures,
            *([] if picture is None else [Picture(picture, "where distortions are placed")]),
        ],
        caption="; ".join(filter(None, parts)),
        legend=[*legend, *colours],
        wide=manifest["data"]["domain"]["kind"] in ("signal", "video"),
    )


def compare_inputs(
    manifest: Mapping[str, Any], clean: Array, x: Array, title: str, captions: tuple[str, str]
) -> tuple[list[Picture], list[tuple[str, str]], str]:
    """The views of one example by the kind of its input, their legend, and what else is to be said
    of it.

    Args:
        manifest: of the folder that holds the inputs.
        clean: (*shape) the clean input.
        x: (*shape) the adversarial input.
        title: what the clean input is, for readers who hear the page.
        captions: the answers to both.
    """
    domain = manifest["data"]["domain"]
    kind = str(domain["kind"])
    if kind == "signal":
        return _compare_signals(manifest, clean, x, title, captions)
    if domain.get("columns", ()):
        before, change, after = changes(domain, clean, x)
        return (
            [Picture(before, captions[0]), Picture(change, "change"), Picture(after, captions[1])],
            [],
            "",
        )

    low, high = mean_bounds(domain)
    delta = np.asarray(x, np.float64) - np.asarray(clean, np.float64)
    factor = amplification(delta, high - low)
    views_of = {
        title: clean,
        f"perturbation enlarged {factor} times": (low + high) / 2 + factor * delta,
        f"adversarial: {captions[1]}": x,
    }
    texts = (
        captions[0],
        "perturbation" + (f" ×{NBSP}{whole(factor)}" if factor != 1 else ""),
        captions[1],
    )
    if kind == "video":
        # The same frames in each view, so that they can be compared.
        frames = frames_to_show(np.square(delta).sum((0, 2, 3)))
        markups = [
            film(array, low, high, title=name, frames=frames, clean=clean if array is x else None)
            for name, array in views_of.items()
        ]
    else:
        markups = [picture(array, kind, low, high, title=name) for name, array in views_of.items()]
    return [Picture(markup, text) for markup, text in zip(markups, texts, strict=True)], [], ""


def _compare_signals(
    manifest: Mapping[str, Any], clean: Array, x: Array, title: str, captions: tuple[str, str]
) -> tuple[list[Picture], list[tuple[str, str]], str]:
    """`compare_inputs` for signals: both in one drawing, and their difference."""
    sampling = manifest["data"].get("sampling")
    columns = manifest["data"]["domain"].get("columns", ())
    # Fixed channels, such as the rhythm of beats, are numbers and no curve; a column is written
    # as in `Domain.to_json`: name, values at 0 and at 1, whether it is fixed.
    fixed = [index for index, column in enumerate(columns) if column[3]]
    beside = ", ".join(
        f"{columns[index][0]} {short(float(clean[index].mean()))}" for index in fixed
    )
    clean = np.delete(clean, fixed, axis=0)
    x = np.delete(x, fixed, axis=0)

    overlay = traces.overlay(clean, x, sampling, title=f"adversarial: {captions[1]}; over {title}")
    difference = traces.perturbation(clean, x, sampling, title=f"perturbation of {title}")
    views = [Picture(overlay), Picture(difference, "perturbation")]
    legend = [
        ("var(--ref)", f"clean: {captions[0]}"),
        ("var(--s0)", f"adversarial: {captions[1]}"),
    ]
    touched = f"touched: {traces.describe_change(clean, x, sampling)}"
    return views, legend, f"{touched}; fixed: {beside}" if beside else touched


def changes(domain: Mapping[str, Any], clean: Array, x: Array) -> list[Markup]:
    """The columns that moved most between two rows (D,) as lists in HTML: as they were, the change,
    as they are now.
    """
    # A column is written as in `Domain.to_json`: its name, then its values at 0 and at 1.
    columns = domain["columns"]
    zero = np.array([column[1] for column in columns], dtype=np.float64)
    unit = np.array([column[2] for column in columns], dtype=np.float64)
    delta = np.asarray(x, np.float64) - np.asarray(clean, np.float64)
    changed = [int(row) for row in np.argsort(-np.abs(delta), kind="stable") if delta[row] != 0]

    # Readers know the units of the table, and not the shares of a column's range.
    before = zero + (unit - zero) * np.asarray(clean, np.float64)
    after = zero + (unit - zero) * np.asarray(x, np.float64)
    shown = changed[:COLUMNS]
    names = [str(columns[row][0]) for row in shown]
    views = (
        [f"{before[row]:.4g}" for row in shown],
        [f"{after[row] - before[row]:+.3g}" for row in shown],
        [f"{after[row]:.4g}" for row in shown],
    )

    remainder = (
        Markup("<dt>and {} more</dt>").format(len(changed) - COLUMNS)
        if len(changed) > COLUMNS
        else Markup("")
    )
    lists = [
        Markup("").join(map(Markup("<dt>{}</dt><dd>{}</dd>").format, names, texts))
        for texts in views
    ]
    return [Markup('<dl class="changes">{}{}</dl>').format(items, remainder) for items in lists]


def _mask(
    run: Run,
    records: Records,
    row: int,
    placement: PlacedDistortions | None,
    clean: Array,
    colours: Mapping[str, tuple[int, int, int]],
) -> Mask:
    """Where an attack placed distortions, with the legend, and the patches, strength and queries
    that it took.
    """
    if placement is None:
        return None, [], ""

    severities: dict[str, list[int]] = {}
    for standing in placement.standing:
        severities.setdefault(standing.distortion, []).append(standing.severity)
    legend = []
    # The distortion that covers most patches comes first.
    for name, levels in sorted(severities.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        levels_text = JOINED_DASH.join(map(str, sorted({min(levels), max(levels)})))
        legend.append(
            (
                f"rgb{colours[name]}",
                f"{name} on {counted(len(levels), 'patch', 'patches')}, severity {levels_text}",
            )
        )

    patches = counted(len(placement.patches), "patch", "patches")
    parts = [
        f"{whole(len(placement.standing))} of {patches}, {percent(placement.share())} of the input"
    ]
    if run.manifest["distance"] != "l2":
        parts.append(f"L2 {short(float(records.l2[row]))}")
    queries = records.queries_to_success[row]
    if not np.ma.is_masked(queries):
        parts.append(f"{counted(int(queries), 'query', 'queries')} to the first success")
    low, high = mean_bounds(run.manifest["data"]["domain"])
    sampling = run.manifest["data"].get("sampling")
    return (
        draw_mask(placement, np.asarray(clean, np.float64), colours, low, high, sampling),
        legend,
        "; ".join(parts),
    )


def draw_mask(
    placement: PlacedDistortions,
    clean: Array,
    colours: Mapping[str, tuple[int, int, int]],
    low: float,
    high: float,
    sampling: Mapping[str, Any] | None = None,
) -> Markup | None:
    """Distortions over the faded clean input, with values from `low` to `high`; None for vectors,
    whose columns are named.
    """
    mask = placement.mask()
    if clean.ndim == 1:
        return None

    title = f"where distortions are placed, {counted(len(placement.standing), 'patch', 'patches')}"
    if mask.ndim == 1:
        marks = [
            traces.Mark(
                *ends,
                f'fill="rgb{colours[standing.distortion]}" '
                f'fill-opacity="{_density(standing.severity) / 2:.2f}"',
                f"{standing.distortion}, severity {standing.severity}",
            )
            for index, standing in enumerate(placement.standing)
            for ends in traces.stretches(mask == index)
        ]
        return traces.draw_signal([("s0", clean)], marks, sampling, title=title)
    if mask.ndim == 3:
        # Of a video the frame that bears most.
        frame = int((mask >= 0).sum((1, 2)).argmax())
        mask = mask[frame]
        clean = clean[:, frame]
        title = f"{title}, frame {frame + 1}"

    # Faded to grey, so that colours stand for distortions alone.
    levels = np.clip((clean.reshape(-1, *mask.shape) - low) / ((high - low) or 1.0), 0, 1)
    grey = (levels.mean(0) - 0.5) * FADED + LIGHT
    pixels = np.repeat(np.clip(grey, 0, 1)[..., None] * 255, 3, axis=2)
    for index, standing in enumerate(placement.standing):
        covered = mask == index
        density = _density(standing.severity)
        colour = np.array(colours[standing.distortion])
        pixels[covered] = (1 - density) * pixels[covered] + density * colour
    return thumbnail(Image.fromarray(np.rint(pixels).astype(np.uint8)), SIDE, title)


def _density(severity: int) -> float:
    """The share of the colour at a severity; those beyond the range count as its ends."""
    return DENSITY[min(max(severity, 1), len(DENSITY)) - 1]
