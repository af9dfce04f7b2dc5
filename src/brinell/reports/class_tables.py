"""Tables of classes over budgets and over models, which an audit and a comparison share."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from brinell.analysis.inference import LEAST_CORRELATED
from brinell.analysis.results import ClassResult, ModelResult, Rate
from brinell.analysis.robust_accuracy import mean, minus
from brinell.analysis.total_drops import MeanDrop, TotalDrops
from brinell.reports.numbers import counted, listed, points, whole
from brinell.reports.samples import where
from brinell.reports.values import Cell, Detail, Measure, Points, Table

MOST_CLASSES = 20
"""Number of classes that a page shows; of more the weakest, and the CSV file has all."""
CLEAN, TOTAL = "clean", "total drop"
SHARES = (
    "Shares of the variation are those of a two-way analysis of variance, less what chance adds "
    "with so few samples; their intervals are by a bootstrap over samples."
)

MOST_ROWS = 60
"""Rows from which the table is folded: five models at nine budgets have 55."""
MOST_OPEN = 12
"""Classes above which the table of their total drops is folded."""


class Classified(Protocol):
    """A model with its figures class by class."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def per_class(self) -> list[ClassResult]:
        """Its classes."""


def over_models(names: list[str], total: int) -> str:
    """The models of a mean: all of a study, or the names of those that are in it."""
    if len(names) == total:
        return "over the models"
    return f"{'over' if len(names) > 1 else 'on'} {listed(names)}"


def step_tables(
    models: Sequence[ModelResult], above: Sequence[int], weakest: Sequence[int]
) -> Iterator[Table]:
    """Accuracy of each class at each budget with its drop from the budget before; and the same as a
    file.

    Args:
        models: of a run, on the same data.
        above: positions of the budgets above 0.
        weakest: indices of the classes, the weakest first.
    """
    indices = sorted(weakest[:MOST_CLASSES])
    names = {c.class_: c.name for model in models for c in model.per_class}
    has_column = len(models) > 1
    rows: list[list[Cell]] = []
    opens = []
    for model in models:
        own = {"model": model.name} if has_column else {}
        for row in _steps_of(model, above, indices):
            budget = _budget(str(row[0]), model.eps_text[-1])
            rows.append([*own.values(), *row])
            # The cells before those of the classes: model, budget, all samples and the mean drop.
            all_classes = [where(**own, **budget)] * (len(own) + 3)
            opens.append([*all_classes, *(where(**own, **{"class": c}, **budget) for c in indices)])

    text = (
        "Accuracy in percent, and beside it the change from the row before in points. The mean "
        "drop is over the classes, each counted alike."
    )
    if len(indices) < len(names):
        text += (
            f" Of {counted(len(names), 'class', 'classes')} the {len(indices)} lowest; "
            "tables/class_steps.csv has all, and the means are over all."
        )
    yield Table(
        title="Class by class over the budgets",
        columns=[*["model"] * has_column, "eps", "all", "mean drop", *(names[c] for c in indices)],
        rows=rows,
        text=text,
        heat=True,
        beside=True,
        terminal=True,
        folded=len(rows) > MOST_ROWS,
        opens=opens,
    )
    yield _steps_file(models, above)


def _budget(text: str, last: str) -> dict[str, str]:
    """The samples of a row: those that are wrong untouched, or broken within its budget."""
    if text == CLEAN:
        return {"outcome": "wrong"}
    return {"eps": last if text == TOTAL else text}


def _steps_of(
    model: ModelResult, above: Sequence[int], indices: Sequence[int]
) -> Iterator[list[Cell]]:
    """The rows of a model: clean inputs, each budget, and the change over all of them."""
    by_class = {c.class_: c for c in model.per_class}
    classes = [by_class.get(index) for index in indices]
    yield [CLEAN, model.clean_accuracy, None, *(c and c.clean for c in classes)]

    before = model.clean_accuracy
    for index in above:
        rate = model.robust_accuracy[index]
        cells = [c and _step(c.robust[index], c.drop[index]) for c in classes]
        mean_drop = mean([c.drop[index] for c in model.per_class])
        overall = _step(rate, minus(rate.value, before.value))
        yield [model.eps_text[index], overall, Points(mean_drop), *cells]
        before = rate

    total = minus(before.value, model.clean_accuracy.value)
    mean_total = mean([c.total_drop for c in model.per_class])
    totals = [Points(c.total_drop) if c else None for c in classes]
    yield [TOTAL, Points(total), Points(mean_total), *totals]


def _step(rate: Rate, drop: float | None) -> Detail:
    return Detail(rate, points(drop))


def _steps_file(models: Sequence[ModelResult], above: Sequence[int]) -> Table:
    """Every class of every model at every budget, a row each; the first rows of a model are all of
    its samples.
    """
    rows: list[list[Cell]] = []
    for model in models:
        texts = [CLEAN, *(model.eps_text[index] for index in above)]
        robust = [model.robust_accuracy[index] for index in above]
        overall = [model.clean_accuracy, *robust]
        values = [rate.value for rate in overall]
        drops = [None, *map(minus, values[1:], values[:-1])]
        total = minus(values[-1], values[0])

        # The rows of all samples first: a reader of the file meets the whole before its parts.
        for text, rate, drop in zip(texts, overall, drops, strict=True):
            rows.append([model.name, None, "all", text, rate, Points(drop), Points(total)])
        for c in model.per_class:
            rates = [c.clean, *(c.robust[index] for index in above)]
            steps = [None, *(c.drop[index] for index in above)]
            for text, rate, drop in zip(texts, rates, steps, strict=True):
                row = [c.class_, c.name, text, rate, Points(drop), Points(c.total_drop)]
                rows.append([model.name, *row])

    return Table(
        title="Every class at every budget",
        columns=("model", "class", "name", "eps", "accuracy", "drop, points", "total drop, points"),
        rows=rows,
        name="class_steps",
        page=False,
    )


def drop_tables(drops: TotalDrops, models: Sequence[Classified], eps: str) -> Iterator[Table]:
    """The total drop of each class on each model up to a budget, the largest first, with the means
    over models and over classes.
    """
    by_class = [{c.class_: c for c in model.per_class} for model in models]
    order = sorted(drops.classes, key=lambda drop: drop.value)
    rows: list[list[Cell]] = []
    for drop in order:
        entries = [classes.get(drop.index) for classes in by_class]
        cells = [Points(entry.total_drop) if entry else None for entry in entries]
        rows.append([drop.name, *cells, _points(drop)])
    over_all = Points(mean([drop.value for drop in drops.classes]))
    means: list[Cell] = ["mean over classes", *map(_points, drops.models), over_all]

    text = (
        f"Change of accuracy from clean inputs to {eps} in points, the class that loses most "
        f"first; {counted(drops.n, 'sample')} that were judged on every model. In the means every "
        "model and every class counts alike."
    )
    if absent := [model.name for model in models if model.name not in drops.over]:
        text += f" No sample is robust on {listed(absent)}, which the means of classes leave out."
    if drops.decomposition:
        text += f" {SHARES}"
    if drops.left_out:
        text += f" One sample only, and so in no share: {listed(drops.left_out)}."
    table = Table(
        title=f"Total drop up to {eps}, class by model",
        columns=[
            "class",
            *(model.name for model in models),
            f"mean {over_models(drops.over, len(models))}",
        ],
        rows=[*rows, means],
        name="total_drops",
        text=text,
        terminal=True,
        folded=len(rows) > MOST_OPEN,
    )
    if len(rows) <= MOST_CLASSES:
        yield table
        return
    # The page shows what loses most; the file has every class, so it is a table of its own.
    page_text = f"{text} Of {whole(len(rows))} classes the {MOST_CLASSES} that lose most; the CSV file has all."
    yield replace(table, rows=[*rows[:MOST_CLASSES], means], text=page_text, name="")
    yield replace(table, page=False, terminal=False)


def _points(drop: MeanDrop | None) -> Points:
    return Points(drop.value, drop.low, drop.high) if drop else Points(None)


def distance_tables(
    models: Sequence[ModelResult], drops: TotalDrops | None, eps: str, space: str
) -> Iterator[Table]:
    """The distance of each class to the nearest other class beside what it loses, the nearest
    first, and how both go together.

    Args:
        models: of a run with an epsilon study.
        drops: means over the models; None for one model.
        eps: the budget up to which accuracy drops.
        space: name of the distance.
    """
    several = len(models) > 1
    names = [f"{model.name}, " * several for model in models]
    figures = [f"{name}{figure}" for name in names for figure in (CLEAN, TOTAL)]
    means = {drop.index: drop for drop in drops.classes} if drops else {}
    order = _by_nearness(models)
    rows = [_distance_row(c, models) for c in order]
    if drops:
        figures.append(f"mean {TOTAL} {over_models(drops.over, len(models))}")
        for c, row in zip(order, rows, strict=True):
            row.append(_points(means.get(c.class_)))

    text = (
        "Mean distance of the samples of two classes, and the median distance of a sample to the "
        "nearest sample of any other class, from the study in FOLDER/epsilon."
    )
    if unknown := [c.name for c in order if c.nearest is None]:
        text += f" Without samples in the study: {listed(unknown)}."
    table = Table(
        title=f"Class distance against class robustness, {space}, up to {eps}",
        columns=[
            "class",
            "nearest other class",
            "mean distance",
            "to the nearest sample",
            *figures,
        ],
        rows=rows,
        text=text,
        name="class_distances",
        terminal=True,
    )
    if len(rows) > MOST_CLASSES:
        text += (
            f" Of {counted(len(rows), 'class', 'classes')} the {MOST_CLASSES} that are nearest to "
            "another; tables/class_distances.csv has all."
        )
        yield replace(table, rows=rows[:MOST_CLASSES], text=text, name="")
        table = replace(table, page=False, terminal=False)
    yield table
    yield _correlation_table(models)


def _by_nearness(models: Sequence[ModelResult]) -> list[ClassResult]:
    """Each class once, the nearest to another first."""
    classes = {c.class_: c for model in models for c in model.per_class}
    return sorted(
        classes.values(), key=lambda c: (c.nearest.distance if c.nearest else math.inf, c.class_)
    )


def _distance_row(c: ClassResult, models: Sequence[ModelResult]) -> list[Cell]:
    """The nearest class, its distance, and the median distance from a sample to the nearest one of
    another class; then the clean accuracy and its drop for each model.
    """
    near = c.nearest
    row: list[Cell] = [c.name]
    row += [near.name, near.distance, near.nearest_sample] if near else [None, None, None]
    for model in models:
        entry = next((entry for entry in model.per_class if entry.class_ == c.class_), None)
        row += [entry.clean, Points(entry.total_drop)] if entry else [None, None]
    return row


def _correlation_table(models: Sequence[ModelResult]) -> Table:
    """The correlation of distance and drop over the classes, model by model."""
    rows: list[list[Cell]] = []
    for model in models:
        figure = model.distance_correlation
        if figure is None or figure.value is None:
            meaning = f"not stated: fewer than {LEAST_CORRELATED} classes, or all alike"
        elif figure.low is not None and figure.low > 0:
            meaning = "the nearer a class is to another, the more it loses"
        elif figure.high is not None and figure.high < 0:
            meaning = "the nearer a class is to another, the less it loses"
        else:
            meaning = "no relation is shown"
        value = Measure(figure.value, figure.low, figure.high) if figure else None
        rows.append([model.name, figure.n if figure else 0, value, meaning])

    return Table(
        title="Do near classes lose more?",
        columns=("model", "classes", "rank correlation", "meaning"),
        rows=rows,
        text="Spearman's rank correlation of the mean distance to the nearest other class with the "
        "total drop, which is at most 0, over the classes; 95 % interval by Fisher's transform.",
        name="distance_correlation",
        terminal=True,
    )
