"""Tasks whose answer is more than a class: the class of each pixel, or the boxes of objects.

A `Task` is all that a study must know to attack such a model, ask it and write its answers into
rows; `analysis.pictures` makes figures of them.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.boxes import ERRORS, FALSE, LEAST, Detections, Objects, judge
from brinell.core.checks import Code
from brinell.core.contracts import Dataset
from brinell.core.detection import BoxCriterion, BoxForm, Error, Scene
from brinell.core.errors import ContractError, RequestError, option
from brinell.core.losses import predicted_classes
from brinell.core.model import Access, Model
from brinell.core.record import Array
from brinell.core.segmentation import (
    IGNORED,
    ClassGone,
    MapCriterion,
    PictureIoU,
    PixelShare,
    TargetMap,
    confusion,
)
from brinell.models._detections import (
    box_form,
    check_corners,
    mistakes_of_boxes,
)
from brinell.models._maps import MapModel, holds_probabilities, mistakes_of_maps

SEA = "sea"
"""The cascade of four losses, the usual attack on maps."""
ALL = {FALSE: 100.0}
"""Numbers at which an attack ends if nobody names any: a picture full of false boxes; all
objects for the other errors."""
SHOWN = 0.4
"""Score above which boxes are shown, if nobody names one."""
MAP_FORMS = "pixels, pixels:0.5, iou:0.3, gone:CLASS or target:CLASS"
BOX_FORMS = (
    "missed, false, mislabelled, misplaced, or missed:0.5 and false:20 to stop "
    "there, several joined by +; @0.6 at the end "
    "counts boxes with scores above 0.6"
)
CHUNK = 16
"""Pictures whose truth is looked at together."""
LOOKED_AT = 8
"""Pictures by which a model is looked at first."""
PIXELS, SCORES = 2, 6
"""Decimals of corners and of scores in a row; figures are made from the rows, so that they
decide."""
STEPS = (0.3, 0.1, 0.03, 0.01)
"""Lengths of the change by which a slope is measured (Euclidean, of the whole picture)."""
Use = Literal["audit", "transfer", "search"]
"""What a task is opened for: attacks with each aim by itself, with one by default, or a search that
one aim ends."""
TOLERANCE = 0.1
"""Largest relative difference between the measured slope and the gradient, at the best of these
lengths."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A model that answers maps or boxes, fitted to data with a truth about them, and the criteria
    of success.
    """

    model: Model
    dataset: Dataset
    text: str
    """The criterion, as it was written."""
    device: torch.device
    shown: float = SHOWN
    """Score above which boxes are shown."""
    kind: ClassVar[str]
    """The task of the data, as `core.data.Truth.task` names it."""
    unit: ClassVar[str]
    """What of a picture is right or wrong."""
    has_one_aim: ClassVar[bool] = False
    """True if there is never more than one aim, by which random numbers need not differ."""

    @property
    @abstractmethod
    def aims(self) -> tuple[str, ...]:
        """Aims of the attacks, each by itself: a criterion of maps, or kinds of errors of boxes."""

    @property
    @abstractmethod
    def usual_attack(self) -> str:
        """The attack if nobody names one."""

    @abstractmethod
    def criterion(self, ids: Sequence[int], aim: str = "") -> Any:
        """The criterion of an aim, the first by default, aligned with these samples."""

    @abstractmethod
    def columns(
        self, answers: Tensor, ids: Sequence[int], *, truth: bool = False
    ) -> dict[str, Any]:
        """Answers to inputs of these samples as the columns `valid`, `wrong` and `answer`; with the
        objects for `truth`.
        """

    def meets(self, columns: Mapping[str, Any], aim: str = "") -> Array | None:
        """(n,) bool: whether rows with these columns meet the criterion of an aim, by `valid` and
        `wrong` alone: here where all units are wrong. None where the columns do not tell.
        """
        valid = np.asarray(columns["valid"])
        return np.asarray((valid > 0) & (np.asarray(columns["wrong"]) >= valid))

    def check_rows(
        self, columns: Mapping[str, Any], answers: Tensor, ids: Sequence[int], aim: str
    ) -> None:
        """Refuse a criterion whose margin says another thing than the columns of the same answers.

        Raises:
            ContractError: a margin is positive where the columns mean no success, or the reverse.
        """
        expected = self.meets(columns, aim)
        if expected is None:
            return

        y = torch.zeros(len(ids), dtype=torch.int64, device=answers.device)
        margin = self.criterion(ids, aim).margin(answers, y, answers).cpu().numpy()
        if len(different := np.flatnonzero((margin > 0) != expected)):
            row = different[0]
            raise ContractError(
                f"task {self.kind}: the margin of {self.text} is {margin[row]:.3g} for sample "
                f"{ids[row]}, of which {columns['wrong'][row]} of {columns['valid'][row]} "
                f"{self.unit}s are wrong: a margin above 0 is a success, and `wrong` must agree "
                "with it (brinell.testing.check_task looks for such mistakes)"
            )

    def smooth(self, ids: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """A function of answers with a slope, whose gradient attacks follow: here the margin."""
        # Criteria of tasks hold the truth themselves, and read neither classes nor inputs.
        criterion, y = self.criterion(ids), torch.zeros(len(ids), dtype=torch.int64)
        return lambda answers: criterion.margin(answers, y.to(answers.device), answers)

    def views(
        self, x: Tensor, strongest: Tensor, ids: Sequence[int], batch_size: int
    ) -> dict[str, Tensor]:
        """(n, ...) bytes by which a page shows pictures before and after an attack, by name."""
        low, high = self.dataset.domain.bounds(x)
        return {"picture": ((x - low) / (high - low) * 255).round()}

    def mistakes(self, answers: Tensor, ids: Sequence[int]) -> list[str]:
        """What explains that answers to clean inputs of these samples are wrong: here nothing."""
        return []

    def checks(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        """Checks of the model: whether a mistake explains its answers to samples, and whether its
        gradient leads on the first.
        """
        with self.model.info.session(self.device):
            x = self.dataset.load(ids).to(self.device)
            # One at a time, since pictures may be large.
            mistakes = self.mistakes(self.ask(x, batch_size=1), ids)
            text = f"no mistake explains the answers to {len(ids)} clean pictures"
            if mistakes:
                text = f"without an attack {'; or '.join(mistakes)}"
            checks: list[dict[str, Any]] = [
                {"code": Code.CLEAN, "passed": not mistakes, "text": text}
            ]

            if self.model.access == Access.GRADIENTS:
                smooth = self.smooth(ids[:1])
                checks.append(
                    check_gradient(lambda inputs: smooth(self.model.predict(inputs)), x[:1])
                )
            return checks

    def truth(self, ids: Sequence[int]) -> Any:
        """The masks or the objects of some samples."""
        assert self.dataset.info.truth is not None
        return self.dataset.info.truth.load(ids)

    def ask(self, x: Tensor, batch_size: int) -> Tensor:
        """(n, numbers): flattened answers to inputs."""
        with torch.no_grad():
            return torch.cat([self.model.predict(part) for part in torch.split(x, batch_size)])

    def hopeless(self, ids: Sequence[int]) -> dict[int, str]:
        """Samples on which no input can meet the criterion, with the reason."""
        reason, parts = f"it has no {self.unit} that {self.text} counts", range(0, len(ids), CHUNK)
        attackable = [
            flag
            for start in parts
            for flag in self.criterion(ids[start : start + CHUNK]).attackable.tolist()
        ]
        return {sample: reason for sample, flag in zip(ids, attackable, strict=True) if not flag}


def check_gradient(value: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, Any]:
    """The check of the manifest whether the gradient of a function of an input (1, *shape) is its
    slope: code, passed, text.
    """
    grad = None
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        loss = value(leaf)
        if loss.requires_grad:
            (grad,) = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)
    length = 0.0 if grad is None else float(grad.norm())
    if grad is None or length == 0 or not math.isfinite(length):
        text = (
            "the gradient of the answers is missing, zero or not finite: take "
            "attacks without gradients, such as square"
        )
        return {"code": "gradient", "passed": False, "text": text}

    # The slope along the gradient is its length, at the best length of the step.
    direction = grad / length
    with torch.no_grad():
        slopes = [
            float((value(x + h * direction) - value(x - h * direction)).double()) / (2 * h)
            for h in STEPS
            # The best of several steps: long ones leave the tangent, short ones drown in rounding.
        ]
    error = min(abs(slope - length) / length for slope in slopes)

    text = (
        "the slope of the answers along their gradient differs from the gradient's "
        f"length by {100 * error:.2g} %"
    )
    if error > TOLERANCE:
        text += (
            ": the gradient is that of another function, so add attacks without "
            "gradients, such as square"
        )
    return {"code": "gradient", "passed": error <= TOLERANCE, "text": text}


# Masks


@dataclass(frozen=True, kw_only=True)
class MapTask(Task):
    """The class of each pixel."""

    model: MapModel
    kind, unit, usual_attack, has_one_aim = "segmentation", "pixel", SEA, True

    name: str
    """pixels, iou, gone or target."""
    value: float
    """The share, or the class."""

    @property
    def aims(self) -> tuple[str, ...]:
        return (self.name,)

    def criterion(self, ids: Sequence[int], aim: str = "") -> MapCriterion:
        masks, classes = self._masks(ids), self.model.output.classes
        if self.name == "gone":
            return ClassGone(masks=masks, classes=classes, label=int(self.value))
        if self.name == "target":
            return TargetMap(
                masks=masks,
                classes=classes,
                targets=torch.full_like(masks, int(self.value)),
                threshold=1.0,
            )
        if self.name == "iou":
            return PictureIoU(masks=masks, classes=classes, below=self.value)
        return PixelShare(masks=masks, classes=classes, threshold=self.value)

    def _maps(self, answers: Tensor) -> Tensor:
        return answers.reshape(len(answers), *self.model.output.shape)

    def _masks(self, ids: Sequence[int]) -> Tensor:
        return torch.from_numpy(np.asarray(self.truth(ids), dtype=np.int64)).to(self.device)

    def columns(
        self, answers: Tensor, ids: Sequence[int], *, truth: bool = False
    ) -> dict[str, Any]:
        return pixel_columns(
            confusion(
                predicted_classes(self._maps(answers)), self._masks(ids), self.model.output.classes
            )
        )

    def meets(self, columns: Mapping[str, Any], aim: str = "") -> Array | None:
        if self.name != "pixels":
            return None
        # As many whole pixels as the share asks for, one at least; the slack is for rounding.
        needed = np.ceil(self.value * columns["valid"] - 1e-6).clip(1)
        return np.asarray(columns["wrong"] >= needed)

    def smooth(self, ids: Sequence[int]) -> Callable[[Tensor], Tensor]:
        criterion = PixelShare(masks=self._masks(ids), classes=self.model.output.classes)
        return lambda answers: criterion.mean_loss(losses.margin, criterion.maps(answers))

    def views(
        self, x: Tensor, strongest: Tensor, ids: Sequence[int], batch_size: int
    ) -> dict[str, Tensor]:
        before, after = (
            predicted_classes(self._maps(self.ask(inputs, batch_size))) for inputs in (x, strongest)
        )
        return super().views(x, strongest, ids, batch_size) | {
            "mask": self._masks(ids),
            "before": before,
            "after": after,
        }

    def mistakes(self, answers: Tensor, ids: Sequence[int]) -> list[str]:
        return mistakes_of_maps(
            predicted_classes(self._maps(answers)), self._masks(ids), self.model.output.classes
        )

    def checks(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        with self.model.info.session(self.device):
            ordered = (
                self._maps(self.ask(self.dataset.load(ids[:1]).to(self.device), 1)).sort(1).values
            )
        # A class alone is one value for it and another for all others: sorted, the values below the
        # largest are equal, and its lead is the same at every pixel.
        level = ordered.shape[1] == 2 or bool((ordered[:, 0] == ordered[:, -2]).all())
        alone = level and len(torch.unique(ordered[:, -1] - ordered[:, -2])) == 1
        text = "the model answers scores for each pixel"
        if alone:
            text = (
                "the model answers the class of each pixel alone (argmax), by which "
                "no attack is led: return logits"
            )
        return [{"code": "argmax", "passed": not alone, "text": text}, *super().checks(ids)]


def open_maps(
    dataset: Dataset,
    model: Model,
    text: str | None,
    first: Sequence[int],
    device: torch.device,
    use: Use,
) -> MapTask:
    """Fit a model to data with masks, and read the criterion: by default all pixels, or half of
    them for a search.
    """
    text = text or ("pixels:0.5" if use == "search" else "pixels")
    name, value = read_map_criterion(text, dataset.classes)

    maps = fit_maps(model, dataset, first, device)
    return MapTask(model=maps, dataset=dataset, text=text, device=device, name=name, value=value)


def pixel_columns(counts: Tensor) -> dict[str, Any]:
    """The columns of counts (n, classes, classes) of pixels by true and predicted class: valid
    pixels, wrong ones, the counts.
    """
    matrices = counts.cpu().numpy()
    valid = matrices.sum((1, 2))
    right = matrices.diagonal(axis1=1, axis2=2).sum(1)
    answers = np.array([pack_pairs(matrix) for matrix in matrices], dtype=object)
    return {"valid": valid, "wrong": valid - right, "answer": answers}


def pack_pairs(counts: Array) -> str:
    """Counts (classes, classes) of pixels as [true class, predicted class, pixels] of each pair
    that occurs.
    """
    true, predicted = np.nonzero(counts)
    pairs = [[int(t), int(p), int(counts[t, p])] for t, p in zip(true, predicted, strict=True)]
    return json.dumps(pairs, separators=(",", ":"))


def fit_maps(
    model: Model, dataset: Dataset, first: Sequence[int], device: torch.device
) -> MapModel:
    """The model with maps of logits as large as the pictures."""
    full = MapModel(model)
    classes = len(dataset.classes)
    if full.output.classes < classes:
        assert dataset.info.truth is not None
        masks = dataset.info.truth.load(range(min(len(dataset), CHUNK)))
        values = sorted({*np.unique(masks).tolist()} - {IGNORED})
        remedy = "choose the model of this data"
        if len(values) <= full.output.classes:
            remedy += f", or number {', '.join(map(str, values))} from 0"
        raise RequestError(
            f"model {model.name} tells {full.output.classes} classes apart, and "
            f"the masks have {classes}: {remedy}"
        )

    with model.info.session(device):
        x = dataset.load(first).to(device)
        return MapModel(model, probabilities=holds_probabilities(model, x))


def read_map_criterion(text: str, names: Sequence[str]) -> tuple[str, float]:
    """The name of a criterion for maps, and its share or class."""
    name, colon, value = text.partition(":")
    if name in ("gone", "target") and value:
        if value in names:
            return name, list(names).index(value)
        if not value.isdecimal() or int(value) >= len(names):
            raise RequestError(f"there is no class {value!r}: the data have {', '.join(names)}")
        return name, int(value)

    try:
        share = float(value) if colon else 1.0
    except ValueError:
        share = 0.0
    if 0 < share <= 1 and (name == "pixels" or (name == "iou" and colon)):
        return name, share
    raise RequestError(
        f"criterion is {text!r}: write {option('criterion', MAP_FORMS)} for data with masks"
    )


# Boxes


@dataclass(frozen=True, kw_only=True)
class BoxTask(Task):
    """The boxes of objects."""

    kind, unit = "detection", "object"
    ends: Mapping[Error, float]
    """The kinds of errors that are attacked, each with the share of objects, or the number of
    boxes, at which an attack ends."""

    @property
    def aims(self) -> tuple[str, ...]:
        return tuple(self.ends)

    @property
    def usual_attack(self) -> str:
        return (
            "apgd-map?steps=25&wide=false"
            if self.model.access == Access.GRADIENTS
            else "square?steps=500"
        )

    @property
    def form(self) -> BoxForm:
        """The form of the answers."""
        form = self.model.info.output
        assert isinstance(form, BoxForm)
        return form

    def criterion(self, ids: Sequence[int], aim: str = "") -> BoxCriterion:
        error = cast(Error, aim or next(iter(self.ends)))
        return BoxCriterion(
            error=error,
            scene=Scene.of(self.truth(ids), self.device),
            form=self.form,
            least_score=self.shown,
            threshold=self.ends.get(error, 1.0),
        )

    def columns(
        self, answers: Tensor, ids: Sequence[int], *, truth: bool = False
    ) -> dict[str, Any]:
        return object_columns(
            self.form.decode(answers, LEAST), self.truth(ids), self.shown, truth=truth
        )

    def meets(self, columns: Mapping[str, Any], aim: str = "") -> Array | None:
        return None

    def mistakes(self, answers: Tensor, ids: Sequence[int]) -> list[str]:
        return mistakes_of_boxes(
            self.form.unflatten(answers), self.form, self.truth(ids), self.shown
        )

    def smooth(self, ids: Sequence[int]) -> Callable[[Tensor], Tensor]:
        # Boxes have a loss for each kind of error, which reads neither a named loss nor classes.
        criterion = self.criterion(ids, "missed" if self.truth(ids)[0].count else "false")
        return lambda answers: criterion.loss(
            torch.zeros_like, answers, torch.zeros(1, device=answers.device)
        )


def open_boxes(
    dataset: Dataset,
    model: Model,
    text: str | None,
    first: Sequence[int],
    device: torch.device,
    use: Use,
) -> BoxTask:
    """Fit a model to data with boxes, and read the criterion: by default all kinds of errors in an
    audit, all objects missed in a transfer, half of them in a search, which has one kind.
    """
    usual = {"audit": "+".join(ERRORS), "transfer": "missed", "search": "missed:0.5"}
    text = text or usual[use]
    ends, shown = read_box_criterion(text)
    if use == "search" and len(ends) > 1:
        raise RequestError(
            f"criterion is {text!r}, and here one kind of error ends the search: "
            "write one, such as missed:0.5"
        )

    check_boxes(model, dataset, first, device, shown)
    return BoxTask(model=model, dataset=dataset, text=text, device=device, ends=ends, shown=shown)


def object_columns(
    found: Sequence[Detections], objects: Sequence[Objects], shown: float, *, truth: bool = False
) -> dict[str, Any]:
    """The columns of boxes: objects, those that no shown box finds, and the boxes, with the objects
    for `truth`.
    """
    of_objects = [error for error in ERRORS if error != FALSE]
    wrong = []
    answers = []
    for boxes, picture in zip(found, objects, strict=True):
        outcome = judge(boxes.select_above(shown), picture)
        wrong.append(sum(map(outcome.count, of_objects)))
        answers.append(pack_boxes(boxes, picture if truth else None))

    return {
        "valid": np.array([picture.count for picture in objects]),
        "wrong": np.array(wrong),
        "answer": np.array(answers, dtype=object),
    }


def pack_boxes(boxes: Detections, objects: Objects | None) -> str:
    """Boxes as [x0, y0, x1, y1, class, score], and objects as [x0, y0, x1, y1, class, 1 for a
    crowd].
    """
    content = {
        "boxes": _entries(boxes.boxes, boxes.labels, np.round(boxes.scores, SCORES).tolist())
    }
    if objects is not None:
        content["objects"] = _entries(
            objects.boxes, objects.labels, objects.crowd.astype(int).tolist()
        )
    return json.dumps(content, separators=(",", ":"))


def _entries(boxes: Array, labels: Array, values: Sequence[Any]) -> list[list[Any]]:
    corners = np.round(boxes.astype(np.float64), PIXELS).tolist()
    return [
        [*corner, label, value]
        for corner, label, value in zip(corners, labels.tolist(), values, strict=True)
    ]


def check_boxes(
    model: Model, dataset: Dataset, first: Sequence[int], device: torch.device, shown: float
) -> None:
    """Check the answers of a detector to the samples `first`, by their objects and by the boxes
    with scores above `shown`.
    """
    form = model.info.output
    if not isinstance(form, BoxForm):
        raise RequestError(
            f"model {model.name} answers no boxes: return (n, candidates, 4 + "
            "classes), or lists of boxes, scores and labels; "
            "decode=FILE.py:FUNCTION names a function that makes them of a raw output"
        )
    if form.classes != len(dataset.classes):
        remedy = (
            "without a class for the background and a column of objectness, by which scores are "
            "multiplied"
        )
        if form.classes == 2:
            line = f"return score * one_hot(class, {len(dataset.classes)})"
            remedy = f"or, if its columns are a score and a class, {line}"
        raise RequestError(
            f"model {model.name} tells {form.classes} classes apart, and the "
            f"boxes have {len(dataset.classes)}: choose the model of this data, {remedy}"
        )

    with model.info.session(device), torch.no_grad():
        answer = torch.cat([model.predict(dataset.load([row]).to(device)) for row in first])
    candidates = form.unflatten(answer)
    box_form(candidates, len(first), model.name, final=form.is_final)
    assert dataset.info.truth is not None
    objects = dataset.info.truth.load(first)
    check_corners(candidates, objects, dataset.domain.shape[1:], model.name, shown)


def read_box_criterion(text: str) -> tuple[dict[Error, float], float]:
    """The errors that a criterion names, with the share or number at which each is met, and the
    score of shown boxes.
    """
    refusal = RequestError(
        f"criterion is {text!r}: write {option('criterion', BOX_FORMS)} for data with boxes"
    )
    parts, at, least = text.partition("@")
    ends: dict[Error, float] = {}

    try:
        shown = float(least) if at else SHOWN
        for part in parts.split("+"):
            name, colon, value = part.partition(":")
            most = ALL.get(name, 1.0)
            end = float(value) if colon else most
            if name not in get_args(Error) or not 0 < end <= most:
                raise refusal
            ends[cast(Error, name)] = end
    except ValueError:
        raise refusal from None
    if not 0 <= shown < 1:
        raise refusal
    return ends, shown
