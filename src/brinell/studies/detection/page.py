"""The page about detectors: what they seem to give, and what is left once attacks know them."""

from pathlib import Path

from markupsafe import Markup, escape

from brinell.report.figures import COLOURS, LARGE, percent_axis, svg
from brinell.report.format import percent
from brinell.report.html import fill
from brinell.store.files import write_text
from brinell.studies.detection.analysis import DetectionResult, DetectorResult, curve, of, summarise
from brinell.studies.detection.records import CLEAN, Detection


def write(path: Path | str) -> Path:
    """Write `detection.html` into a detection folder; returns its path.

    Raises:
        RequestError: no detection there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    detection = Detection.open(path)
    file = detection.path / "detection.html"
    write_text(file, render(detection))
    return file


def render(detection: Detection) -> str:
    """The page as one self-contained HTML document."""
    result = summarise(detection)
    return fill(
        __package__,
        "page.html",
        {},
        result=result,
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


def roc(detection: Detection, one: DetectorResult) -> Markup:
    """ROC curves of all attacks that found something."""
    scores = of(detection, one.model, one.detector)
    clean = scores.score[scores.attack == CLEAN]
    frame, parts = LARGE, [percent_axis(LARGE)]
    for share, anchor in ((0.0, "mid"), (0.5, "mid"), (1.0, "end")):
        y = frame.height - frame.bottom + 16
        parts.append(f'<text class="{anchor}" x="{frame.x(share):.1f}" y="{y}">{100 * share:.0f} %</text>')
    parts.append(f'<polyline class="line ref" points="{frame.x(0):.1f},{frame.y(0):.1f} {frame.x(1):.1f},{frame.y(1):.1f}"/>')
    if one.false_alarms.value is not None:
        x = frame.x(one.false_alarms.value)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(1):.1f}"/>')
    drawn = [r for r in one.rocs if r.n]
    for number, r in enumerate(drawn):
        false, true = curve(clean, scores.score[(scores.attack == r.attack) & scores.fooled])
        points = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in zip(false, true, strict=True))
        told = f"{r.attack}: AUC {r.auc:.3f}"
        parts.append(f'<polyline class="line s{number % COLOURS}" points="{points}"><title>{escape(told)}</title></polyline>')
    title = f"{one.detector} before {one.model}: adversarial inputs caught, by false alarms"
    keys = "".join(f'<li><span class="key s{i % COLOURS}"></span>{escape(r.attack)}</li>' for i, r in enumerate(drawn))
    parts.append(f'<text class="mid" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">false alarms</text>')
    return Markup(f'<ul class="legend">{keys}</ul>') + svg(frame, title, parts, "large")
