"""Figures of a comparison from the states of the common samples: ranks of models and classes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from brinell.analysis.attainable import pairs, shortfall, smallest_mcnemar, smallest_rates
from brinell.analysis.compare import Common
from brinell.analysis.curve import RIGHT, grid
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import Rank, compare_groups
from brinell.analysis.judgements import extreme_means
from brinell.analysis.results import ClassResult, OfClass, Rate
from brinell.analysis.robust_accuracy import class_names, mean, minus, per_class, rates
from brinell.analysis.standing import Standing
from brinell.analysis.statements import KINDS, Statement, Subject
from brinell.analysis.total_drops import raters
from brinell.reports.class_tables import over_models

ENOUGH = KINDS["loses_most"].least_n
"""Samples of a class that a model must classify correctly on clean inputs for its losses to
count in an order of classes."""


class ComparedModel(Result):
    """One model on the common samples."""

    name: str
    """Name of the model, preceded by its run if two runs share it."""
    run: str
    """The run folder."""
    architecture: str | None
    """Architecture of the network; null if the run does not record it."""
    parameters: int | None
    """Number of weights; null if the run does not record it."""
    clean: Rate
    """Clean accuracy."""
    robust: list[Rate]
    """Robust accuracy at each budget."""
    rank: Rank
    """Rank at the compared budget, by McNemar's exact test of all pairs."""
    rivals: list[str]
    """Models that are not shown to be more or less robust at the compared budget."""
    per_class: list[ClassResult]
    """Results by class index. The total drop ends at the compared budget."""
    mean_drop: float | None
    """Mean of the total drop over the classes."""


class ComparedClass(OfClass):
    """One class over the models that are robust on a sample at the compared budget, or all if none
    is: those of `drops.over`.
    """

    n: int
    """Number of samples of the class."""
    clean: float | None
    """Mean clean accuracy."""
    mean_drop: float | None
    """Mean total drop."""
    rank: Rank | None
    """Rank by the mean drop, the largest first; null if too few samples of the class can be
    lost."""
    rivals: list[str]
    """Classes that are not shown to lose more or less."""


def models_of(common: Common, standing: Standing, position: int) -> list[ComparedModel]:
    """Each model on the common samples; `position` is that of the compared budget among the common
    ones, and one less than in the states, which begin with those of the clean inputs.
    """
    names = class_names(common.sides[0].manifest)

    models = []
    for index, side in enumerate(common.sides):
        facts = next(entry for entry in side.manifest["models"] if entry["name"] == side.model)
        # The rows of a run may hold more samples and budgets than the runs have in common.
        cells = replace(
            grid(side.records, side.manifest, side.model),
            labels=common.labels,
            clean=common.states[index, :, 0],
            eps=common.eps,
        )

        classes = [
            c.model_copy(update={"total_drop": minus(c.robust[position].value, c.clean.value)})
            for c in per_class(cells, common.states[index, :, 1:], names)
        ]
        models.append(
            ComparedModel(
                name=standing.names[index],
                run=side.run,
                architecture=facts.get("architecture"),
                parameters=facts.get("parameters"),
                clean=rates(common.states[index, :, :1], [0.0])[0],
                robust=rates(common.states[index, :, 1:], common.eps.tolist()),
                rank=standing.rank(index),
                rivals=standing.rivals(index),
                per_class=classes,
                mean_drop=mean([c.total_drop for c in classes]),
            )
        )
    return models


def classes_of(
    models: Sequence[ComparedModel], common: Common, position: int
) -> tuple[list[ComparedClass], list[Statement]]:
    """Each class over the models that rate it, and those that lose most and least.

    `position` is that of the compared budget among the common ones; the states begin with those of
    the clean inputs.
    """
    rating = raters(common.states[:, :, 1 + position])
    clean = common.states[rating, :, 0] == RIGHT
    robust = common.states[rating, :, 1 + position] == RIGHT
    # The models that lose each sample. Counts are whole numbers, so that classes with equal drops
    # tie.
    lost = (clean & ~robust).sum(0)
    k = len(rating)
    ranked = [
        c.class_
        for c in models[0].per_class
        if clean[:, common.labels == c.class_].sum() >= ENOUGH * k
    ]

    members = np.isin(common.labels, ranked)
    order = compare_groups(lost[members], common.labels[members], 0.0, k) if ranked else None
    labels = {c.class_: c.label for c in models[0].per_class}
    names = {c.class_: c.name for c in models[0].per_class}

    statements = []
    if order is not None:
        statements = extreme_means(
            order._replace(values=order.values / k),
            [labels[label] for label in ranked],
            f"mean loss {over_models([models[rater].name for rater in rating], len(models))}",
            int(members.sum()),
            eps_text=common.texts[position],
            kinds=("loses_most", "loses_least"),
        )
        # Classes with few samples are named beside the order, and are in none.
        few = [
            Subject(name=c.label, value=float((lost[common.labels == c.class_] / k).mean()), n=c.n)
            for c in models[0].per_class
            if c.class_ not in ranked
        ]
        statements = [entry.model_copy(update={"sparse": few}) for entry in statements]

    classes = []
    for index, c in enumerate(models[0].per_class):
        results = [models[rater].per_class[index] for rater in rating]
        rank = None
        rivals: list[str] = []
        if order is not None and c.class_ in ranked:
            rank = order.rank(ranked.index(c.class_))
            rivals = [names[ranked[rival]] for rival in order.rivals(ranked.index(c.class_))]
        classes.append(
            ComparedClass(
                class_=c.class_,
                name=c.name,
                n=c.n,
                clean=mean([result.clean.value for result in results]),
                mean_drop=-float(lost[common.labels == c.class_].sum() / (k * c.n)),
                rank=rank,
                rivals=rivals,
            )
        )
    return classes, statements


def shortfalls(models: int, classes: Sequence[ComparedClass], n: int) -> list[str]:
    """The claims that so many models and samples cannot show at all."""
    sizes = [c.n for c in classes if c.rank is not None]
    unit = "samples of the largest class"
    of_models = shortfall(
        "model can be shown to be more robust than another",
        pairs(models),
        "samples",
        n,
        smallest_mcnemar,
    )

    most = max(sizes, default=0)
    of_classes = shortfall(
        "class can be shown to lose more than another",
        pairs(len(sizes)),
        unit,
        most,
        smallest_rates,
    )
    return [claim for claim in (of_models, of_classes) if claim]
