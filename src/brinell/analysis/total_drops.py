"""How much accuracy each class loses on each model, and whether classes or models make the
difference.

A drop is the change of the accuracy of a class on a model from the clean inputs to one budget. The
table of drops, class by model, is decomposed as in a two-way analysis of variance with one value a
cell (Fisher 1925): the squared deviations from the mean of all drops are those between classes,
those between models, and what is left, in which class and model act together. Accuracies of a few
samples vary by chance, which adds to all three; what chance adds is known from the samples of each
cell and is taken off. Models share their samples, so that their chance is correlated; the variances
account for it. Intervals are percentiles of samples drawn again within their classes (Efron 1979);
drawing again adds the chance once more, so that it is taken off twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from brinell.analysis.curve import RIGHT
from brinell.analysis.folder_result import Result
from brinell.analysis.means import mean_difference
from brinell.analysis.statements import KINDS, Statement, Subject, state
from brinell.core.record import Array

ENOUGH = KINDS["matters"].least_n
"""Samples that every class needs before classes or models are said to matter more."""
REPLICATES = 1000
"""Number of times that the samples are drawn again."""
SEED = 20
"""Seed of these draws, which is the same for every table, so that a page can be made again."""


class MeanDrop(Result):
    """A mean of total drops, as a fraction, at most 0."""

    index: int
    """Index of the class, or position of the model."""
    name: str
    """Name of the class or of the model."""
    value: float
    """The mean."""
    low: float | None
    """Lower end of its 95 % interval; null where the samples are too few or too alike."""
    high: float | None
    """Upper end."""


class Portion(Result):
    """A share of the variation of the drops."""

    value: float
    """From 0 to 1; the three shares sum to 1."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    """Upper end."""


class Decomposition(Result):
    """The variation of total drops over classes and models."""

    classes: Portion
    """The share between classes, whatever the model."""
    models: Portion
    """The share between models, whatever the class."""
    interaction: Portion
    """The share that is left: classes that are weak on some models only."""
    statement: Statement
    """Which of classes and models holds more of the variation; supported if it is shown to, and
    never where a class has fewer than four samples."""


class TotalDrops(Result):
    """Means of the total drops of several models on the same samples."""

    n: int
    """Samples that were judged on all models."""
    over: list[str]
    """Models over which the means of classes are: those that `raters` finds."""
    classes: list[MeanDrop]
    """Each class over these models, by index."""
    models: list[MeanDrop]
    """Each model over the classes, which count alike whatever their samples."""
    decomposition: Decomposition | None
    """Null for fewer than two models or classes of two samples or more, or if the drops do not
    vary by more than chance explains."""
    left_out: list[str]
    """Classes of a single sample, which the decomposition leaves out."""


class _Cells(NamedTuple):
    """Drops of some draws of the samples, and how much they vary by chance."""

    drops: Array
    """(draws, classes, models)."""
    variance: Array
    """(draws, classes): the variances of the drops of a class, summed over the models."""
    variance_of_sum: Array
    """(draws, classes): the variance of the sum of these drops."""


def raters(robust: Array) -> list[int]:
    """Positions of the models whose losses tell classes apart, from the (models, samples) states
    at a budget: those that are robust on a sample, or all if none is.

    A model without a robust sample loses all of its clean accuracy, whichever class it is of.
    """
    is_robust = (robust == RIGHT).any(axis=1)
    positions: list[int] = np.flatnonzero(is_robust | ~is_robust.any()).tolist()
    return positions


def total_drops(
    models: Sequence[str],
    names: Sequence[str],
    labels: Array,
    clean: Array,
    robust: Array,
    eps_text: str = "",
) -> TotalDrops | None:
    """Means and decomposition of the total drops.

    Args:
        models: names of the models.
        names: names of the classes, by index.
        labels: (samples,) true classes.
        clean: (models, samples) states of the untouched inputs, as in `analysis.curve`.
        robust: (models, samples) states at the budget to which accuracy drops.
        eps_text: this budget as it was asked.

    Returns:
        None if no sample was judged on all models.
    """
    mask = ((clean <= RIGHT) & (robust <= RIGHT)).all(axis=0)
    if not mask.any():
        return None
    changes = (robust[:, mask] == RIGHT).astype(float) - (clean[:, mask] == RIGHT)
    classes, of = np.unique(labels[mask], return_inverse=True)
    counts = np.bincount(of)
    rating = raters(robust[:, mask])

    # Every class counts alike: a sample weighs as much as its class has room for.
    weights = len(of) / (len(classes) * counts[of])
    enough = np.flatnonzero(counts > 1)
    class_names = [names[index] if index < len(names) else str(index) for index in classes.tolist()]
    return TotalDrops(
        n=len(of),
        over=[models[position] for position in rating],
        classes=[
            _mean_drop(
                int(classes[position]), name, changes[rating][:, of == position].mean(axis=0)
            )
            for position, name in enumerate(class_names)
        ],
        models=[
            _mean_drop(position, model, changes[position] * weights)
            for position, model in enumerate(models)
        ],
        decomposition=decompose([changes[:, of == position] for position in enough], eps_text),
        left_out=[
            name for name, count in zip(class_names, counts.tolist(), strict=True) if count == 1
        ],
    )


def _mean_drop(index: int, name: str, changes: Array) -> MeanDrop:
    """The mean of the changes (n,), which lies between -1 and 0, and so do the ends of its interval."""
    mean = mean_difference(changes)
    assert mean is not None, "every class has a sample"
    ends = [None, None]
    if mean.interval is not None:
        ends = np.clip(mean.interval, -1.0, 0.0).tolist()
    return MeanDrop(index=index, name=name, value=mean.value, low=ends[0], high=ends[1])


def decompose(changes: Sequence[Array], eps_text: str = "") -> Decomposition | None:
    """Shares of the variation, and their intervals.

    Args:
        changes: of each class (models, samples) the change of each sample, 0 or -1; two samples at
            least.
        eps_text: the budget up to which they lie.

    Returns:
        None for fewer than two classes or models, or without variation beyond chance.
    """
    if len(changes) < 2 or len(changes[0]) < 2:
        return None
    rng = np.random.default_rng(SEED)
    parts = [_cells_of(of_class, rng) for of_class in changes]
    cells = _Cells(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))

    # The first draw is the samples themselves.
    # Resampling adds the chance of the draw to that of the samples, so it is taken off twice.
    times = np.where(np.arange(REPLICATES + 1) == 0, 1.0, 2.0)[:, None]
    variation = (_variation(cells.drops) - times * _chance(cells)).clip(min=0.0)
    total = variation.sum(axis=1)
    if not total[0] > 1e-12:
        return None
    shares = variation / np.where(total > 1e-12, total, np.nan)[:, None]
    portions = [_portion(column) for column in shares.T]
    subjects = [
        Subject(name=name, **portion.model_dump())
        for name, portion in zip(("classes", "models", "both"), portions, strict=True)
    ]

    # A lead is shown if its interval and the samples themselves have the same sign. Percentiles of
    # few samples are too narrow, so that the interval is one of 98 %.
    leads = shares[:, 0] - shares[:, 1]
    low, high = np.nanpercentile(leads[1:], [1.0, 99.0])
    sizes = [of_class.shape[1] for of_class in changes]
    first = 0 if leads[0] >= 0 else 1
    statement = state(
        "matters",
        subjects=[subjects.pop(first)],
        against=subjects,
        quantity="variation of the total drops",
        eps_text=eps_text,
        n=sum(sizes),
        compared=1,
        difference=abs(float(leads[0])),
        supported=min(sizes) >= ENOUGH and (min(low, leads[0]) > 0 or max(high, leads[0]) < 0),
        family=1,
    )
    return Decomposition(
        classes=portions[0], models=portions[1], interaction=portions[2], statement=statement
    )


def _cells_of(changes: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Drops of a class (draws, models), and their variances (draws,), from changes (models, n)."""
    # Samples that change alike on all models are drawn together: a draw is the share of each such
    # pattern, and the first draw that of the samples themselves.
    patterns, repeats = np.unique(changes.T, axis=0, return_counts=True)
    n = int(repeats.sum())
    draws = np.vstack([repeats, rng.multinomial(n, repeats / n, REPLICATES)]) / n
    drops = draws @ patterns
    variance = draws @ np.square(patterns).sum(axis=1) - np.square(drops).sum(axis=1)
    sums = patterns.sum(axis=1)
    variance_of_sum = draws @ np.square(sums) - np.square(drops.sum(axis=1))
    return drops, variance / (n - 1), variance_of_sum / (n - 1)


def _variation(drops: Array) -> Array:
    """(draws, 3): squared deviations between classes, between models, and of what is left."""
    classes, models = drops.shape[1:]
    mean = drops.mean(axis=(1, 2))[:, None]
    between_classes = models * np.square(drops.mean(axis=2) - mean).sum(axis=1)
    between_models = classes * np.square(drops.mean(axis=1) - mean).sum(axis=1)
    total = np.square(drops - mean[:, :, None]).sum(axis=(1, 2))
    return np.stack([between_classes, between_models, total - between_classes - between_models], 1)


def _chance(cells: _Cells) -> Array:
    """(draws, 3): what chance is expected to add to each of these."""
    classes, models = cells.drops.shape[1:]
    variance, of_sum = cells.variance.sum(axis=1), cells.variance_of_sum.sum(axis=1)
    # The chance that all models share moves the means of classes; of the rest, a part of 1 in
    # `classes` moves the means of models, and what remains neither.
    residual = variance - of_sum / models
    between_classes = (classes - 1) / (classes * models) * of_sum
    return np.stack([between_classes, residual / classes, (1 - 1 / classes) * residual], 1)


def _portion(shares: Array) -> Portion:
    """The share of the samples themselves, and the percentiles of the draws."""
    value = float(shares[0])
    low, high = np.nanpercentile(shares[1:], [2.5, 97.5]).tolist()
    return Portion(value=value, low=min(low, value), high=max(high, value))
