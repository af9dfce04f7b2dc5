"""Examples of what broke the model: clean input, amplified perturbation, adversarial input, with labels and confidences.

For attacks that place distortions on patches a mask is shown too: one colour for each distortion over the clean input, denser
for higher severities.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from brinell.analysis.masks import Placement, placements_of
from brinell.analysis.robust_accuracy import class_name, class_names, sizes
from brinell.core.record import Array, Records, has_broken
from brinell.pages.figures import Frame, polyline, svg
from brinell.pages.format import NBSP, count, norm, percent, short
from brinell.reports import traces
from brinell.reports.film import film, most_changed, thumbnail, weight
from brinell.reports.pictures import THUMBNAIL, amplification, picture
from brinell.store.rows import take
from brinell.store.run import Run

COLUMNS = 5
"""Columns that are listed."""

PER_MODEL = 12
IN_ALL = 36
"""Examples on the page at most, whatever the number of models."""
PIXEL_BYTES = 1_000_000
"""Raw bytes of all pictures on the page, about; perturbations do not compress."""
EXPLAINED = "explain/report.html"
"""Page of `brinell explain --run`, relative to the run folder."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One adversarial input, ready to be shown."""

    sample_id: int
    attack: str
    eps: str
    """Budget at which it was found, as written."""
    distance: float | None
    """Its size in the run's norm."""
    label: str
    clean_pred: str
    clean_confidence: float
    adv_pred: str
    adv_confidence: float | None
    amplification: int
    """Factor by which the perturbation is enlarged in its picture."""
    clean: Markup
    perturbation: Markup
    adversarial: Markup
    changed_share: str
    """How much of a signal was touched; then the adversarial picture shows the clean signal too."""
    mask: Markup
    """Mask of the placed distortions, for attacks that place them on patches."""
    explained: str
    """The way to the maps of what matters in it, where `brinell explain` has made them."""


def gallery(run: Run, records: Records, model: str, *, models: int = 1) -> list[Example]:
    """The closest adversarial example of each class, closest first; then further ones while there is room.

    Only the samples whose clean input the run keeps can be shown; `models` is how many models share the page.
    """
    shape = run.manifest["data"]["domain"]["shape"]
    heavy = 3 * shape[0] * min(shape[-2], THUMBNAIL) * min(shape[-1], THUMBNAIL) if len(shape) > 2 else 1
    heavy = weight(tuple(shape)) if len(shape) == 4 else heavy
    room = min(PER_MODEL, max(min(IN_ALL, PIXEL_BYTES // heavy) // max(models, 1), 3))
    room -= room % 3  # full rows where the page is wide
    clean = run.clean()
    closest = _closest(records, model, str(run.manifest["distance"]))
    records = take(records, closest[np.isin(records.sample_id[closest], list(clean))])
    selected = _select_rows(records, room)
    by_attack: dict[str, list[int]] = {}
    for row in selected:
        by_attack.setdefault(str(records.attack[row]), []).append(int(records.sample_id[row]))
    inputs = {attack: run.adversarial(model, attack, ids) for attack, ids in by_attack.items()}
    masks_by_sample, examples = masks(run, records, model, selected, clean), []
    page = run.path / EXPLAINED
    explanation_page = page.read_text(encoding="utf-8") if page.is_file() else ""
    for row in selected:
        sample, attack = int(records.sample_id[row]), str(records.attack[row])
        if sample in inputs[attack]:
            mask = masks_by_sample.get(sample, Markup())
            explained = f"{EXPLAINED}#sample-{sample}" if f'id="sample-{sample}"' in explanation_page else ""
            examples.append(_example(run.manifest, records, row, clean[sample], inputs[attack][sample], mask, explained))
    return examples


def _closest(records: Records, model: str, distance: str) -> Array:
    """For each fooled sample, ascending, the row of its closest adversarial example."""
    rows = np.flatnonzero((records.model == model) & has_broken(records))
    size = sizes(records, distance)[rows]
    order = rows[np.lexsort((records.broken[rows], size))]
    return np.asarray(order[np.unique(records.sample_id[order], return_index=True)[1]])


def _select_rows(records: Records, room: int) -> list[int]:
    """Round after round the next adversarial example of every class, each round in the order of the closest."""
    by_class: dict[int, list[int]] = {}
    for row in np.lexsort((records.sample_id, np.ma.getdata(records.broken))).tolist():
        by_class.setdefault(int(records.label[row]), []).append(row)
    rounds = max((len(group) for group in by_class.values()), default=0)
    return [group[i] for i in range(rounds) for group in by_class.values() if i < len(group)][:room]


def _example(
    manifest: Mapping[str, Any], records: Records, row: int, clean: Array, adversarial: Array, mask: Markup, explained: str
) -> Example:
    names = class_names(manifest)
    size = float(sizes(records, str(manifest["distance"]))[row])
    domain = manifest["data"]["domain"]
    beside = fixed(domain, clean) if domain["kind"] == "signal" else ""
    if beside:
        clean, adversarial = movable(domain, clean), movable(domain, adversarial)
    delta = np.asarray(adversarial, np.float64) - np.asarray(clean, np.float64)
    low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
    factor = amplification(delta, high - low)
    eps = dict(zip(manifest["eps"], manifest["eps_text"], strict=True))
    confidence = records.adv_confidence[row]
    kind, middle = str(domain["kind"]), (low + high) / 2
    views = {"clean": clean, "perturbation": middle + factor * delta, "adversarial": adversarial}
    label, pred, adv = (class_name(names, int(column[row])) for column in (records.label, records.clean_pred, records.adv_pred))
    titles = {
        "clean": f"sample {int(records.sample_id[row])}, clean, {label}",
        "perturbation": f"perturbation enlarged {factor} times",
        "adversarial": f"adversarial, taken for {adv}",
    }
    changed_share = ""
    if kind == "signal":
        sampling = manifest["data"].get("sampling")
        overlay = traces.overlay(clean, adversarial, sampling, title=f"{titles['adversarial']}, over {titles['clean']}")
        change = traces.perturbation(clean, adversarial, sampling, title=f"perturbation of {titles['clean']}")
        pictures = {"clean": Markup(), "perturbation": change, "adversarial": overlay}
        changed_share = traces.describe_change(clean, adversarial, sampling) + (f"; fixed: {beside}" if beside else "")
    elif domain.get("columns"):
        factor, pictures = 1, changes(domain, clean, adversarial)
    elif kind == "video":
        frames = most_changed(clean, adversarial)  # the same of each view
        special: dict[str, dict[str, Any]] = {"perturbation": {"moving": False}, "adversarial": {"clean": clean}}
        pictures = {
            view: film(array, low, high, title=titles[view], frames=frames, **special.get(view, {}))
            for view, array in views.items()
        }
    else:
        pictures = {view: picture(array, kind, low, high, title=titles[view]) for view, array in views.items()}
    return Example(
        sample_id=int(records.sample_id[row]),
        attack=str(records.attack[row]),
        eps=str(eps.get(float(records.broken[row]), f"{records.broken[row]:g}")),
        distance=size if math.isfinite(size) else None,
        label=label,
        clean_pred=pred,
        clean_confidence=float(records.clean_confidence[row]),
        adv_pred=adv,
        adv_confidence=None if np.ma.is_masked(confidence) else float(confidence),
        amplification=factor,
        changed_share=changed_share,
        mask=mask,
        explained=explained,
        **pictures,
    )


def movable(domain: Mapping[str, Any], x: Array) -> Array:
    """The channels (C, T) of a signal that may change; fixed channels may have other units."""
    return x[[index for index, column in enumerate(domain["columns"]) if not column[3]]]


def fixed(domain: Mapping[str, Any], x: Array) -> str:
    """In words, the channels of a signal (C, T) that may not change, each by its mean; "" where all may."""
    names = [(index, column[0]) for index, column in enumerate(domain.get("columns", ())) if column[3]]
    return ", ".join(f"{name} {short(float(x[index].mean()))}" for index, name in names)


def changes(domain: Mapping[str, Any], clean: Array, adversarial: Array) -> dict[str, Markup]:
    """The columns that moved most between two rows (D,): each view as a list in HTML."""
    columns = domain["columns"]
    zero, unit = (np.array([column[position] for column in columns], dtype=np.float64) for position in (1, 2))
    delta = np.asarray(adversarial, np.float64) - np.asarray(clean, np.float64)
    rows = [int(row) for row in np.argsort(-np.abs(delta), kind="stable") if delta[row] != 0][:COLUMNS]
    omitted = int((delta != 0).sum()) - len(rows)
    before, after = (zero + (unit - zero) * np.asarray(x, np.float64) for x in (clean, adversarial))
    texts = {
        "clean": [f"{before[row]:.4g}" for row in rows],
        "perturbation": [f"{after[row] - before[row]:+.3g}" for row in rows],
        "adversarial": [f"{after[row]:.4g}" for row in rows],
    }
    return {view: _list([str(columns[row][0]) for row in rows], values, omitted) for view, values in texts.items()}


def _list(names: list[str], values: list[str], omitted: int) -> Markup:
    items = [Markup("<dt>{}</dt><dd>{}</dd>").format(name, value) for name, value in zip(names, values, strict=True)]
    omission = Markup("<dt>and {} more</dt>").format(omitted) if omitted > 0 else Markup("")
    return Markup('<dl class="changes">{}{}</dl>').format(Markup("").join(items), omission)


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
    figures_by_sample: dict[int, Markup] = {}
    for attack in {str(records.attack[row]) for row in rows}:
        row_of_sample = {int(records.sample_id[row]): row for row in rows if records.attack[row] == attack}
        names = run.legend(model, attack).get("distortions", [])
        colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
        for sample, placement in placements_of(run, model, attack, list(row_of_sample)).items():
            figures_by_sample[sample] = _figure(run, records, row_of_sample[sample], placement, clean[sample], colours)
    return figures_by_sample


def _figure(run: Run, records: Records, row: int, placement: Placement, clean: Array, colours: Colours) -> Markup:
    """The mask of an example with its legend and cost."""
    distortions: dict[str, list[int]] = {}
    for standing in placement.standing:
        distortions.setdefault(standing.distortion, []).append(standing.severity)
    order = sorted(distortions, key=lambda name: (-len(distortions[name]), name))
    domain = run.manifest["data"]["domain"]
    low, high = (float(np.mean(domain[end])) for end in ("low", "high"))
    picture = _picture(placement, np.asarray(clean, np.float64), colours, low, high)
    keys = "".join(
        f'<li><i style="background:rgb{colours[name]}"></i><b>{escape(name)}</b> '
        f"on {count(len(distortions[name]))}, {_severities(distortions[name])}</li>"
        for name in order
    )
    kind, cost = "mask" if picture else "mask bare", _cost(run, records, row, placement)
    return Markup(f'<div class="{kind}">{picture}<div><ul>{keys}</ul><p>{cost}</p></div></div>')


def _severities(all_: list[int]) -> str:
    """Severities as text, such as «severity 2–4»."""
    least, most = min(all_), max(all_)
    return f"severity{NBSP}{least}" if least == most else f"severity{NBSP}{least}{JOINED}{most}"


def _cost(run: Run, records: Records, row: int, placement: Placement) -> str:
    """Cost of an example: patches, scale of the distortions, L2 and queries."""
    parts = [
        f"{count(len(placement.standing))} of {count(math.prod(placement.lattice.shape))} patches, "
        f"{percent(placement.share())} of the input"
    ]
    l2, distance = float(records.l2[row]), str(run.manifest["distance"])
    if distance == "l2" and placement.length > 0 and l2 < 0.995 * placement.length:
        parts.append(f"at {percent(l2 / placement.length, 0)} of its strength")
    if distance != "l2":
        parts.append(f"{norm('l2')}{NBSP}{short(l2)}")
    queries = records.queries_to_success[row]
    if not np.ma.is_masked(queries):
        parts.append(f"{count(int(queries))} quer{'ies' if queries != 1 else 'y'} to the first success")
    return escape("; ".join(parts))


def _picture(placement: Placement, clean: Array, colours: Colours, low: float, high: float) -> str:
    """The mask over the faded clean input; empty for vectors."""
    mask = placement.mask()
    if clean.ndim == 1:  # the columns that changed are named beside it
        return ""
    if mask.ndim == 1:
        return _spans(placement, clean, mask, colours)
    title = f"where distortions are placed, {len(placement.standing)} patches"
    if mask.ndim == 3:  # of a video the frame that bears most
        frame = int((mask >= 0).sum((1, 2)).argmax())
        mask, clean = mask[frame], clean[:, frame]
        title += f", frame {frame + 1}"
    grey = (np.clip((clean.reshape(-1, *mask.shape) - low) / ((high - low) or 1.0), 0, 1).mean(0) - 0.5) * FADED + 0.62
    pixels = np.repeat(np.clip(grey, 0, 1)[..., None] * 255, 3, axis=2)
    for index, standing in enumerate(placement.standing):
        covered = mask == index
        density = DENSITY[min(max(standing.severity, 1), len(DENSITY)) - 1]
        pixels[covered] = (1 - density) * pixels[covered] + density * np.array(colours[standing.distortion])
    image = Image.fromarray(np.rint(pixels).astype(np.uint8))
    return thumbnail(image, SIDE, title)


def _spans(placement: Placement, clean: Array, mask: Array, colours: Colours) -> str:
    """Signals: the first channel of the clean input, as high as it is, with what is placed on it as shaded spans."""
    frame = Frame(width=180, height=90, left_edge=0, bottom=4, top=4, right=0)
    line = clean.reshape(-1, clean.shape[-1])[0]
    low, high = float(line.min()), float(line.max())
    ends = np.flatnonzero(np.diff(mask)) + 1
    parts = []
    for start, stop in zip([0, *ends], [*ends, len(mask)], strict=True):
        if mask[start] >= 0:
            standing = placement.standing[int(mask[start])]
            x, wide = frame.x(start / len(mask)), frame.x((stop - start) / len(mask))
            density = DENSITY[min(max(standing.severity, 1), len(DENSITY)) - 1]
            tip = f"{standing.distortion}, severity {standing.severity}"
            parts.append(
                f'<rect x="{x:.1f}" y="0" width="{wide:.1f}" height="{frame.height}" fill="rgb{colours[standing.distortion]}" '
                f'fill-opacity="{density / 2:.2f}"><title>{escape(tip)}</title></rect>'
            )
    parts.append(polyline(frame, "s0", line.tolist(), low, high))
    return svg(frame, f"where distortions are placed, {len(placement.standing)} patches", parts, "trace")
