"""Criteria for detectors: the truth is the objects of each picture, and an answer is a flattened
tensor of candidates.

A detector with K candidates and C classes answers (n, K * (4 + C)): four corners in pixels of the
input, then a score in [0, 1] for each class, before suppression (NMS). The criterion decodes an
answer as the detector does (`core.boxes.decode`) and counts one kind of error: objects missed,
false boxes, objects mislabelled or misplaced. Attacks that ask for scores are shown two classes, 0
and the margin, as for maps (`core.segmentation`). Counts have no gradient, so attacks that need one
follow a loss for each kind of error, which is a sum over candidates and passes no suppression.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brinell.core.boxes import (
    FALSE,
    MATCH,
    MISLABELLED,
    MISPLACED,
    MISSED,
    NEARBY,
    Detections,
    Objects,
    decode,
    judge,
)
from brinell.core.criterion import Loss, TwoClasses
from brinell.core.errors import RequestError
from brinell.core.record import Array

Error = Literal["missed", "false", "mislabelled", "misplaced"]
LIKELY = 10
"""Number of candidates whose mean score shows how near the next false box is."""
UNSUPPRESSED = 1.0
"""The limit of overlap of a model whose boxes passed its own suppression: nothing more is
dropped."""
MATCHED = 0.4
"""Overlap from which losses take a candidate for one of an object: below `MATCH`, so that no
candidate escapes by a small shift."""


@dataclass(frozen=True, kw_only=True)
class BoxForm:
    """The form of a detector's answers, and its decoding."""

    candidates: int
    """K."""
    classes: int
    """C."""
    limit: float = 0.45
    """Overlap above which the lower of two boxes of one class is dropped."""

    @property
    def is_final(self) -> bool:
        """True if the boxes passed the model's own suppression."""
        return self.limit == UNSUPPRESSED

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one answer."""
        return self.candidates, 4 + self.classes

    def unflatten(self, answers: Tensor) -> Tensor:
        """(n, K, 4 + C): flattened answers as candidates."""
        return answers.reshape(len(answers), *self.shape)

    def decode(self, answers: Tensor, least: float) -> list[Detections]:
        """The final boxes with scores above `least` in each picture.

        `answers` are flattened, (n, K * (4 + C)).
        """
        candidates: Array = self.unflatten(answers.detach()).cpu().double().numpy()
        return [decode(picture, least=least, limit=self.limit) for picture in candidates]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """The objects of a batch of pictures, as tensors that are filled up to one length."""

    objects: tuple[Objects, ...]
    boxes: Tensor
    """(n, G, 4)."""
    labels: Tensor
    """(n, G) int64."""
    counted: Tensor
    """(n, G) bool: True for objects, False for crowds and filling."""

    @classmethod
    def of(cls, objects: Sequence[Objects], device: torch.device | str = "cpu") -> "Scene":
        """The scene of these pictures."""
        # All pictures are padded to the one with the most objects, so that they fit into one
        # tensor.
        longest = max((len(picture) for picture in objects), default=0) or 1
        boxes = np.zeros((len(objects), longest, 4), np.float32)
        labels = np.zeros((len(objects), longest), np.int64)
        counted = np.zeros(labels.shape, bool)
        for row, picture in enumerate(objects):
            n = len(picture)
            boxes[row, :n] = picture.boxes
            labels[row, :n] = picture.labels
            # Crowds are many objects in one box: finding none of them is no error.
            counted[row, :n] = ~picture.crowd

        return cls(
            objects=tuple(objects),
            boxes=torch.from_numpy(boxes).to(device),
            labels=torch.from_numpy(labels).to(device),
            counted=torch.from_numpy(counted).to(device),
        )

    def select(self, keep: slice | Tensor) -> "Scene":
        """The scene of some pictures."""
        # Objects are NumPy arrays on the host, whichever device the tensors are on.
        index = torch.arange(len(self.objects))[
            keep if isinstance(keep, slice) else keep.cpu()
        ].tolist()
        objects = tuple(self.objects[row] for row in index)
        return Scene(
            objects=objects,
            boxes=self.boxes[keep],
            labels=self.labels[keep],
            counted=self.counted[keep],
        )

    @property
    def count(self) -> Tensor:
        """(n,) float32: number of objects to find."""
        return self.counted.sum(1).float()

    def overlaps(self, boxes: Tensor) -> Tensor:
        """(n, K, G): intersection over union of boxes (n, K, 4) with each object.

        It is 0 for crowds and filling.
        """
        # A box is its upper left corner, then its lower right one.
        low = torch.maximum(boxes[:, :, None, :2], self.boxes[:, None, :, :2])
        high = torch.minimum(boxes[:, :, None, 2:], self.boxes[:, None, :, 2:])

        common = (high - low).clamp_min(0).prod(-1)
        area = (boxes[..., 2:] - boxes[..., :2]).clamp_min(0).prod(-1)[:, :, None]
        reference = (self.boxes[..., 2:] - self.boxes[..., :2]).prod(-1)[:, None]
        return common / (area + reference - common).clamp_min(1e-9) * self.counted[:, None]


class _Candidates:
    """Candidates and the objects of their pictures, for losses."""

    def __init__(self, candidates: Tensor, scene: Scene) -> None:
        self.boxes = candidates[..., :4]
        shares = candidates[..., 4:]
        self.count = scene.count.clamp_min(1)
        self.overlap = scene.overlaps(self.boxes)
        """(n, K, G), differentiable in the corners."""
        # Which candidates belong to an object is decided by values that have no gradient.
        self.near = self.overlap.detach()

        self.best, label = shares.max(2)
        """(n, K): the score of each candidate."""

        self.true = shares.gather(2, scene.labels[:, None].expand(-1, shares.shape[1], -1))
        """(n, K, G): the score for the class of each object."""
        self.alike = label[:, :, None] == scene.labels[:, None]
        """(n, K, G) bool: whether the candidate stands for the class of the object."""
        self.rival = torch.where(
            self.alike,
            # Of a candidate for the object's own class the second best, which exists for one class
            # too.
            shares.topk(min(2, shares.shape[2]), 2).values[..., -1:],
            self.best[..., None],
        )
        """(n, K, G): the best score for another class than that of each object."""

    def missed(self) -> Tensor:
        """Minus the scores of the candidates of objects, whatever their class."""
        matched = (self.near >= MATCHED).any(2)
        close = self.near >= NEARBY
        return -((self.best * matched).sum(1) + (self.true * close).sum((1, 2))) / self.count

    def false(self) -> Tensor:
        """The scores of the candidates of no object."""
        # Scaled towards the other losses, which are means over objects.
        return (self.best * (self.near < MATCH).all(2)).sum(1) / 100

    def mislabelled(self) -> Tensor:
        """The best score for another class minus the true one, over the candidates of objects."""
        return ((self.rival - self.true) * (self.near >= MATCHED)).sum((1, 2)) / self.count

    def misplaced(self) -> Tensor:
        """Scores of candidates beside their objects minus those upon them.

        The overlaps of the latter, weighted by score, are subtracted too.
        """
        adjacent = (self.near >= NEARBY) & (self.near < MATCH)
        upon = self.near >= MATCHED
        shift = self.overlap * self.true.detach() * upon
        return (
            (self.true * adjacent).sum((1, 2))
            - (self.true * (self.near >= MATCH)).sum((1, 2))
            - shift.sum((1, 2))
        ) / self.count


@dataclass(frozen=True, kw_only=True)
class BoxCriterion(TwoClasses):
    """A share of the objects of a picture is missed, mislabelled or misplaced, or boxes are false.

    The margin of an object error is (errors + hint) / objects - threshold, and a picture without
    objects never meets it. That of false boxes is errors + hint - threshold. The hint between 0 and
    1 says how near the next error is, for attacks that see no gradient, and decides nothing.
    """

    error: Error
    scene: Scene = field(repr=False)
    form: BoxForm
    least_score: float = 0.4
    """Scores above it are shown; the criterion counts the errors among these boxes."""
    threshold: float = 0.5
    name = "detection"

    @property
    def attackable(self) -> Tensor:
        """(n,) bool: pictures on which the criterion can be met.

        Only false boxes need no object.
        """
        return self.scene.count >= 0 if self.error == FALSE else self.scene.count > 0

    def counts(self, answers: Tensor) -> Tensor:
        """(n,) float32: errors in each picture."""
        pictures = zip(self.form.decode(answers, self.least_score), self.scene.objects, strict=True)
        return torch.tensor(
            [judge(*pair).count(self.error) for pair in pictures],
            dtype=torch.float32,
            device=answers.device,
        )

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): margins; their gradient is that of the loss, since a count has none."""
        with torch.no_grad():
            errors = self.counts(logits) + self._hint(logits)
            if self.error == FALSE:
                value = errors - self.threshold
            else:
                # Whole errors, so that rounding decides nothing.
                objects = self.scene.count
                needed = torch.ceil(self.threshold * objects).clamp_min(1)
                value = torch.where(objects > 0, (errors - needed) / objects.clamp_min(1), -1.0)
        if not logits.requires_grad:
            return value

        # The value of the count with the gradient of the loss.
        slope = self._slope(logits)
        return value + slope - slope.detach()

    def _hint(self, answers: Tensor) -> Tensor:
        """(n,) in (0, 1): how near the next error is."""
        parts = _Candidates(self.form.unflatten(answers), self.scene)
        if self.error == FALSE:
            # By the ten faint candidates away from all objects that come nearest to being shown.
            away = (parts.best * (parts.near < MATCH).all(2)).masked_fill(
                parts.best > self.least_score, 0.0
            )
            # Of several candidates, so that an attack gains by raising any of them.
            value = away.topk(min(LIKELY, away.shape[1]), 1).values.mean(1) / max(
                self.least_score, 1e-6
            )
        else:
            candidate = {
                MISSED: parts.true * (parts.near >= NEARBY),
                MISLABELLED: parts.rival * (parts.near >= MATCH),
                MISPLACED: parts.true * ((parts.near >= NEARBY) & (parts.near < MATCH)),
            }[self.error]
            mean = (candidate.amax(1) * self.scene.counted).sum(1) / parts.count
            value = 1 - mean if self.error == MISSED else mean

        # Strictly between 0 and 1: a hint never makes up for a whole error.
        return value.clamp(0, 1) * 0.98 + 0.01

    def _slope(self, answers: Tensor) -> Tensor:
        """(n,): the loss of this kind of error."""
        parts = _Candidates(self.form.unflatten(answers), self.scene)
        value: Tensor = getattr(parts, self.error)()
        return value

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of this kind of error, whatever loss an attack names."""
        return self._slope(logits)

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """Two logits, 0 and the margin."""
        margin = self.margin(logits, y, logits) if margin is None else margin
        return torch.stack((torch.zeros_like(margin), margin), 1)

    def select(self, keep: slice | Tensor) -> "BoxCriterion":
        """The criterion for some pictures."""
        return replace(self, scene=self.scene.select(keep))

    def check(self, classes: int) -> None:
        """Refuse a model whose answers have another length than the form states."""
        candidates, width = self.form.shape
        if classes != candidates * width:
            raise RequestError(
                f"the model answers {classes} numbers, and {candidates} "
                f"candidates of {self.form.classes} classes have "
                f"{candidates * width}: choose the model of this data"
            )

    def describe(self) -> dict[str, Any]:
        """The name and the fields that the criterion is set by, without the pictures."""
        return {
            "name": self.name,
            "error": self.error,
            "least_score": self.least_score,
            "threshold": self.threshold,
        }
