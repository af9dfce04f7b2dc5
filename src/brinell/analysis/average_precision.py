"""Average precision and recall of a set of pictures, from matched detections, with intervals.

COCO's definitions: 101 recall points, precision that never rises with recall, a mean over the
classes that occur.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brinell.core.boxes import LEVELS, Detections, Objects, match
from brinell.core.intervals import Interval
from brinell.core.record import Array

POINTS = np.linspace(0.0, 1.0, 101)
"""Recall at which precision is read."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Matches:
    """The matched detections of a set of pictures: all that AP depends on."""

    picture: Array
    """(m,) int64 position of the picture of each detection, not falling."""
    label: Array
    """(m,) int64."""
    score: Array
    """(m,) float64."""
    hit: Array
    """(m, levels) bool: true positive at each level of overlap."""
    ignored: Array
    """(m, levels) bool: within a crowd."""
    objects: Array
    """(k, 2) int64: position of the picture and class of each object to find."""
    pictures: int
    """Number of pictures, with and without objects."""


def match_set(
    detections: Sequence[Detections], objects: Sequence[Objects], levels: Sequence[float] = LEVELS
) -> Matches:
    """Match the detections of each picture with its objects."""
    counts = [len(part) for part in detections]
    pairs = [match(boxes, truth, levels) for boxes, truth in zip(detections, objects, strict=True)]
    hits = [(partner >= 0) & ~ignored for partner, ignored in pairs]

    # Objects to find: those that are no crowd.
    labels = [truth.labels[~truth.crowd] for truth in objects]
    numbers = np.repeat(np.arange(len(labels)), [len(part) for part in labels])
    return Matches(
        picture=np.repeat(np.arange(len(counts)), counts),
        label=np.concatenate([part.labels for part in detections]),
        score=np.concatenate([part.scores for part in detections]),
        hit=np.concatenate(hits, 1).T,
        ignored=np.concatenate([ignored for _, ignored in pairs], 1).T,
        objects=np.stack([numbers, np.concatenate(labels)], 1).astype(np.int64),
        pictures=len(counts),
    )


def class_precision(matches: Matches, weights: Array | None = None) -> tuple[Array, Array]:
    """Average precision of each class that occurs.

    Args:
        matches: the set.
        weights: (draws, pictures) how often each picture counts; by default once.

    Returns:
        (classes,) int64, and (draws, levels, classes) AP, NaN where a draw holds no object of the
            class.
    """
    if weights is None:
        weights = np.ones((1, matches.pictures))
    weights = np.asarray(weights, dtype=np.float64)
    classes = np.unique(matches.objects[:, 1])
    levels = matches.hit.shape[1]
    precision = np.full((len(weights), levels, len(classes)), np.nan)

    for column, label in enumerate(classes.tolist()):
        total = weights[:, matches.objects[matches.objects[:, 1] == label, 0]].sum(1)
        rows = np.flatnonzero(matches.label == label)
        rows = rows[np.argsort(-matches.score[rows], kind="stable")]

        for level in range(levels):
            counted = rows[~matches.ignored[rows, level]]
            share = weights[:, matches.picture[counted]]
            precision[:, level, column] = _mean_precision(share, matches.hit[counted, level], total)
    return classes, precision


def _mean_precision(weights: Array, hit: Array, total: Array) -> Array:
    """(draws,): mean precision at the recall points.

    Args:
        weights: (draws, m) how often each detection counts, the highest score first.
        hit: (m,) bool.
        total: (draws,) number of objects.
    """
    hits = np.cumsum(weights * hit, 1)
    counts = np.cumsum(weights, 1)

    # Precision never rises with recall; beyond the last recall it is 0.
    precision = hits / np.maximum(counts, 1e-12)
    envelope = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
    envelope = np.concatenate([envelope, np.zeros((len(weights), 1))], 1)

    means = np.full(len(weights), np.nan)
    for draw in np.flatnonzero(total > 0).tolist():
        means[draw] = envelope[draw, np.searchsorted(hits[draw] / total[draw], POINTS)].mean()
    return means


def average_precision(matches: Matches, weights: Array | None = None) -> tuple[Array, Array]:
    """(draws,) AP at the first level of overlap and averaged over all levels.

    It is NaN in a draw without objects.
    """
    _, precision = class_precision(matches, weights)
    occurs = ~np.isnan(precision[:, 0])
    with np.errstate(invalid="ignore"):
        by_level = np.nansum(precision, 2) / occurs.sum(1)[:, None]
    return by_level[:, 0], by_level.mean(1)


def draw_pictures(pictures: int, draws: int = 500, seed: int = 0) -> Array:
    """(draws, pictures): how often each picture counts in samples drawn with replacement."""
    share = np.full(pictures, 1 / pictures)
    counts: Array = np.random.default_rng(seed).multinomial(pictures, share, size=draws)
    return counts


def interval(value: float, draws: Array) -> Interval | None:
    """The middle 95 % of the draws of a figure, and the figure.

    None where they do not spread, as of pictures that are all alike.
    """
    finite = draws[np.isfinite(draws)]
    if not np.isfinite(value) or len(np.unique(finite)) < 2:
        return None
    low, high = np.quantile(finite, (0.025, 0.975)).tolist()
    return Interval(min(low, value), max(high, value))
