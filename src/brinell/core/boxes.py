"""Boxes of objects and of detections: overlaps, suppression, matching, and the outcome of each
object and each box.

Boxes are corners x0, y0, x1, y1 in pixels of the input. Everything here is numpy and concerns one
picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brinell.core.record import Array

LEVELS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Overlaps 0.5 to 0.95 at which AP is averaged."""
MATCH = 0.5
"""Overlap from which a box is that of an object."""
NEARBY = 0.1
"""Overlap from which a box below `MATCH` is a misplaced box of an object, and not a false one
(TIDE, section 2.2)."""
LEAST = 0.001
"""Scores at or below it do not count as detections, as in published figures of AP."""
MOST = 100
"""Largest number of detections of a picture, as in COCO's evaluation."""

HIT, MISSED, MISLABELLED = "found", "missed", "mislabelled"
MISPLACED, FALSE, IGNORED = "misplaced", "false", "ignored"
"""Outcomes: an object is found, mislabelled, misplaced or missed, a box is found, mislabelled,
misplaced, false or ignored."""
ERRORS = (MISSED, FALSE, MISLABELLED, MISPLACED)
"""The kinds of errors."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Objects:
    """The annotated objects of one picture.

    A crowd need not be found, and a box in it is not an error.
    """

    boxes: Array
    """(k, 4) float64 corners."""
    labels: Array
    """(k,) int64 classes."""
    crowd: Array
    """(k,) bool: regions of many objects."""

    def __len__(self) -> int:
        """Number of annotations, crowds included."""
        return len(self.labels)

    @property
    def count(self) -> int:
        """Number of objects to find."""
        return int((~self.crowd).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Detections:
    """The final boxes of a detector in one picture, the highest score first."""

    boxes: Array
    """(m, 4) float64 corners."""
    scores: Array
    """(m,) float64 in [0, 1]."""
    labels: Array
    """(m,) int64 classes."""

    def __len__(self) -> int:
        """Number of boxes."""
        return len(self.labels)

    def select_above(self, threshold: float) -> "Detections":
        """The boxes with at least this score."""
        return self.take(np.flatnonzero(self.scores >= threshold))

    def take(self, index: Array) -> "Detections":
        """Some of the boxes, in this order."""
        return Detections(
            boxes=self.boxes[index], scores=self.scores[index], labels=self.labels[index]
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxOutcomes:
    """The outcome of each object and of each box of one picture.

    Pairs are one to one, so the objects are those found, mislabelled, misplaced and missed, and as
    many boxes are found, mislabelled and misplaced as objects are.
    """

    objects: Array
    """(k,) of HIT, MISLABELLED, MISPLACED, MISSED; IGNORED for crowds."""
    boxes: Array
    """(m,) of HIT, MISLABELLED, MISPLACED, FALSE; IGNORED for boxes in a crowd."""

    def count(self, error: str) -> int:
        """Number of errors of a kind: objects, or boxes for FALSE."""
        return int(((self.boxes if error == FALSE else self.objects) == error).sum())


def areas(boxes: Array) -> Array:
    """(m,): the area of each box."""
    area: Array = np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(-1)
    return area


def overlaps(boxes: Array, references: Array, crowd: Array | None = None) -> Array:
    """(m, k): intersection over union of each box with each reference.

    For a crowd it is the intersection over the area of the box, as in COCO's evaluation.
    """
    low = np.maximum(boxes[:, None, :2], references[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], references[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(-1)
    area = areas(boxes)[:, None]
    union = area + areas(references)[None] - common

    if crowd is not None:
        union = np.where(crowd[None], area, union)
    # Boxes without an area overlap nothing.
    ratio: Array = common / np.maximum(union, 1e-12)
    return ratio


def suppress(boxes: Array, scores: Array, labels: Array, limit: float, most: int = MOST) -> Array:
    """Indices of the boxes that remain, best first (non-maximum suppression).

    Of boxes of one class that overlap by more than `limit`, the best one remains.
    """
    # Stable, so that of equal scores the first box wins on every machine.
    order = np.argsort(-scores, kind="stable")
    remaining: list[int] = []

    while len(order) and len(remaining) < most:
        best = order[0]
        remainder = order[1:]
        remaining.append(int(best))
        # Boxes of different classes may overlap as much as they like.
        alike = labels[remainder] == labels[best]
        clash = np.zeros(len(remainder), dtype=bool)
        clash[alike] = overlaps(boxes[best][None], boxes[remainder[alike]])[0] > limit
        order = remainder[~clash]
    return np.array(remaining, dtype=np.int64)


def decode(
    candidates: Array, *, least: float = LEAST, limit: float = 0.45, most: int = MOST
) -> Detections:
    """The final boxes of one picture.

    Args:
        candidates: (K, 4 + C): corners in pixels, then a score in [0, 1] for each class; each
            candidate stands for its best class.
        least: scores at or below it are dropped.
        limit: overlap above which the lower of two boxes of one class is dropped.
        most: the most boxes that remain.
    """
    shares = candidates[:, 4:]
    labels = shares.argmax(1)
    # Candidates come in the precision of the network; overlaps are computed in float64.
    scores = shares[np.arange(len(shares)), labels].astype(np.float64)

    index = np.flatnonzero(scores > least)
    boxes, scores, labels = (
        candidates[index, :4].astype(np.float64),
        scores[index],
        labels[index].astype(np.int64),
    )

    remaining = suppress(boxes, scores, labels, limit, most)
    return Detections(boxes=boxes[remaining], scores=scores[remaining], labels=labels[remaining])


def match(
    detections: Detections, objects: Objects, levels: Sequence[float] = LEVELS
) -> tuple[Array, Array]:
    """COCO's matching within each class, at each of the overlaps `levels`.

    The best detections choose first, each the free object that it overlaps most.

    Returns:
        (levels, m) int64 the object of each detection or -1, and (levels, m) bool whether the
            detection is ignored.
    """
    partners = np.full((len(levels), len(detections)), -1, dtype=np.int64)
    if not len(detections) or not len(objects):
        return partners, np.zeros(partners.shape, dtype=bool)

    ratio = overlaps(detections.boxes, objects.boxes, objects.crowd)
    # Below every level, so that no detection matches an object of another class.
    ratio[detections.labels[:, None] != objects.labels[None]] = -1.0
    free = np.ones((len(levels), len(objects)), dtype=bool)
    # Detections lie in the order of their scores, so that the best choose first.
    for number in np.flatnonzero(ratio.max(1) >= min(levels)).tolist():
        for level, least in enumerate(levels):
            # A free object first, else a crowd, which any number of boxes may lie on.
            single = np.where(free[level] & ~objects.crowd, ratio[number], -1.0)
            row = single if single.max() >= least else np.where(objects.crowd, ratio[number], -1.0)
            if row.max() >= least:
                partner = int(row.argmax())
                partners[level, number], free[level, partner] = partner, False
    return partners, (partners >= 0) & objects.crowd[partners]


def judge(detections: Detections, objects: Objects) -> BoxOutcomes:
    """The outcome of each object and box at overlap `MATCH`.

    An object that no box of its class finds is mislabelled if a box of another class overlaps it by
    `MATCH`, misplaced if a box of its class overlaps it by `NEARBY`, and missed otherwise. Each box
    counts once; boxes without a partner are false.
    """
    partners, ignored = match(detections, objects, (MATCH,))

    of_box = np.full(len(detections), FALSE, dtype=object)
    of_object = np.where(objects.crowd, IGNORED, MISSED).astype(object)
    hits = (partners[0] >= 0) & ~ignored[0]
    # Boxes on crowds are neither right nor wrong.
    of_box[ignored[0]], of_box[hits] = IGNORED, HIT
    of_object[partners[0][hits]] = HIT

    # What remains is paired by the kinds of near misses, mislabelled boxes first.
    ratio = overlaps(detections.boxes, objects.boxes)
    alike = detections.labels[:, None] == objects.labels[None]
    for error, pairs in (
        (MISLABELLED, ~alike & (ratio >= MATCH)),
        (MISPLACED, alike & (ratio >= NEARBY) & (ratio < MATCH)),
    ):
        for number in np.flatnonzero(pairs.any(1)).tolist():
            # -1 where an object is no near miss of this box, or has a partner already.
            row = np.where(pairs[number] & (of_object == MISSED), ratio[number], -1.0)
            if of_box[number] == FALSE and row.max() >= 0:
                of_box[number], of_object[int(row.argmax())] = error, error
    return BoxOutcomes(objects=of_object, boxes=of_box)
