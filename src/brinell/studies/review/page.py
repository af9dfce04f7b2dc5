"""The page on which a person judges pairs, and the page with the results."""

import base64
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from brinell.core.record import Array
from brinell.pages.figures import LARGE, SMALL_FONT, Frame, axis_label, fitting, percent_axis, svg, tick
from brinell.pages.format import short
from brinell.pages.html import fill, save_page
from brinell.store.files import write_text
from brinell.studies.review.analysis import GroupThreshold, ReviewResult, SizeGroup, fit_curves, summarise
from brinell.studies.review.psychometric import Curve
from brinell.studies.review.records import JUDGE, Review

SMALL = Frame(width=180, height=130, left_edge=40, bottom=26, top=8, right=8, font=SMALL_FONT)


def trial_page(review: Review) -> str:
    """HTML of the page that shows the pairs, which is not told the size of a change or which pictures are equal."""
    clean, changed = review.pairs()
    pairs = []
    for trial in review.trials:
        pictures = [png(clean[trial.number]), png(changed[trial.number])]
        # The page asks for the class of the changed picture; for an equal pair, of the side drawn for it.
        pairs.append({"pictures": pictures[::-1] if trial.changed_left else pictures, "marked": 0 if trial.changed_left else 1})
    return fill(__package__, "trial.html", {}, classes=review.classes, review=review.digest, pairs=pairs)


def png(picture: Array) -> str:
    """A picture, uint8 (H, W, C), as a data URL."""
    buffer = io.BytesIO()
    Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def write(path: Path | str) -> Path:
    """Write `pairs.html` and `report.html` into a review's folder.

    Returns:
        The path of the page.

    Raises:
        RequestError: no review there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    review = Review.open(path)
    write_text(review.path / JUDGE, trial_page(review))
    return save_page(review.path, render(review))


def render(review: Review) -> str:
    """The review as one self-contained HTML document."""
    curves = fit_curves(review, review.answers())
    result = summarise(review, curves)
    decided = [group for group in result.per_class if group.threshold is not None]
    return fill(
        __package__,
        "page.html",
        {"threshold": threshold_text, "interval": interval_text},
        result=result,
        request=review.request,
        most_sensitive=min(decided, key=lambda group: group.threshold or math.inf) if decided else None,
        sentence=summary_text(result),
        curve=curve_figure(curves[None], result.by_size, "Share of pairs judged to differ", LARGE) if None in curves else "",
        class_figures=[
            (name, curve_figure(curves[i], (), f"{name}: share of pairs judged to differ", SMALL))
            for i, name in enumerate(review.classes)
            if i in curves
        ],
    )


def threshold_text(group: GroupThreshold) -> str:
    """A threshold as text."""
    if group.threshold is not None:
        return short(group.threshold)
    if group.low is None and group.high is None:
        return "unknown"
    return "above all sizes" if group.high is None else "below all sizes"


def interval_text(group: GroupThreshold) -> str:
    """The 95 % interval of a threshold as text."""
    if group.low is None and group.high is None:
        return "too few answers"
    if group.low is None:
        return f"at most {short(group.high or 0.0)}"
    return f"at least {short(group.low)}" if group.high is None else f"{short(group.low)} to {short(group.high)}"


def summary_text(result: ReviewResult) -> str:
    """The overall result in one to three sentences."""
    overall = result.overall
    if overall is None:
        return ""
    if overall.threshold is None:
        text = {
            "unknown": "The answers are too few for a threshold: judge more pairs.",
            "above all sizes": "Fewer than half of the largest changes were noticed: review larger ones.",
            "below all sizes": "More than half of the smallest changes were noticed: review smaller ones.",
        }[threshold_text(overall)]
    else:
        safe = overall.low if overall.low is not None else 0.0
        text = f"A change of {short(overall.threshold)} is noticed in half of the cases."
        text += (
            f" Below {short(safe)} most changes are not noticed."
            if safe
            else " The review has no changes that are small enough to go unnoticed."
        )
    if result.catch and result.false_alarms / result.catch > 0.3:
        text += " Equal pairs were often judged to differ, so the thresholds are uncertain."
    return text


def curve_figure(fitted: Curve, groups: Sequence[SizeGroup], title: str, frame: Frame) -> Markup:
    """Figure of a psychometric curve over the logarithm of the size, with its interval and the observed shares."""
    low, high = float(fitted.sizes[0]), float(fitted.sizes[-1])
    span = math.log(high / low) or 1.0

    def x(size: float) -> float:
        """Horizontal position of a size."""
        return frame.x(min(max(math.log(size / low) / span, 0.0), 1.0) if high > low else 0.5)

    line = " ".join(f"{x(s):.1f},{frame.y(p):.1f}" for s, p in zip(fitted.sizes, fitted.probability, strict=True))
    upper = [f"{x(s):.1f},{frame.y(p):.1f}" for s, p in zip(fitted.sizes, fitted.probability_high, strict=True)]
    lower = [f"{x(s):.1f},{frame.y(p):.1f}" for s, p in zip(fitted.sizes, fitted.probability_low, strict=True)]
    parts = [percent_axis(frame, frame is SMALL)]
    sizes = np.geomspace(low, high, 3 if frame is SMALL else 6).tolist() if high > low else [low]
    ends_first = [*sizes[:1], *sizes[:0:-1]]
    parts += [tick(frame, *mark) for mark in fitting(frame, [(x(size), f"{size:.2g}") for size in ends_first])]
    parts.append(f'<polygon class="band s0" points="{" ".join([*upper, *lower[::-1]])}"/>')
    parts.append(f'<polyline class="line s0" points="{line}"/>')
    if fitted.threshold is not None:
        position = x(fitted.threshold)
        parts.append(
            f'<line class="line ref" x1="{position:.1f}" x2="{position:.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(1):.1f}">'
            f"<title>half noticed at {escape(short(fitted.threshold))}</title></line>"
        )
    for group in groups:
        if group.eps > 0 and group.noticed.value is not None:
            tooltip = f"{short(group.eps)}: {group.noticed.k} of {group.noticed.n}"
            coordinates = f'cx="{x(group.eps):.1f}" cy="{frame.y(group.noticed.value):.1f}"'
            parts.append(f'<circle class="dot s0" {coordinates} r="3.5"><title>{tooltip}</title></circle>')
    if frame is not SMALL:
        parts.append(axis_label(frame, "size of the change"))
    return svg(frame, title, parts, "small" if frame is SMALL else "large")
