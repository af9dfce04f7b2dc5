"""Answers of the model as the criterion sees them, and as columns of the rows: of classes, maps and boxes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.boxes import LEAST, MOST, Detections
from brinell.core.criterion import Criterion
from brinell.core.detection import BoxCriterion
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.segmentation import MapCriterion, confusion
from brinell.engine.tasks import object_columns, pixel_columns
from brinell.models._answers import Converted

BOX = 6
"""Numbers of a final box: corners, class and score."""


class ClassReading:
    """Logits of classes: the criterion judges all of them."""

    scores = None

    def __init__(self, y: Tensor) -> None:
        self._y = y

    def columns(self, numbers: Tensor, rows: Tensor) -> dict[str, list[Any]]:
        """The predicted class, its probability, and that of the true class."""
        probabilities, prediction, y = numbers.softmax(1), numbers.argmax(1), self._y[rows]
        return {
            "label": y.tolist(),
            "prediction": prediction.tolist(),
            "confidence": probabilities.amax(1).tolist(),
            "true_probability": probabilities.gather(1, y[:, None])[:, 0].tolist(),
            "valid": [1] * len(y),
            "wrong": (prediction != y).long().tolist(),
        }

    def truth(self, row: int) -> Array | None:
        """None: the label is all of it."""


class MapReading:
    """Maps: the margin as that of two classes, and the counts of pixels by true and predicted class."""

    scores = 2

    def __init__(self, criterion: MapCriterion) -> None:
        self._criterion, self._classes = criterion, criterion.classes

    def read(self, answers: Tensor, rows: Tensor) -> Tensor:
        """(k, classes * classes): the counts."""
        masks = self._criterion.masks[rows]
        return confusion(self._criterion.maps(answers).argmax(1), masks, self._classes).flatten(1).float()

    def columns(self, numbers: Tensor, rows: Tensor) -> dict[str, list[Any]]:
        """Valid pixels, wrong ones, and the counts as text."""
        counts = numbers[:, self.scores :].reshape(-1, self._classes, self._classes).long()
        return {name: values.tolist() for name, values in pixel_columns(counts).items()}

    def truth(self, row: int) -> Array:
        """(h, w) uint8: the mask."""
        return self._criterion.masks[row].to(torch.uint8).cpu().numpy()


class BoxReading:
    """Candidates: the margin as that of two classes, and the final boxes."""

    scores = 2

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
        pictures = [_boxes(table) for table in numbers[:, self.scores :].reshape(-1, MOST, BOX).cpu().double().numpy()]
        return {name: values.tolist() for name, values in object_columns(pictures, objects, self._criterion.least_score).items()}

    def truth(self, row: int) -> Array:
        """(k, 6) float64: corners, class, and 1 for a crowd."""
        objects = self._objects[row]
        return np.column_stack((objects.boxes.reshape(-1, 4), objects.labels, objects.crowd)).astype(np.float64)


def _boxes(table: Array) -> Detections:
    """The boxes of one picture from rows that are filled up."""
    table = table[table[:, 5] > 0]
    return Detections(boxes=table[:, :4], labels=table[:, 4].astype(np.int64), scores=table[:, 5])


Reading = ClassReading | MapReading | BoxReading


def make_reading(criterion: Criterion, y: Tensor) -> Reading:
    """The way in which answers become rows of numbers, and those become columns, for samples of the classes `y` (n,)."""
    if isinstance(criterion, MapCriterion):
        return MapReading(criterion)
    return BoxReading(criterion) if isinstance(criterion, BoxCriterion) else ClassReading(y)


class ReadModel(Converted):
    """A model whose answers are read while the ledger asks it."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "", model.classes)
        self.reader: Callable[[Tensor], None] = lambda answer: None
        """Called with each answer."""

    def predict(self, x: Tensor) -> Tensor:
        """The answers of the model."""
        answer = self.model.predict(x)
        self.reader(answer)
        return answer
