"""The page on which a person judges pairs, and the page that tells what people saw."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape

from brinell.pages.figures import LARGE, Frame, percent_axis, svg
from brinell.pages.format import short
from brinell.pages.html import fill
from brinell.store.files import write_text
from brinell.studies.review.analysis import Named, Noticed, ReviewResult, fits, summarise
from brinell.studies.review.psychometric import Curve
from brinell.studies.review.records import Review

SMALL = Frame(width=180, height=126, left=40, bottom=22, top=8, right=8)


def trial_page(review: Review) -> str:
    """HTML of the page that shows pair after pair."""
    return fill(__package__, "trial.html", {}, classes=review.classes)


def write(path: Path | str) -> Path:
    """Write `report.html` into a review's folder.

    Returns:
        The path of the page.

    Raises:
        RequestError: no review there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    review = Review.open(path)
    file = review.path / "report.html"
    write_text(file, render(review))
    return file


def render(review: Review) -> str:
    """The review as one self-contained HTML document."""
    curves = fits(review, review.answers())
    result = summarise(review, curves)
    reached = [one for one in result.per_class if one.threshold is not None]
    return fill(
        __package__,
        "page.html",
        {"threshold": threshold, "interval": interval},
        result=result,
        request=review.request,
        keenest=min(reached, key=lambda one: one.threshold or math.inf) if reached else None,
        sentence=in_words(result),
        curve=curve(curves[None], result.by_size, "Share of pairs said to differ", LARGE) if None in curves else "",
        class_figures=[
            (name, curve(curves[i], (), f"{name}: share of pairs said to differ", SMALL))
            for i, name in enumerate(review.classes)
            if i in curves
        ],
    )


def threshold(one: Noticed) -> str:
    """The size at which half is noticed, as a cell shows it."""
    if one.threshold is not None:
        return short(one.threshold)
    if one.low is None and one.high is None:
        return "undecided"
    return "above all shown" if one.high is None else "below all shown"


def interval(one: Noticed) -> str:
    """The interval of a threshold, open where the answers leave it open."""
    if one.low is None and one.high is None:
        return "the answers do not tell"
    if one.low is None:
        return f"at most {short(one.high or 0.0)}"
    return f"at least {short(one.low)}" if one.high is None else f"{short(one.low)} to {short(one.high)}"


def in_words(result: ReviewResult) -> str:
    """What a budget may be, as one sentence or two."""
    overall = result.overall
    if overall is None:
        return ""
    if overall.threshold is None:
        said = {
            "undecided": "The answers do not tell where changes begin to show: judge more pairs.",
            "above all shown": "Fewer than half of the largest changes shown were noticed: go on with larger ones.",
            "below all shown": "More than half of the smallest changes shown were noticed: go on with smaller ones.",
        }[threshold(overall)]
    else:
        safe = overall.low if overall.low is not None else 0.0
        said = f"A change of {short(overall.threshold)} is noticed half of the time."
        said += (
            f" Below {short(safe)} most stay unseen." if safe else " How much smaller it must be to stay unseen was not shown."
        )
    if result.catch and result.false_alarms / result.catch > 0.3:
        said += " Equal pairs were often said to differ, which makes the thresholds uncertain."
    return said


def curve(fitted: Curve, dots: Sequence[Named], title: str, frame: Frame) -> Markup:
    """A psychometric curve over the logarithm of the size, with its band and the answers."""
    low, high = float(fitted.sizes[0]), float(fitted.sizes[-1])
    span = math.log(high / low) or 1.0

    def x(size: float) -> float:
        return frame.x(min(max(math.log(size / low) / span, 0.0), 1.0) if high > low else 0.5)

    line = " ".join(f"{x(s):.1f},{frame.y(p):.1f}" for s, p in zip(fitted.sizes, fitted.probability, strict=True))
    upper = [f"{x(s):.1f},{frame.y(p):.1f}" for s, p in zip(fitted.sizes, fitted.probability_high, strict=True)]
    lower = [f"{x(s):.1f},{frame.y(p):.1f}" for s, p in zip(fitted.sizes, fitted.probability_low, strict=True)]
    parts = [percent_axis(frame, frame is SMALL)]
    ticks = np.geomspace(low, high, 3 if frame is SMALL else 6).tolist() if high > low else [low]
    for i, size in enumerate(ticks):
        anchor = "mid" if 0 < i < len(ticks) - 1 or len(ticks) == 1 else "end" if i else "start"
        y = frame.height - frame.bottom + 16
        parts.append(f'<text class="{anchor}" x="{x(size):.1f}" y="{y}">{escape(f"{size:.2g}")}</text>')
    parts.append(f'<polygon class="band s0" points="{" ".join([*upper, *lower[::-1]])}"/>')
    parts.append(f'<polyline class="line s0" points="{line}"/>')
    if fitted.threshold is not None:
        at = x(fitted.threshold)
        parts.append(
            f'<line class="line ref" x1="{at:.1f}" x2="{at:.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(1):.1f}">'
            f"<title>half noticed at {escape(short(fitted.threshold))}</title></line>"
        )
    for one in dots:
        if one.eps > 0 and one.noticed.value is not None:
            told = f"{short(one.eps)}: {one.noticed.k} of {one.noticed.n}"
            where = f'cx="{x(one.eps):.1f}" cy="{frame.y(one.noticed.value):.1f}"'
            parts.append(f'<circle class="dot s0" {where} r="3.5"><title>{told}</title></circle>')
    if frame is not SMALL:
        parts.append(f'<text class="mid" x="{frame.x(0.5):.1f}" y="{frame.height - 6}">size of the change</text>')
    return svg(frame, title, parts, "small" if frame is SMALL else "large")
