"""Answers of models of maps or boxes in a benchmark set: read while the agent asks, and written as columns of the rows."""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from brinell.core.boxes import LEAST, MOST, Detections, Objects
from brinell.core.criterion import Criterion
from brinell.core.detection import BoxCriterion
from brinell.core.model import Access, Model, ModelInfo
from brinell.core.record import Array
from brinell.core.segmentation import MapCriterion, confusion
from brinell.studies.answer_text import count_lost, pack_answer, pack_pairs

BOX = 6
"""Numbers of a final box: corners, class and score."""


class Reading(Protocol):
    """The way in which answers of one kind become rows of numbers, and those become columns."""

    width: int
    """Numbers of an answer."""

    def read(self, answers: Tensor, rows: Tensor) -> Tensor:
        """(k, width) float32: the flattened answers (k, ...) to inputs of the samples `rows` (k,) in brief."""

    def columns(self, numbers: Tensor, rows: Tensor) -> dict[str, list[Any]]:
        """The columns valid, wrong and answer of k inputs."""

    def truth(self, row: int) -> Array:
        """The truth about a sample, as `datasets.bench` reads it."""


class MapReading:
    """Maps as counts of pixels by true and predicted class."""

    def __init__(self, criterion: MapCriterion) -> None:
        self._criterion, self._classes = criterion, criterion.classes
        self.width = self._classes**2

    def read(self, answers: Tensor, rows: Tensor) -> Tensor:
        """(k, classes * classes): the counts."""
        masks = self._criterion.masks[rows]
        return confusion(self._criterion.maps(answers).argmax(1), masks, self._classes).flatten(1).float()

    def columns(self, numbers: Tensor, rows: Tensor) -> dict[str, list[Any]]:
        """Valid pixels, wrong ones, and the counts as text."""
        counts = numbers.reshape(-1, self._classes, self._classes).long().cpu().numpy()
        valid, right = counts.sum((1, 2)), counts.diagonal(axis1=1, axis2=2).sum(1)
        return {"valid": valid.tolist(), "wrong": (valid - right).tolist(), "answer": [pack_pairs(matrix) for matrix in counts]}

    def truth(self, row: int) -> Array:
        """(h, w) uint8: the mask."""
        return self._criterion.masks[row].to(torch.uint8).cpu().numpy()


class BoxReading:
    """Candidates as the final boxes."""

    width = MOST * BOX

    def __init__(self, criterion: BoxCriterion) -> None:
        self._criterion, self._objects = criterion, criterion.scene.objects

    def read(self, answers: Tensor, rows: Tensor) -> Tensor:
        """(k, MOST * 6): the boxes, filled up with scores of 0."""
        table = np.zeros((len(answers), MOST, BOX), dtype=np.float32)
        for number, boxes in enumerate(self._criterion.form.decode(answers, LEAST)):
            table[number, : len(boxes)] = np.column_stack((boxes.boxes, boxes.labels, boxes.scores))
        return torch.from_numpy(table).flatten(1).to(answers.device)

    def columns(self, numbers: Tensor, rows: Tensor) -> dict[str, list[Any]]:
        """Objects, those that no shown box finds, and the final boxes as text."""
        objects = [self._objects[row] for row in rows.tolist()]
        pictures = [_boxes(table) for table in numbers.reshape(-1, MOST, BOX).cpu().double().numpy()]
        least = self._criterion.least_score
        return {
            "valid": [picture.count for picture in objects],
            "wrong": [count_lost(boxes.select_above(least), truth) for boxes, truth in zip(pictures, objects, strict=True)],
            "answer": [pack_answer(boxes, None) for boxes in pictures],
        }

    def truth(self, row: int) -> Array:
        """(k, 6) float64: corners, class, and 1 for a crowd."""
        return object_table(self._objects[row])


def object_table(objects: Objects) -> Array:
    """(k, 6) float64: corners, class, and 1 for a crowd."""
    return np.column_stack((objects.boxes.reshape(-1, 4), objects.labels, objects.crowd)).astype(np.float64)


def _boxes(table: Array) -> Detections:
    """The boxes of one picture from rows that are filled up."""
    table = table[table[:, 5] > 0]
    return Detections(boxes=table[:, :4], labels=table[:, 4].astype(np.int64), scores=table[:, 5])


def make_reading(criterion: Criterion) -> Reading | None:
    """The reading of answers that a criterion judges; None for those of one class."""
    if isinstance(criterion, MapCriterion):
        return MapReading(criterion)
    return BoxReading(criterion) if isinstance(criterion, BoxCriterion) else None


class Heard:
    """A model that keeps its answers while somebody listens."""

    def __init__(self, model: Model) -> None:
        self.model, self.name, self.domain, self.classes = model, model.name, model.domain, model.classes
        self.answers: list[Tensor] | None = None
        """The answers since listening began; None while nobody listens."""

    @property
    def access(self) -> Access:
        """See the model."""
        return self.model.access

    @property
    def info(self) -> ModelInfo:
        """See the model."""
        return self.model.info

    def predict(self, x: Tensor) -> Tensor:
        """The answers of the model."""
        answer = self.model.predict(x)
        if self.answers is not None:
            self.answers.append(answer.detach())
        return answer

    def digest(self) -> str:
        """See the model."""
        return self.model.digest()
