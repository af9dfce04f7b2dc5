"""The HTML page of a detection study: static and adaptive results of each detector."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape

from brinell.analysis.auc import auc
from brinell.pages.figures import LARGE, axis_label, key, mark, percent_axis, style_of, svg, tick
from brinell.pages.format import percent
from brinell.pages.html import fill, save_page
from brinell.store.table import Folder
from brinell.studies.detection.analysis import DetectionResult, DetectorResult, curve, detector_rows, summarise
from brinell.studies.detection.records import CLEAN, EVADING, TABLE, Scores

ADAPTIVE = dict(zip(EVADING, ("adaptive attack", "adaptive, background kept"), strict=True))
"""Titles of the adaptive attacks."""


def write(path: Path | str) -> Path:
    """Write `report.html` into a detection folder. Returns its path.

    Raises:
        RequestError: the folder holds no detection, or one of its files is damaged.
        StoppedError: the folder cannot be written.
    """
    detection = TABLE.read(path)
    return save_page(detection.path, render(detection))


def render(detection: Folder[Scores]) -> str:
    """The page as one self-contained HTML document."""
    result = summarise(detection)
    return fill(
        __package__,
        "page.html",
        {"named": attack_title},
        result=result,
        titles=detection.manifest.get("titles", {}),
        facts=detection.manifest,
        request=detection.manifest["request"],
        sentence=summary_text(result),
        figures=[(detector, roc(detection, detector)) for detector in result.detectors],
    )


def summary_text(result: DetectionResult) -> str:
    """A summary of the detector with the largest apparent gain, and of the gain that adaptive attacks leave."""
    if not result.detectors:
        return "No detector was examined."
    best = max(result.detectors, key=lambda detector: (detector.static.value or 0.0) - (detector.robust.value or 0.0))
    gain = (best.static.value or 0.0) - (best.robust.value or 0.0)
    if gain <= 0:
        return "No detector adds to the robust accuracy, even against static attacks, which do not know the detector."
    change = f"from {percent(best.robust.value)} to {percent(best.static.value)}"
    text = f"{best.detector} seems to raise the robust accuracy of {best.model} {change}."
    if best.adaptive is None:
        return text + " No adaptive attack ran, so the gain may be detectability alone."
    remaining = max((best.adaptive.value or 0.0) - (best.robust.value or 0.0), 0.0)
    return (
        text + f" Adaptive attacks, which know it, leave {percent(best.adaptive.value)}: "
        f"{percent(1 - remaining / gain, 0)} of the gain was detectability."
    )


def attack_title(attack: str, titles: Mapping[str, str]) -> str:
    """Title of an attack: the short name of a stage, or the title of an adaptive attack."""
    return ADAPTIVE[attack] if attack in ADAPTIVE else titles.get(attack, attack)


def roc(detection: Folder[Scores], detector: DetectorResult) -> Markup:
    """ROC curves: one for all static attacks, and one for each adaptive attack."""
    scores = detector_rows(detection, detector.model, detector.detector)
    clean, frame = scores.score[scores.attack == CLEAN], LARGE
    static = ~np.isin(scores.attack, [CLEAN, *EVADING])
    groups = [("static attacks", static), *((name, scores.attack == attack) for attack, name in ADAPTIVE.items())]
    ticks = [tick(frame, frame.x(share), f"{100 * share:.0f} %") for share in (0.0, 0.5, 1.0)]
    parts = [percent_axis(frame), *ticks]
    parts.append(f'<polyline class="line ref" points="{frame.x(0):.1f},{frame.y(0):.1f} {frame.x(1):.1f},{frame.y(1):.1f}"/>')
    marks, keys = [], []
    for style, (name, rows) in enumerate(groups):
        adversarial = scores.score[rows & scores.fooled]
        if not len(adversarial) or not len(clean):
            continue
        points = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in zip(*curve(clean, adversarial), strict=True))
        parts.append(f'<polyline class="line {style_of(style)}" points="{points}"/>')
        alarms, detected = float((clean > detector.threshold).mean()), float((adversarial > detector.threshold).mean())
        area = f"{auc(clean, adversarial):.3f}"
        label = f"{name}: AUC {area}; at the threshold {percent(detected)} detected, {percent(alarms)} false alarms"
        marks.append(mark(style, frame.x(alarms), frame.y(detected), 5.0 - 0.7 * style, label))
        keys.append(f"<li>{key(style)}{escape(name)}</li>")
    title = f"{detector.detector} on {detector.model}: adversarial inputs detected, by false alarms"
    parts.append(axis_label(frame, "false alarms"))
    return Markup(f'<ul class="legend">{"".join(keys)}</ul>') + svg(frame, title, [*parts, *marks], "large")
