"""The page about detectors: what they seem to give, and what is left once attacks know them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape

from brinell.pages.figures import LARGE, key, mark, percent_axis, style_of, svg
from brinell.pages.format import percent
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.store.table import Folder
from brinell.studies.detection.analysis import DetectionResult, DetectorResult, auc, curve, of, summarise
from brinell.studies.detection.records import CLEAN, EVADING, TABLE, Scores

ADAPTIVE = dict(zip(EVADING, ("adaptive attack", "adaptive, background kept"), strict=True))
"""What people call the attacks that know the detector."""


def write(path: Path | str) -> Path:
    """Write `report.html` into a detection folder; returns its path.

    Raises:
        RequestError: no detection there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    detection = TABLE.read(path)
    file = detection.path / "report.html"
    write_text(file, render(detection))
    return file


def render(detection: Folder[Scores]) -> str:
    """The page as one self-contained HTML document."""
    result = summarise(detection)
    return fill(
        __package__,
        "page.html",
        {"named": named},
        result=result,
        titles=detection.manifest.get("titles", {}),
        facts=detection.manifest,
        request=detection.manifest["request"],
        sentence=in_words(result),
        figures=[(one, roc(detection, one)) for one in result.detectors],
    )


def in_words(result: DetectionResult) -> str:
    """The finding in a sentence or two: the detector that seems to give most, and what is left of it."""
    if not result.detectors:
        return "No detector was examined."
    best = max(result.detectors, key=lambda one: (one.static.value or 0.0) - (one.robust.value or 0.0))
    gain = (best.static.value or 0.0) - (best.robust.value or 0.0)
    if gain <= 0:
        return "No detector adds to the robust accuracy, even against static attacks, which know nothing of it."
    seems = f"from {percent(best.robust.value)} to {percent(best.static.value)}"
    said = f"{best.detector} seems to raise the robust accuracy of {best.model} {seems}."
    if best.adaptive is None:
        return said + " Adaptive attacks, which know it, were not tried, so this may be detectability alone."
    left = max((best.adaptive.value or 0.0) - (best.robust.value or 0.0), 0.0)
    return (
        said + f" Adaptive attacks, which know it, leave {percent(best.adaptive.value)}: "
        f"{percent(1 - left / gain, 0)} of the gain was detectability."
    )


def named(attack: str, titles: Mapping[str, str]) -> str:
    """An attack as people call it: a stage by its short name, and those that know the detector as adaptive."""
    return ADAPTIVE[attack] if attack in ADAPTIVE else titles.get(attack, attack)


def roc(detection: Folder[Scores], one: DetectorResult) -> Markup:
    """ROC curves: of all static attacks together, and of each adaptive one."""
    scores = of(detection, one.model, one.detector)
    clean, frame = scores.score[scores.attack == CLEAN], LARGE
    static = ~np.isin(scores.attack, [CLEAN, *EVADING])
    groups = [("static attacks", static), *((name, scores.attack == attack) for attack, name in ADAPTIVE.items())]
    parts = [percent_axis(frame)]
    for share, anchor in ((0.0, "mid"), (0.5, "mid"), (1.0, "end")):
        y = frame.height - frame.bottom + 16
        parts.append(f'<text class="{anchor}" x="{frame.x(share):.1f}" y="{y}">{100 * share:.0f} %</text>')
    parts.append(f'<polyline class="line ref" points="{frame.x(0):.1f},{frame.y(0):.1f} {frame.x(1):.1f},{frame.y(1):.1f}"/>')
    marks, keys = [], []
    for style, (name, rows) in enumerate(groups):
        found = scores.score[rows & scores.fooled]
        if not len(found) or not len(clean):
            continue
        points = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in zip(*curve(clean, found), strict=True))
        parts.append(f'<polyline class="line {style_of(style)}" points="{points}"/>')
        alarms, caught = float((clean > one.threshold).mean()), float((found > one.threshold).mean())
        told = f"{name}: AUC {auc(clean, found):.3f}; at the threshold {percent(caught)} caught, {percent(alarms)} false alarms"
        marks.append(mark(style, frame.x(alarms), frame.y(caught), 5.0 - 0.7 * style, told))
        keys.append(f"<li>{key(style)}{escape(name)}</li>")
    title = f"{one.detector} before {one.model}: adversarial inputs caught, by false alarms"
    parts.append(f'<text class="mid label" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">false alarms</text>')
    return Markup(f'<ul class="legend">{"".join(keys)}</ul>') + svg(frame, title, [*parts, *marks], "large")
