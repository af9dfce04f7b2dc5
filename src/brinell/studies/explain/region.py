"""Parts of answers that are explained: the pixels of a class or of a rectangle, or one object of each picture.

The criteria of a part show two classes, as those for whole answers do to attacks, but with a value that falls evenly from
«unchanged» to «gone», so that one query says how much of the part is left.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from brinell.core.boxes import LEAST, MATCH, Objects, overlaps
from brinell.core.contracts import Dataset, Model
from brinell.core.criterion import Criterion
from brinell.core.detection import BoxCriterion, BoxForm, Scene
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.core.segmentation import IGNORED, PixelShare
from brinell.engine.dense_outputs import class_number, fit_boxes, fit_maps
from brinell.models._maps import MapModel
from brinell.studies.explain.truth import GroundTruth

FORMS = {
    "segmentation": "class:NAME for the pixels of a class, or box:X0,Y0,X1,Y1 for a rectangle",
    "detection": "class:NAME for the largest object of a class, or object:N for object N of each picture, from 0",
}
"""Regions by what the data have a truth about."""
NOWHERE = "whose answer has nothing of the region"
"""Reason of pictures in which the model sees no pixel of a class."""
ANSWER_BYTES = 2**27
"""Approximate size of the answers that are held at once."""
LIMIT = 0.01
"""Shares closer than this to 0 or 1 are shown as that, since log-odds beyond would be those of single pixels."""


@dataclass(frozen=True, kw_only=True)
class RegionChanged(PixelShare):
    """Half of the pixels of a region lose their class. Masks hold that class in the region, and `IGNORED` beyond it."""

    threshold: float = 0.5
    name = "region"

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """(n, 2): logarithms of the share of the region that keeps its class, and of the rest."""
        margin = self.margins(self.maps(logits)) if margin is None else margin
        share = (0.5 - margin).clamp(LIMIT, 1 - LIMIT)
        return torch.stack((share.log(), (1 - share).log()), 1)


@dataclass(frozen=True, kw_only=True)
class ObjectLost(BoxCriterion):
    """No shown box of its class overlaps an object by `MATCH`. The scene holds one object for each picture.

    The margin is the log-odds by which the best score stays below that of shown boxes. Boxes that overlap the object less count
    by their share of `MATCH`, and never as found.
    """

    name = "object"

    def score(self, answers: Tensor) -> Tensor:
        """(n,) float32: the score by which each object is found."""
        scores = []
        for boxes, objects in zip(self.form.decode(answers, LEAST), self.scene.objects, strict=True):
            ratio = overlaps(boxes.boxes, objects.boxes)[:, 0] * (boxes.labels == objects.labels[0])
            full = float(boxes.scores[ratio >= MATCH].max(initial=0.0))
            part = float((boxes.scores * ratio / MATCH)[ratio < MATCH].max(initial=0.0))
            scores.append(full if full > self.least_score else min(max(full, part), self.least_score))
        return torch.tensor(scores, dtype=torch.float32, device=answers.device)

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): above 0 where the object is lost, and at least 1e-3 from 0."""
        with torch.no_grad():
            score = self.score(logits)
            least = torch.logit(torch.tensor(max(self.least_score, LIMIT)), LIMIT)
            value = least - torch.logit(score, LIMIT)
            value = torch.where(score > self.least_score, value.clamp_max(-1e-3), value.clamp_min(1e-3))
        if not logits.requires_grad:
            return value
        slope = self._slope(logits)
        return value + slope - slope.detach()


@dataclass(frozen=True, kw_only=True)
class RegionSpec:
    """A region as it is asked for."""

    text: str
    label: int | None = None
    """A class."""
    corners: tuple[int, int, int, int] | None = None
    """A rectangle in pixels: x0, y0, x1, y1."""
    number: int | None = None
    """An object."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Clean answers about the regions of some samples."""

    region: Array
    """(n, h, w) uint8 explained classes, 255 beyond the region; or (n, 5) corners and class."""
    label: Array
    """(n,) int64: the true class, the commonest of a rectangle; -1 where there is no region."""
    predicted: Array
    """(n,) int64: the predicted class, the commonest of the region; -1 where the model finds no object."""
    explained: Array
    """(n,) int64: the class that is explained, the commonest of a rectangle."""
    reasons: list[str]
    """The reason why each sample cannot be explained; empty for those that can."""

    def arrays(self) -> dict[str, Array]:
        """The arrays that explaining takes."""
        return {"region": self.region, "label": self.label, "predicted": self.predicted, "explained": self.explained}


def read_region(text: str | None, dataset: Dataset) -> RegionSpec | None:
    """The region that a request names; None for data with one class for each input.

    Raises:
        RequestError: it is missing, unknown, or does not fit the data.
    """
    truth = dataset.info.truth
    if truth is None:
        if text is not None:
            raise RequestError(
                f"{option('region')} is for masks and boxes, and {dataset.name} has one class for each input: leave it out"
            )
        return None
    forms = FORMS[truth.task]
    if text is None:
        subject = "masks" if truth.task == "segmentation" else "boxes"
        raise RequestError(f"{dataset.name} holds {subject}, of which one part is explained: add {option('region')}, {forms}")
    kind, _, value = text.partition(":")
    if kind == "class" and value:
        return RegionSpec(text=text, label=class_number(value, dataset.classes))
    if kind == "object" and truth.task == "detection" and value.isdecimal() and len(value) < 7:
        return RegionSpec(text=text, number=int(value))
    if kind == "box" and truth.task == "segmentation":
        return RegionSpec(text=text, corners=_corners(text, value, dataset))
    raise RequestError(f"region is {text!r}: write {forms}")


def _corners(text: str, value: str, dataset: Dataset) -> tuple[int, int, int, int]:
    """A rectangle within the pictures."""
    _, height, width = dataset.domain.shape
    fields = value.split(",")
    if len(fields) != 4 or not all(field.strip().isdecimal() and len(field) < 7 for field in fields):
        raise RequestError(f"region is {text!r}: write box:X0,Y0,X1,Y1 with whole pixels, such as box:0,0,{width // 2},{height}")
    x0, y0, x1, y1 = (int(field) for field in fields)
    if not (x0 < x1 <= width and y0 < y1 <= height) or (x1 - x0, y1 - y0) == (width, height):
        raise RequestError(
            f"region is {text!r}, and a picture has {width} x {height} pixels: give a rectangle in it with x0 < x1 and y0 < y1, "
            "smaller than the picture"
        )
    return x0, y0, x1, y1


class Regions(ABC):
    """The regions of a data set for one model.

    Args:
        spec: the region that is asked for.
        dataset: the data.
        model: the model, fitted to the data.
        explain: whether the predicted class is explained, or the true one.
    """

    def __init__(self, spec: RegionSpec, dataset: Dataset, model: Model, explain: Literal["prediction", "label"]) -> None:
        self.spec, self.dataset, self.model, self.explain = spec, dataset, model, explain

    def truths(self, ids: Sequence[int]) -> Any:
        """The masks or objects of samples."""
        assert self.dataset.info.truth is not None
        return self.dataset.info.truth.load(ids)

    @property
    def batch_size(self) -> int:
        """Inputs that are shown to the model at once, at most."""
        return max(1, ANSWER_BYTES // (4 * self.model.classes))

    def ground_truth(self) -> GroundTruth:
        """The regions as the truth about where the object is."""
        return GroundTruth(mask=self.mask)

    @abstractmethod
    def mask(self, sample: int) -> Array | None:
        """(h, w) uint8: 1 in the region of a sample; None without one."""

    @abstractmethod
    def view(self, ids: Sequence[int], answers: Tensor) -> View:
        """The regions of samples, from the flattened answers (n, ...) to the clean inputs."""

    @abstractmethod
    def criterion(self, region: Array, device: torch.device) -> Criterion:
        """The criterion for the regions of a view."""


class MapRegions(Regions):
    """Pixels of a class or of a rectangle."""

    def mask(self, sample: int) -> Array | None:
        """1 in the region, 255 where a pixel of the picture has no class."""
        truth = self.truths([sample])[0]
        region = self._region_mask(truth).astype(np.uint8)
        if not region.any():
            return None
        return np.where(truth == IGNORED, IGNORED, region).astype(np.uint8) if self.spec.corners is None else region

    def _region_mask(self, truth: Array) -> Array:
        """(h, w) bool: the region."""
        if self.spec.corners is None:
            return np.asarray(truth == self.spec.label)
        x0, y0, x1, y1 = self.spec.corners
        mask = np.zeros(truth.shape, dtype=bool)
        mask[y0:y1, x0:x1] = True
        return mask

    def view(self, ids: Sequence[int], answers: Tensor) -> View:
        """See the base: pixels that are predicted as the class or have it; each pixel of a rectangle by its own class."""
        model = cast(MapModel, self.model)
        maps = answers.reshape(len(answers), *model.output.shape).argmax(1).cpu().numpy()
        rows = [self._view_one(truth, predicted) for truth, predicted in zip(self.truths(ids), maps, strict=True)]
        regions, labels, predictions, explained, reasons = zip(*rows, strict=True)
        return View(
            region=np.stack(regions),
            label=np.array(labels),
            predicted=np.array(predictions),
            explained=np.array(explained),
            reasons=list(reasons),
        )

    def _view_one(self, truth: Array, predicted: Array) -> tuple[Array, int, int, int, str]:
        """The region of one picture by explained class, three classes, and why it cannot be explained."""
        mask, source = self._region_mask(truth), truth if self.explain == "label" else predicted
        selection = mask if self.spec.corners is not None else source == self.spec.label
        region = np.where(selection, source, IGNORED)
        valid = region != IGNORED
        true_classes, predictions = truth[mask & (truth != IGNORED)], predicted[mask]
        if not len(predictions) or not valid.any():
            return region.astype(np.uint8), -1, -1, -1, "without the region" if not len(predictions) else NOWHERE
        wrong = (predicted == region)[valid].mean() <= 0.5
        prediction = _commonest(predictions)
        label = _commonest(true_classes) if len(true_classes) else prediction
        reason = "whose region the model gets mostly wrong" if wrong else ""
        return region.astype(np.uint8), label, prediction, _commonest(region[valid]), reason

    def criterion(self, region: Array, device: torch.device) -> Criterion:
        """Half of the region loses its class."""
        masks = torch.from_numpy(region.astype(np.int64)).to(device)
        return RegionChanged(masks=masks, classes=cast(MapModel, self.model).output.classes)


def _commonest(classes: Array) -> int:
    """The commonest class; -1 without any."""
    return int(np.bincount(classes.astype(np.int64)).argmax()) if len(classes) else -1


class BoxRegions(Regions):
    """One object of each picture."""

    least_score = 0.4
    """Score above which boxes are shown."""

    @property
    def form(self) -> BoxForm:
        """The form of the model's answers."""
        form = self.model.info.output
        assert isinstance(form, BoxForm)
        return form

    def _number(self, objects: Objects) -> int | None:
        """The object of a picture that is explained; None if it has no such object."""
        if self.spec.number is not None:
            exists = self.spec.number < len(objects) and not objects.crowd[self.spec.number]
            return self.spec.number if exists else None
        sizes = (objects.boxes[:, 2:] - objects.boxes[:, :2]).prod(1)
        sizes = np.where((objects.labels == self.spec.label) & ~objects.crowd, sizes, 0)
        return int(sizes.argmax()) if sizes.any() else None

    def mask(self, sample: int) -> Array | None:
        """1 in the box of the object."""
        objects = self.truths([sample])[0]
        number = self._number(objects)
        if number is None:
            return None
        x0, y0, x1, y1 = objects.boxes[number]
        mask = np.zeros(self.dataset.domain.shape[1:], dtype=np.uint8)
        mask[int(y0) : max(int(np.ceil(y1)), int(y0) + 1), int(x0) : max(int(np.ceil(x1)), int(x0) + 1)] = 1
        return mask

    def view(self, ids: Sequence[int], answers: Tensor) -> View:
        """See the base: an object is explained by the class of the best shown box on it, or by its true class."""
        table = np.zeros((len(ids), 5))
        labels, predictions, classes, reasons = [], [], [], []
        pictures = self.form.decode(answers, self.least_score)
        for row, (boxes, objects) in enumerate(zip(pictures, self.truths(ids), strict=True)):
            number = self._number(objects)
            if number is None:
                labels.append(-1)
                predictions.append(-1)
                classes.append(-1)
                reasons.append("without the object")
                continue
            label = int(objects.labels[number])
            is_match = overlaps(boxes.boxes, objects.boxes[number][None])[:, 0] >= MATCH
            matches = boxes.labels[is_match]  # the best comes first
            predicted = int(matches[0]) if len(matches) else -1
            explained = label if self.explain == "label" else predicted
            table[row] = [*objects.boxes[number], explained]
            labels.append(label)
            classes.append(explained)
            predictions.append(label if label in matches and self.explain == "label" else predicted)
            reasons.append("" if explained in matches else "whose object the model does not find")
        return View(
            region=table,
            label=np.array(labels),
            predicted=np.array(predictions),
            explained=np.array(classes),
            reasons=reasons,
        )

    def criterion(self, region: Array, device: torch.device) -> Criterion:
        """No shown box of the explained class finds the object."""
        objects = [Objects(boxes=row[None, :4], labels=row[4:].astype(np.int64), crowd=np.zeros(1, dtype=bool)) for row in region]
        scene = Scene.of(objects, device)
        return ObjectLost(error="missed", scene=scene, form=self.form, least_score=self.least_score, threshold=1.0)


def open_regions(
    spec: RegionSpec,
    dataset: Dataset,
    model: Model,
    explain: Literal["prediction", "label"],
    first: Sequence[int],
    device: torch.device,
) -> Regions:
    """Fit the model to the data and make the regions.

    Args:
        spec: the region that is asked for.
        dataset: the data.
        model: the model.
        explain: whether the predicted class is explained, or the true one.
        first: a sample on which the answers are checked, at the cost of a forward.
        device: the device of the model.

    Raises:
        RequestError: the model does not answer what the data have a truth about.
    """
    assert dataset.info.truth is not None
    if dataset.info.truth.task == "segmentation":
        return MapRegions(spec, dataset, fit_maps(model, dataset, first, device), explain)
    fit_boxes(model, dataset, first, device)
    return BoxRegions(spec, dataset, model, explain)
