"""The HTML page of a study and its CSV tables."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from brinell.analysis.results import Rate
from brinell.pages.figures import Frame, axis_label, baseline, fitting, mark, percent_axis, svg, tick
from brinell.pages.format import count, norm, percent, rate_text, short
from brinell.pages.html import fill, save_page
from brinell.pages.page import heat
from brinell.pages.tables import csv_text
from brinell.studies.per_class.marks import Mark
from brinell.studies.per_class.results import StudyModel, StudyResult
from brinell.studies.per_class.words import reading, signed

FRAME = Frame(width=340, height=252, left_edge=60, bottom=46, right=26)
MAX_CLASSES = 20
"""Most classes on the page. With more, it shows those with the largest and smallest drops."""


@dataclass(frozen=True)
class Stage:
    """A column of the table: one attack on all models that have it."""

    name: str
    title: str


def write(result: StudyResult, marks: Sequence[Mark] = ()) -> Path:
    """Write `tables/*.csv` and `report.html` into the study's folder. Returns the path of the page.

    Raises:
        StoppedError: the folder cannot be written.
    """
    return save_page(Path(result.folder), render(result, marks), tables(result))


def render(result: StudyResult, marks: Sequence[Mark] = ()) -> str:
    """The page as one self-contained HTML document."""
    class_ids = page_classes(result)
    return fill(
        __package__,
        "page.html",
        {"heat": heat, "signed": signed},
        result=result,
        text=result.eps_text[result.at],
        norm_name=norm(result.distance),
        sentences=reading(result),
        notes=[("note", note) for note in result.notes],
        stages=stages(result),
        class_ids=class_ids,
        by_number=sorted(class_ids),
        names={c.class_: c for c in result.classes},
        of_class=[{c.class_: c for c in model.per_class} for model in result.models],
        left_out=len(result.classes) - len(class_ids),
        figures=scatters(result, marks),
        marks=len(marks),
    )


def page_classes(result: StudyResult) -> list[int]:
    """The classes on the page, from the largest drop to the smallest."""
    order = [c.class_ for c in sorted(result.classes, key=lambda c: (c.mean_drop if c.mean_drop is not None else 1.0, c.class_))]
    return order if len(order) <= MAX_CLASSES else order[: MAX_CLASSES // 2] + order[-(MAX_CLASSES // 2) :]


def stages(result: StudyResult) -> list[Stage]:
    """The attacks that broke a sample or took time on any model, once each, in order of first use."""
    columns: dict[str, Stage] = {}
    for model in result.models:
        for stage in model.stages:
            if stage.forwards or stage.backwards:
                columns.setdefault(stage.attack, Stage(name=stage.attack, title=stage.label))
    return list(columns.values())


def scatters(result: StudyResult, marks: Sequence[Mark]) -> list[tuple[str, Markup]]:
    """Scatter plots of robust accuracy over parameters, attack time and clean accuracy."""
    text = result.eps_text[result.at]
    figures: dict[str, Callable[[StudyModel], float | None]] = {
        "parameters": lambda model: model.parameters,
        "seconds of attack": lambda model: model.seconds or None,
    }
    plots = []
    for name, value in figures.items():
        values = [value(model) for model in result.models]
        if sum(model is not None for model in values) > 1:
            plot = _scatter(result, values, f"{name} (logarithmic)", f"robust accuracy at {text} against {name}")
            plots.append((name, plot))
    clean = [model.clean.value for model in result.models]
    plot = _scatter(result, clean, "clean accuracy", f"robust accuracy at {text} against clean accuracy", marks, share=True)
    return [*plots, ("clean accuracy", plot)]


def _scatter(
    result: StudyResult,
    values: Sequence[float | None],
    label: str,
    title: str,
    marks: Sequence[Mark] = (),
    *,
    share: bool = False,
) -> Markup:
    """A point for each model with the interval of its robust accuracy; the x axis is logarithmic unless it shows shares."""
    numbers = [value for value in values if value is not None]
    low, high = (0.0, 1.0) if share else _decades(numbers)

    def x_position(value: float) -> float:
        """Horizontal position of a value."""
        return FRAME.x(value if share else (math.log10(value) - low) / (high - low))

    parts = [percent_axis(FRAME), *_axis(x_position, low, high, share), axis_label(FRAME, label)]
    for reference in marks:
        tip = f"{reference.name}, published: {percent(reference.robust)} robust, {percent(reference.clean)} clean"
        attributes = f'cx="{x_position(reference.clean):.1f}" cy="{FRAME.y(reference.robust):.1f}" r="2"'
        parts.append(f'<circle class="reference" {attributes}><title>{escape(tip)}</title></circle>')
    for style, (model, value) in enumerate(zip(result.models, values, strict=True)):
        rate = model.robust[result.at]
        if value is None or rate.value is None or rate.low is None or rate.high is None:
            continue
        x, text = x_position(value), percent(value) if share else count(round(value)) if value >= 100 else short(value)
        parts.append(_whisker(style, x, rate))
        parts.append(
            mark(style, x, FRAME.y(rate.value), 4.5, f"{model.model}: {percent(rate.value)} ({rate_text(rate)}); {text}")
        )
    return svg(FRAME, title, parts, "bars")


def _whisker(style: int, x: float, rate: Rate) -> str:
    """The interval of a rate as a vertical line."""
    ends = f'y1="{FRAME.y(rate.low or 0.0):.1f}" y2="{FRAME.y(rate.high or 0.0):.1f}"'
    return f'<line class="line s{style % 5}" x1="{x:.1f}" x2="{x:.1f}" {ends}/>'


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of the ends of an axis around the values, with a margin."""
    logs = [math.log10(value) for value in values]
    low, high = min(logs), max(logs)
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def _axis(x_position: Callable[[float], float], low: float, high: float, share: bool) -> Iterable[str]:
    """The horizontal axis with ticks."""
    yield baseline(FRAME)
    if share:
        ticks = [(value, f"{100 * value:.0f} %") for value in (0.0, 0.25, 0.5, 0.75, 1.0)]
    else:
        ends = range(math.floor(low), math.ceil(high) + 1)
        ticks = [(m * 10.0**e, _big(m * 10.0**e)) for e in ends for m in (1, 2, 5) if low <= math.log10(m * 10.0**e) <= high]
        ticks = ticks or [(10 ** ((low + high) / 2), _big(10 ** ((low + high) / 2)))]
    for x, text in fitting(FRAME, [(x_position(value), text) for value, text in ticks]):
        yield tick(FRAME, x, text, line=True)


def _big(value: float) -> str:
    """A number for a narrow axis: `500`, `20k`, `3M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


# Tables


def tables(result: StudyResult) -> dict[str, str]:
    """CSV text by file name: everything on the page, for all classes, in full precision."""
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
    """Rows of the table of models."""
    for m in result.models:
        for rate in [m.clean, *(rate for rate in m.robust if rate.eps > 0)]:
            rank = (m.rank.rank, m.rank.low, m.rank.high) if rate is m.robust[result.at] else (None, None, None)
            yield (m.model, m.run, m.architecture, m.parameters, rate.eps, *_rate(rate), *rank, m.mean_drop, m.seconds)


def _stages(result: StudyResult) -> Iterable[Sequence[object]]:
    """Rows of the table of stages."""
    for m in result.models:
        for s in m.stages:
            yield m.model, s.attack, s.title, result.eps[result.at], s.accuracy, s.drop, s.seconds


def _per_class(result: StudyResult) -> Iterable[Sequence[object]]:
    """Rows of the table of classes."""
    for m in result.models:
        for c in m.per_class:
            for rate, drop in zip(c.robust, c.drop, strict=True):
                yield (m.model, c.class_, c.name, rate.eps, *_rate(rate), drop)


def _totals(result: StudyResult) -> Iterable[Sequence[object]]:
    """Rows of the table of total drops."""
    for m in result.models:
        for c in m.per_class:
            yield m.model, c.class_, c.name, c.clean.value, c.total_drop
        yield m.model, None, "mean over classes", m.clean.value, m.mean_drop
    for class_mean in result.classes:
        yield "mean over models", class_mean.class_, class_mean.name, class_mean.mean_clean, class_mean.mean_drop
