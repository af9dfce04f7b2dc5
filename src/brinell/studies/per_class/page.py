"""The page of a study: the published layout with intervals, what goes with robustness, and a reading in words."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from brinell.analysis.results import Rate
from brinell.pages.figures import Frame, fitting, mark, percent_axis, svg
from brinell.pages.format import count, norm, percent, rate_text, short
from brinell.pages.html import fill
from brinell.pages.page import heat
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.studies.per_class.marks import Mark
from brinell.studies.per_class.results import StudyModel, StudyResult
from brinell.studies.per_class.words import reading, signed

FRAME = Frame(width=340, height=250, left=46, bottom=44, right=26)
SHOWN = 20
"""Up to this many classes every one is shown; of more, those that lose most and least."""


@dataclass(frozen=True)
class Stage:
    """A column of the table: one attack on all models that have it."""

    name: str
    title: str


def write(result: StudyResult, marks: Sequence[Mark] = ()) -> Path:
    """Write `tables/*.csv` and `report.html` into the study's folder; returns the path of the page.

    Raises:
        StoppedError: the folder cannot be written.
    """
    folder = Path(result.folder)
    for name, text in tables(result).items():
        write_text(folder / "tables" / name, text)
    write_text(folder / "report.html", render(result, marks))
    return folder / "report.html"


def render(result: StudyResult, marks: Sequence[Mark] = ()) -> str:
    """The page as one self-contained HTML document."""
    chosen = shown(result)
    return fill(
        __package__,
        "page.html",
        {"heat": heat, "signed": signed},
        result=result,
        text=result.eps_text[result.at],
        norm_name=norm(result.distance),
        sentences=reading(result),
        stages=stages(result),
        chosen=chosen,
        by_number=sorted(chosen),
        names={c.class_: c for c in result.classes},
        of_class=[{c.class_: c for c in model.per_class} for model in result.models],
        left_out=len(result.classes) - len(chosen),
        figures=scatters(result, marks),
        marks=len(marks),
    )


def shown(result: StudyResult) -> list[int]:
    """The classes on the page, the one that loses most first."""
    order = [c.class_ for c in sorted(result.classes, key=lambda c: (c.mean_drop if c.mean_drop is not None else 1.0, c.class_))]
    return order if len(order) <= SHOWN else order[: SHOWN // 2] + order[-(SHOWN // 2) :]


def stages(result: StudyResult) -> list[Stage]:
    """The attacks that broke a sample of any model or took time, each once, in the order in which they first occur."""
    found: dict[str, Stage] = {}
    for model in result.models:
        for stage in model.stages:
            if stage.forwards or stage.backwards:
                found.setdefault(stage.attack, Stage(name=stage.attack, title=stage.label))
    return list(found.values())


def scatters(result: StudyResult, marks: Sequence[Mark]) -> list[tuple[str, Markup]]:
    """Robust accuracy against parameters, against the time of the attacks and against clean accuracy."""
    text = result.eps_text[result.at]
    of: dict[str, Callable[[StudyModel], float | None]] = {
        "parameters": lambda one: one.parameters,
        "seconds of attack": lambda one: one.seconds or None,
    }
    found = []
    for name, value in of.items():
        values = [value(one) for one in result.models]
        if sum(one is not None for one in values) > 1:
            drawn = _scatter(result, values, f"{name} (logarithmic)", f"robust accuracy at {text} against {name}")
            found.append((name, drawn))
    clean = [one.clean.value for one in result.models]
    drawn = _scatter(result, clean, "clean accuracy", f"robust accuracy at {text} against clean accuracy", marks, share=True)
    return [*found, ("clean accuracy", drawn)]


def _scatter(
    result: StudyResult,
    values: Sequence[float | None],
    label: str,
    title: str,
    marks: Sequence[Mark] = (),
    *,
    share: bool = False,
) -> Markup:
    """A point for each model with the interval of its robust accuracy; on a logarithmic axis unless it shows shares."""
    known = [value for value in values if value is not None]
    low, high = (0.0, 1.0) if share else _decades(known)

    def along(value: float) -> float:
        return FRAME.x(value if share else (math.log10(value) - low) / (high - low))

    parts = [percent_axis(FRAME), *_axis(along, low, high, share), _below(label)]
    for one in marks:
        tip = f"{one.name}, published: {percent(one.robust)} robust, {percent(one.clean)} clean"
        at = f'cx="{along(one.clean):.1f}" cy="{FRAME.y(one.robust):.1f}" r="2"'
        parts.append(f'<circle class="reference" {at}><title>{escape(tip)}</title></circle>')
    for style, (model, value) in enumerate(zip(result.models, values, strict=True)):
        rate = model.robust[result.at]
        if value is None or rate.value is None or rate.low is None or rate.high is None:
            continue
        x, said = along(value), percent(value) if share else count(round(value)) if value >= 100 else short(value)
        parts.append(_whisker(style, x, rate))
        parts.append(
            mark(style, x, FRAME.y(rate.value), 4.5, f"{model.model}: {percent(rate.value)} ({rate_text(rate)}); {said}")
        )
    return svg(FRAME, title, parts, "bars")


def _whisker(style: int, x: float, rate: Rate) -> str:
    ends = f'y1="{FRAME.y(rate.low or 0.0):.1f}" y2="{FRAME.y(rate.high or 0.0):.1f}"'
    return f'<line class="line s{style % 5}" x1="{x:.1f}" x2="{x:.1f}" {ends}/>'


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of the ends of an axis that holds these values with some room."""
    logs = [math.log10(value) for value in values]
    low, high = min(logs), max(logs)
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def _axis(along: Callable[[float], float], low: float, high: float, share: bool) -> Iterable[str]:
    y = FRAME.y(0)
    yield f'<line class="axis" x1="{FRAME.left}" x2="{FRAME.x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    if share:
        ticks = [(value, f"{100 * value:.0f} %") for value in (0.0, 0.25, 0.5, 0.75, 1.0)]
    else:
        ends = range(math.floor(low), math.ceil(high) + 1)
        ticks = [(m * 10.0**e, _big(m * 10.0**e)) for e in ends for m in (1, 2, 5) if low <= math.log10(m * 10.0**e) <= high]
        ticks = ticks or [(10 ** ((low + high) / 2), _big(10 ** ((low + high) / 2)))]
    for x, text in fitting([(along(value), text) for value, text in ticks], 8.0):
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 4:.1f}"/>'
        yield f'<text class="mid" x="{x:.1f}" y="{y + 17:.1f}">{escape(text)}</text>'


def _big(value: float) -> str:
    """A number for a narrow axis: `500`, `20k`, `3M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _below(label: str) -> str:
    return f'<text class="mid label" x="{FRAME.x(0.5):.1f}" y="{FRAME.height - 6}">{escape(label)}</text>'


# Tables


def tables(result: StudyResult) -> dict[str, str]:
    """File name to CSV text: everything that the page shows, all classes, full precision."""
    rate = ("value", "low", "high", "k", "n")
    return {
        "models.csv": csv_text(
            ("model", "run", "architecture", "parameters", "eps", *rate, "rank", "rank_low", "rank_high", "mean_drop", "seconds"),
            _models(result),
        ),
        "stages.csv": csv_text(("model", "attack", "title", "eps", "accuracy", "drop", "seconds"), _stages(result)),
        "per_class.csv": csv_text(("model", "class", "name", "eps", *rate, "drop"), _per_class(result)),
        "total_drop.csv": csv_text(("model", "class", "name", "clean", "total_drop"), _totals(result)),
        "ranks.csv": csv_text(
            ("statistic", "of", "by", "value", "low", "high", "p", "n"),
            ((r.statistic, r.of, ", ".join(r.by), r.value, r.low, r.high, r.p, r.n) for r in result.ranks),
        ),
    }


def _rate(rate: Rate) -> tuple[object, ...]:
    return rate.value, rate.low, rate.high, rate.k, rate.n


def _models(result: StudyResult) -> Iterable[Sequence[object]]:
    for m in result.models:
        for rate in [m.clean, *(one for one in m.robust if one.eps > 0)]:
            placed = (m.rank.rank, m.rank.low, m.rank.high) if rate is m.robust[result.at] else (None, None, None)
            yield (m.model, m.run, m.architecture, m.parameters, rate.eps, *_rate(rate), *placed, m.mean_drop, m.seconds)


def _stages(result: StudyResult) -> Iterable[Sequence[object]]:
    for m in result.models:
        for s in m.stages:
            yield m.model, s.attack, s.title, result.eps[result.at], s.accuracy, s.drop, s.seconds


def _per_class(result: StudyResult) -> Iterable[Sequence[object]]:
    for m in result.models:
        for c in m.per_class:
            for rate, drop in zip(c.robust, c.drop, strict=True):
                yield (m.model, c.class_, c.name, rate.eps, *_rate(rate), drop)


def _totals(result: StudyResult) -> Iterable[Sequence[object]]:
    for m in result.models:
        for c in m.per_class:
            yield m.model, c.class_, c.name, c.clean.value, c.total_drop
        yield m.model, None, "mean over classes", m.clean.value, m.mean_drop
    for over in result.classes:
        yield "mean over models", over.class_, over.name, over.mean_clean, over.mean_drop
