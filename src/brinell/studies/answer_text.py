"""Answers of models with dense outputs as the text of a row, and back: counts of pixels by class, or boxes and objects."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from brinell.core.boxes import ERRORS, FALSE, Detections, Objects, judge
from brinell.core.record import Array

PIXELS, SCORES = 2, 6
"""Decimals of corners and of scores in a row; figures are made from the rows, so that they decide."""


def pack_pairs(counts: Array) -> str:
    """Counts (classes, classes) of pixels as [true class, predicted class, pixels] of each pair that occurs."""
    true, predicted = np.nonzero(counts)
    pairs = [[int(t), int(p), int(counts[t, p])] for t, p in zip(true, predicted, strict=True)]
    return json.dumps(pairs, separators=(",", ":"))


def count_lost(boxes: Detections, objects: Objects) -> int:
    """Number of objects that no box finds."""
    outcomes = judge(boxes, objects)
    return sum(outcomes.count(error) for error in ERRORS if error != FALSE)


def pack_answer(boxes: Detections, objects: Objects | None) -> str:
    """Boxes as [x0, y0, x1, y1, class, score], and objects as [x0, y0, x1, y1, class, 1 for a crowd]."""
    content = {"boxes": _rows(boxes.boxes, boxes.labels, np.round(boxes.scores, SCORES).tolist())}
    if objects is not None:
        content["objects"] = _rows(objects.boxes, objects.labels, objects.crowd.astype(int).tolist())
    return json.dumps(content, separators=(",", ":"))


def _rows(boxes: Array, labels: Array, values: Sequence[Any]) -> list[list[Any]]:
    corners = np.round(boxes.astype(np.float64), PIXELS).tolist()
    return [[*corner, label, value] for corner, label, value in zip(corners, labels.tolist(), values, strict=True)]


def read_boxes(text: str) -> Detections:
    """The boxes of a row, the highest score first."""
    values = _table(json.loads(text)["boxes"])
    order = np.argsort(-values[:, 5], kind="stable")
    return Detections(boxes=values[order, :4], labels=values[order, 4].astype(np.int64), scores=values[order, 5])


def read_objects(text: str) -> Objects:
    """The objects of a row without an attack."""
    values = _table(json.loads(text)["objects"])
    return Objects(boxes=values[:, :4], labels=values[:, 4].astype(np.int64), crowd=values[:, 5] > 0)


def _table(values: Any) -> Array:
    """(k, 6) float64."""
    return np.array(values, dtype=np.float64).reshape(-1, 6)
