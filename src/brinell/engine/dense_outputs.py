"""Models that answer maps or boxes, fitted to data with masks or objects, and the criteria that requests name for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, get_args

import numpy as np
import torch
from torch import Tensor

from brinell.core.boxes import FALSE
from brinell.core.contracts import Dataset
from brinell.core.criterion import Criterion
from brinell.core.data import Task
from brinell.core.detection import BoxCriterion, BoxForm, Error, Scene
from brinell.core.errors import RequestError, option
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.segmentation import ClassGone, MapCriterion, PictureIoU, PixelShare, TargetMap
from brinell.models._detections import UNSUPPRESSED, box_form
from brinell.models._maps import Enlargement, MapModel, holds_probabilities

ERRORS: tuple[Error, ...] = get_args(Error)
"""Kinds of errors of boxes, in the order in which they are attacked."""
ALL = {FALSE: 100.0}
"""Numbers at which an attack ends if nobody names any: a picture full of false boxes; all objects for the other errors."""
MAP_FORMS = "pixels, pixels:0.5, iou:0.3, gone:CLASS or target:CLASS"
BOX_FORMS = "missed, false, mislabelled, misplaced, or missed:0.5 and false:20 to stop there, several joined by +"
HALVES: dict[Task, str] = {"segmentation": "pixels:0.5", "detection": "missed:0.5"}
"""Criteria of studies that need successes, if nobody names one: half of the pixels or of the objects."""


CHUNK = 16
"""Pictures whose truth is looked at together."""


class AttackableCriterion(Protocol):
    """A criterion that knows on which inputs it can be met."""

    @property
    def attackable(self) -> Tensor:
        """(n,) bool."""


@dataclass(frozen=True, kw_only=True)
class DenseSubject:
    """A model of maps or boxes on data with a truth about them, and one criterion of success."""

    model: Model
    """The model, fitted to the data."""
    dataset: Dataset
    task: Task
    text: str
    """The criterion, as it was written."""
    make: Callable[[Any], Criterion]
    """The criterion for the truth of some samples."""

    def criterion(self, ids: Sequence[int]) -> Criterion:
        """The criterion, aligned with these samples."""
        assert self.dataset.info.truth is not None
        return self.make(self.dataset.info.truth.load(ids))

    def hopeless(self, ids: Sequence[int]) -> dict[int, str]:
        """Samples on which no input can meet the criterion, with the reason."""
        subject = "pixel" if self.task == "segmentation" else "object"
        reasons: dict[int, str] = {}
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            flags = cast(AttackableCriterion, self.criterion(part)).attackable.tolist()
            reasons |= {
                sample: f"it has no {subject} that {self.text} counts"
                for sample, attackable in zip(part, flags, strict=True)
                if not attackable
            }
        return reasons


def open_subject(dataset: Dataset, model: Model, text: str | None, first: Sequence[int], device: torch.device) -> DenseSubject:
    """Fit a model to data with masks or objects, and read the criterion.

    Args:
        dataset: the data.
        model: the model.
        text: the criterion; None for half of the pixels or objects.
        first: a sample on which the answers are checked, at the cost of a forward.
        device: the device of the model.

    Raises:
        RequestError: the model does not answer what the data have a truth about, or the criterion is unknown or joins several.
    """
    truth = dataset.info.truth
    assert truth is not None
    text = check_criterion(text, dataset)
    if truth.task == "segmentation":
        maps = fit_maps(model, dataset, first, device)
        make: Callable[[Any], Criterion] = map_criterion(text, dataset.classes, maps, device)
        return DenseSubject(model=maps, dataset=dataset, task=truth.task, text=text, make=make)
    ((error, end),) = box_criterion(text).items()
    form = fit_boxes(model, dataset, first, device)

    def make_boxes(objects: Any) -> Criterion:
        return BoxCriterion(error=error, scene=Scene.of(objects, device), form=form, threshold=end)

    return DenseSubject(model=model, dataset=dataset, task=truth.task, text=text, make=make_boxes)


def check_criterion(text: str | None, dataset: Dataset) -> str:
    """The criterion of data with masks or objects as text, half of the pixels or objects if nobody names one.

    Raises:
        RequestError: it is unknown, or joins several.
    """
    truth = dataset.info.truth
    assert truth is not None
    text = text or HALVES[truth.task]
    if truth.task == "segmentation":
        read_map_criterion(text, dataset.classes)
    elif len(box_criterion(text)) > 1:
        raise RequestError(f"criterion is {text!r}, and here one kind of error ends the search: write one, such as missed:0.5")
    return text


def fit_maps(
    model: Model, dataset: Dataset, first: Sequence[int], device: torch.device, enlarge: Enlargement = "bilinear"
) -> MapModel:
    """The model with maps of logits as large as the pictures.

    Raises:
        RequestError: it answers no maps, or maps of another number of classes than the masks have.
    """
    full = MapModel(model, enlarge)
    classes = len(dataset.classes)
    if full.output.classes < classes:
        raise RequestError(
            f"model {model.name} tells {full.output.classes} classes apart, and the masks have {classes}: choose the model of "
            "this data"
        )
    with model.info.session(device):
        return MapModel(model, enlarge, probabilities=holds_probabilities(model, dataset.load(first).to(device)))


def fit_boxes(model: Model, dataset: Dataset, first: Sequence[int], device: torch.device) -> BoxForm:
    """The form of a detector's answers.

    Raises:
        RequestError: it answers no boxes, boxes of another number of classes than the data have, or scores beyond 0 to 1.
    """
    form = model.info.output
    if not isinstance(form, BoxForm):
        raise RequestError(
            f"model {model.name} answers no boxes: return (n, candidates, 4 + classes), or lists of boxes, scores and labels; "
            "decode=FILE.py:FUNCTION names a function that makes them of a raw output"
        )
    if form.classes != len(dataset.classes):
        raise RequestError(
            f"model {model.name} tells {form.classes} classes apart, and the boxes have {len(dataset.classes)}: choose the "
            "model of this data"
        )
    with model.info.session(device), torch.no_grad():
        answer = model.predict(dataset.load(first).to(device))
    final = form.limit == UNSUPPRESSED
    box_form(form.unflatten(answer), 1, max(dataset.domain.shape[1:]), model.name, final=final)
    return form


def map_criterion(text: str, names: Sequence[str], model: MapModel, device: torch.device) -> Callable[[Array], MapCriterion]:
    """A function from masks (n, h, w) to their criterion; `names` are those of the classes.

    Raises:
        RequestError: the text is none of the forms.
    """
    name, value = read_map_criterion(text, names)
    classes = model.output.classes

    def make(masks: Array) -> MapCriterion:
        tensor = torch.from_numpy(np.asarray(masks, dtype=np.int64)).to(device)
        if name == "gone":
            return ClassGone(masks=tensor, classes=classes, label=int(value))
        if name == "target":
            return TargetMap(masks=tensor, classes=classes, targets=torch.full_like(tensor, int(value)), threshold=1.0)
        if name == "iou":
            return PictureIoU(masks=tensor, classes=classes, below=value)
        return PixelShare(masks=tensor, classes=classes, threshold=value)

    return make


def read_map_criterion(text: str, names: Sequence[str]) -> tuple[str, float]:
    """The name of a criterion for maps, and its share or class.

    Raises:
        RequestError: the text is none of the forms, or names no class.
    """
    name, colon, value = text.partition(":")
    if name in ("gone", "target") and value:
        return name, class_number(value, names)
    share = _share(value) if colon else 1.0
    if share is not None and (name == "pixels" or (name == "iou" and colon)):
        return name, share
    raise RequestError(f"criterion is {text!r}: write {option('criterion', MAP_FORMS)} for data with masks")


def _share(value: str) -> float | None:
    """A number above 0 and at most 1; None for anything else."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 < number <= 1 else None


def class_number(value: str, names: Sequence[str]) -> int:
    """The number of a class, given by name or number.

    Raises:
        RequestError: there is no such class.
    """
    if value in names:
        return list(names).index(value)
    if value.isdecimal() and int(value) < len(names):
        return int(value)
    raise RequestError(f"there is no class {value!r}: the data have {', '.join(names)}")


def box_criterion(text: str) -> dict[Error, float]:
    """The kinds of errors that a criterion names, each with the share of objects, or the number of boxes, at which it is met.

    Raises:
        RequestError: the text is none of the forms.
    """
    ends: dict[Error, float] = {}
    for part in text.split("+"):
        name, colon, value = part.partition(":")
        error = cast(Error, name)
        try:
            end = float(value) if colon else ALL.get(name, 1.0)
        except ValueError:
            end = -1.0
        if error not in ERRORS or not 0 < end <= ALL.get(name, 1.0):
            raise RequestError(f"criterion is {text!r}: write {option('criterion', BOX_FORMS)} for data with boxes")
        ends[error] = end
    return ends
