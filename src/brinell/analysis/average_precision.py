"""Average precision and recall of a set of pictures, from matched detections, with intervals.

COCO's definitions: 101 recall points, precision that never rises with recall, a mean over the
classes that occur.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brinell.core.boxes import LEVELS, Detections, Objects, match
from brinell.core.intervals import Interval
from brinell.core.record import Array

LEAST_PARTS, LEAST_PICTURES = 6, 3
"""Pictures, and pictures with a class, without which a figure has no interval."""
MOST_PARTS = 200
"""Parts of the pictures that are left out in turn."""
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
        # A picture that a replicate draws twice has its objects twice.
        total = weights[:, matches.objects[matches.objects[:, 1] == label, 0]].sum(1)
        rows = np.flatnonzero(matches.label == label)
        # Stable, so that equal scores keep the order of the file on every machine.
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
    # At each recall the best precision at it or beyond, so the running maximum goes backwards.
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


def leave_out(pictures: int) -> Array:
    """(parts, pictures): how often each picture counts where one part of them after the other is
    left out; a part is a picture, of many pictures every 200th one.
    """
    parts = min(pictures, MOST_PARTS)
    counts: Array = (np.arange(pictures) % parts != np.arange(parts)[:, None]).astype(np.float64)
    return counts


def interval(
    value: float, replicates: Array, pictures: int, bounds: tuple[float, float] = (0.0, 1.0)
) -> Interval | None:
    """95 % interval of a figure of a set of pictures, by the jackknife (Tukey 1958).

    A share is studentised on the scale of its log odds. The t distribution has the degrees of
    freedom of the rarest class: the spread of a mean over classes is mostly that of the class in
    the fewest pictures.

    Args:
        value: the figure.
        replicates: (parts,) the figure without each part, as `leave_out` counts.
        pictures: number of pictures that hold what is counted; of the class in the fewest.
        bounds: least and largest possible figure.

    Returns:
        None for fewer than `LEAST_PARTS` pictures, or `LEAST_PICTURES` of a class, or a figure that
        does not vary.
    """
    from scipy.special import expit, logit, stdtrit

    parts = len(replicates)
    if parts < LEAST_PARTS or pictures < LEAST_PICTURES or not np.isfinite(replicates).all():
        return None
    # Tukey's variance: the sum of squared deviations times (parts - 1) / parts.
    spread = float(np.std(replicates)) * math.sqrt(parts - 1)
    # Replicates that are all equal give no spread, and an interval without width would be false.
    if spread < 1e-12:
        return None

    reach = float(stdtrit(pictures - 1, 0.975)) * spread
    # Inside of 0 and 1 the interval is made on the scale of log-odds, where it cannot leave them.
    if bounds != (0.0, 1.0) or not 0 < value < 1:
        return Interval(max(bounds[0], value - reach), min(bounds[1], value + reach))
    # The slope of the log-odds at the value carries the reach over.
    odds = reach / (value * (1 - value))
    return Interval(float(expit(logit(value) - odds)), float(expit(logit(value) + odds)))
