"""The result of a comparison and its report.

manifest.json  the request, and the digest of the manifest of each run
audit/         the audit of the models that had no run
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from brinell.analysis.compare import Side, align, pair
from brinell.analysis.curve import eps_index
from brinell.analysis.folder_result import ClaimingResult
from brinell.analysis.indicators import caveat, checks_of
from brinell.analysis.judgements import joint_interval
from brinell.analysis.results import CompareResult
from brinell.analysis.robust_accuracy import class_names
from brinell.analysis.standing import leading, order_models, standing
from brinell.analysis.statements import Statement
from brinell.analysis.total_drops import TotalDrops, total_drops
from brinell.core.errors import RequestError, option
from brinell.manifest import Command, Manifest, TableOf
from brinell.reports.class_tables import drop_tables, over_models
from brinell.reports.numbers import counted, distance, listed
from brinell.reports.statements import model_or_data, sentence
from brinell.reports.values import Curve, Note, Percent, Points, PValue, Report, Series, Step, Table
from brinell.store.folder import PAGE, Layout
from brinell.studies.compare.figures import (
    ComparedClass,
    ComparedModel,
    classes_of,
    models_of,
    shortfalls,
)
from brinell.studies.result import ReportedResult


class CompareManifest(Manifest):
    """The manifest of a comparison."""

    request: dict[str, Any]
    """All settings of the request."""
    command: Command
    """The command line that repeats it."""
    runs: TableOf[str]
    """The digest of the manifest of each run; FOLDER is that of the comparison."""


LAYOUT = Layout(verb="compare", noun="comparison", version=1, manifest=CompareManifest)


class ComparedPair(CompareResult):
    """Two of the models."""

    p_holm: list[float]
    """The p-values of `robust`, each corrected for the number of pairs (Holm 1979)."""


class Comparison(ReportedResult, ClaimingResult):
    """What `brinell compare --json` prints."""

    page = PAGE

    folder: str
    """The folder."""
    data: str
    """Name of the data."""
    distance: str
    """Distance in which budgets are measured."""
    eps: list[float]
    """Budgets that all runs have, ascending."""
    eps_text: list[str]
    """The budgets as they were asked."""
    at: int
    """Position of the budget at which models and classes are compared."""
    n: int
    """Number of samples that were judged on every model: the denominator of all figures."""
    models: list[ComparedModel]
    """The models in the order in which they were named; the first is the baseline."""
    statements: list[Statement]
    """The most robust models, ties, and who leads at other budgets."""
    losses: list[Statement]
    """The classes that lose most and least up to the compared budget."""
    pairs: list[ComparedPair]
    """Every pair; A is the model that was named later, so that a difference is a change from the
    earlier one."""
    classes: list[ComparedClass]
    """The classes, by index."""
    drops: TotalDrops | None
    """Drops from the untouched inputs to the compared budget, over classes and models."""
    notes: list[str]
    """What is left out, and what limits the comparison."""

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        text = self.eps_text[self.at]
        axis = distance(self.distance)
        variation = [model_or_data(self.drops, text)] if self.drops else []
        drops = drop_tables(self.drops, self.models, text) if self.drops else ()
        first, *crossings = map(sentence, self.statements)

        return Report(
            verb="compare",
            title=f"{counted(len(self.models), 'model')} on {self.data}",
            subject=f"{counted(self.n, 'sample')} judged on every model; {axis}, compared "
            f"at {text}",
            sentences=[first, *variation, *crossings, *map(sentence, self.losses)],
            blocks=[
                self._curve(axis),
                self._model_table(text),
                self._class_table(text),
                *drops,
                self._pair_table(),
                self._budget_table(),
            ],
            notes=[Note("comparison", "note", note) for note in self.notes],
            provenance=[
                (
                    m.name,
                    [m.run, m.architecture, m.parameters and counted(m.parameters, "parameter")],
                )
                for m in self.models
            ],
            steps=[
                Step(
                    "Have the figures made again before you pass them on.", "brinell verify FOLDER"
                )
            ],
        )

    def _curve(self, axis: str) -> Curve:
        """Robust accuracy of each model; the clean accuracy stands at budget 0."""
        ticks = {0.0: "0"} | dict(zip(self.eps, self.eps_text, strict=True))
        return Curve(
            title="Robust accuracy over the budgets",
            series=[
                Series(
                    name=m.name,
                    points=[
                        (0.0, m.clean),
                        *((rate.eps, rate) for rate in m.robust if rate.eps > 0),
                    ],
                )
                for m in self.models
            ],
            ticks=sorted(ticks.items()),
            axis=f"budget eps ({axis})",
        )

    def _model_table(self, text: str) -> Table:
        """Each model at the compared budget, with its change from the one that was named first."""
        baseline = self.models[0]
        pairs = [pair for pair in self.pairs if pair.b == baseline.name]
        changes = [None, *(_points(pair, self.at, len(self.pairs)) for pair in pairs)]
        p_values = [None, *(PValue(pair.p_holm[self.at]) for pair in pairs)]

        return Table(
            title="The models",
            columns=("model", "clean", f"robust at {text}", "rank", "change, points", "p"),
            rows=[
                (model.name, model.clean, model.robust[self.at], model.rank, change, p)
                for model, change, p in zip(self.models, changes, p_values, strict=True)
            ],
            text=f"Changes are from {baseline.name}, which was named first. "
            "Intervals of ranks hold together with "
            "95 %; they and p are by McNemar's test, corrected for all pairs, and so are the "
            "intervals of changes.",
            name="models",
            terminal=True,
        )

    def _class_table(self, text: str) -> Table:
        """Each class on each model, the one that loses most first; of two models their
        difference.
        """
        order = sorted(
            range(len(self.classes)),
            key=lambda index: (self.classes[index].mean_drop or 0.0, index),
        )
        two = len(self.models) == 2
        changes: list[tuple[Points, ...]] = [()] * len(order)
        if two:
            rates = [c.robust[self.at] for c in self.pairs[0].per_class]
            changes = [(Points(rate.difference, rate.low, rate.high),) for rate in rates]
        rows = [
            (
                self.classes[index].name,
                self.classes[index].n,
                *(model.per_class[index].robust[self.at] for model in self.models),
                *changes[index],
                Points(self.classes[index].mean_drop),
                self.classes[index].rank,
            )
            for index in order
        ]
        means = [Points(model.mean_drop) for model in self.models]
        rows.append(("mean drop, points", self.n, *means, *[None] * two, None, None))
        names = self.drops.over if self.drops else [model.name for model in self.models]
        over = over_models(names, len(self.models))

        return Table(
            title=f"Class by class at {text}",
            columns=(
                "class",
                "samples",
                *(m.name for m in self.models),
                *["change, points"] * two,
                "mean drop, points",
                "rank",
            ),
            rows=rows,
            text=f"Robust accuracy of each class. Mean drops from clean inputs are taken {over}. "
            "Rank 1 loses most; the intervals of all ranks hold together.",
            name="classes",
            heat=True,
        )

    def _pair_table(self) -> Table:
        """Each pair of models at each budget; of two models it is short enough to stand open."""
        is_long = len(self.models) > 2
        return Table(
            title="Pair by pair",
            columns=(
                "models",
                "eps",
                "first",
                "second",
                "change, points",
                "only the first",
                "only the second",
                "p",
            ),
            rows=[
                (
                    f"{pair.b} and {pair.a}",
                    self.eps_text[index],
                    Percent(rate.value_b),
                    Percent(rate.value_a),
                    _points(pair, index, len(self.pairs)),
                    rate.only_b,
                    rate.only_a,
                    PValue(pair.p_holm[index]),
                )
                for pair in self.pairs
                for index, rate in enumerate(pair.robust)
            ],
            text="Only the first: samples on which the first is robust and the second is not.",
            name="pairs",
            folded=is_long,
            filter=is_long,
        )

    def _budget_table(self) -> Table:
        """Each class of each model at each budget, for the CSV file."""
        return Table(
            title="Every class at every budget",
            columns=("model", "class", "name", "eps", "robust", "drop"),
            rows=[
                (model.name, c.class_, c.name, rate.eps, rate, drop)
                for model in self.models
                for c in model.per_class
                for rate, drop in zip(c.robust, c.drop, strict=True)
            ],
            name="per_class",
            page=False,
        )


def _points(pair: ComparedPair, position: int, pairs: int) -> Points:
    """The change of a pair, with an interval that holds for all pairs together."""
    rate = pair.robust[position]
    return Points(rate.difference, *joint_interval(rate, pair.p_holm[position], pairs))


def summarise(sides: Sequence[Side], folder: str, *, eps: float | None = None) -> Comparison:
    """All figures of a comparison.

    Args:
        sides: the models with their runs, at least two.
        folder: the folder, as the result reports it.
        eps: the budget at which models and classes are compared; by default the telling one.
    """
    common = align(sides)
    above = np.flatnonzero(common.eps > 0)
    texts = [common.texts[index] for index in above]
    # The position among the budgets above 0, which are all that models are ordered at; -1 for none.
    budget = None
    if eps is not None and (budget := int(eps_index(common.eps[above], np.array([eps]))[0])) < 0:
        raise RequestError(
            f"{option('at')} is {eps:g}, which is no budget of all runs: choose "
            f"one of {', '.join(texts)}"
        )

    names = [side.model for side in sides]
    unique = [
        f"{side.run}: {side.model}" if names.count(side.model) > 1 else side.model for side in sides
    ]

    # States are those of the clean inputs, then one for each budget: hence the places plus 1.
    ranking = standing(
        unique, common.states[:, :, 0], common.states[:, :, 1 + above], texts, budget
    )
    position = int(above[ranking.at])
    models = models_of(common, ranking, position)
    classes, losses = classes_of(models, common, position)
    p_values = [order_models(common.states[:, :, 1 + index]).p for index in range(len(common.eps))]

    return Comparison(
        folder=folder,
        data=str(sides[0].manifest["data"]["name"]),
        distance=str(sides[0].manifest["distance"]),
        eps=common.eps.tolist(),
        eps_text=common.texts,
        at=position,
        n=len(common.labels),
        models=models,
        statements=leading(ranking),
        pairs=[
            ComparedPair(
                **dict(pair(common, second, first))
                | {"a": ranking.names[second], "b": ranking.names[first], "notes": []},
                p_holm=[float(p[second, first]) for p in p_values],
            )
            for first in range(len(sides))
            for second in range(first + 1, len(sides))
        ],
        losses=losses,
        classes=classes,
        drops=total_drops(
            unique,
            class_names(sides[0].manifest),
            common.labels,
            common.states[:, :, 0],
            common.states[:, :, 1 + position],
            common.texts[position],
        ),
        notes=[
            *common.notes,
            *_notes(sides, models, position),
            *shortfalls(len(models), classes, len(common.labels)),
        ],
    )


def _notes(sides: Sequence[Side], models: Sequence[ComparedModel], position: int) -> Iterator[str]:
    """Checks that failed or were not made, once for all models that have the same; and models
    without a robust sample.
    """
    texts: dict[str, list[str]] = {}
    for side, model in zip(sides, models, strict=True):
        if text := caveat(checks_of(side.records, side.manifest, side.model)):
            texts.setdefault(text, []).append(model.name)
    yield from (f"{text}, for {listed(names)}" for text, names in texts.items())

    # A model without a robust sample loses all of its clean accuracy, whichever class it is of.
    broken = [model.name for model in models if not model.robust[position].k]
    if 0 < len(broken) < len(models):
        yield (
            f"no sample is robust on {listed(broken)}: the drops of its classes are "
            "its clean accuracy and count in no mean over models"
        )
