"""What attacks a model of ordered classes and asks it: data, criterion, and columns of the rows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from brinell.core.criterion import TINY, Loss, TwoClasses
from brinell.core.data import Dataset, Truth
from brinell.core.errors import RequestError
from brinell.core.model import Model
from brinell.datasets.digits import Digits
from brinell.engine.tasks import Task, Use


class Ordered:
    """Labelled data whose classes have an order: the labels become the truth of the task."""

    def __init__(self, data: Dataset) -> None:
        self.data, self.name, self.domain, self.classes = data, data.name, data.domain, data.classes
        truth = Truth(task="ordinal", load=lambda ids: data.labels()[list(ids)])
        self.info = replace(data.info, truth=truth)

    def __len__(self) -> int:
        return len(self.data)

    def labels(self) -> Any:
        """Zeros: the truth is not the class of an input."""
        return np.zeros(len(self.data), dtype=np.int64)

    def load(self, indices: Sequence[int]) -> Tensor:
        """The inputs of the data."""
        return self.data.load(indices)

    def digest(self) -> str:
        """The hash of the data."""
        return self.data.digest()


@dataclass(frozen=True, kw_only=True)
class OrderedDigits:
    """The digits, whose classes are grades."""

    split: Literal["test", "train"] = "test"
    """Part of the data."""

    def __call__(self) -> Dataset:
        """Read the digits."""
        return Ordered(Digits(split=self.split)())


@dataclass(frozen=True, kw_only=True)
class FarOff(TwoClasses):
    """Met where the answer is more than `steps` classes away from the true one."""

    true: Tensor
    """(n,) int64 true classes."""
    classes: int
    steps: int
    name = "far off"

    def _is_far(self) -> Tensor:
        """(n, classes) bool: classes that are too far from the true one."""
        order = torch.arange(self.classes, device=self.true.device)
        return (order - self.true[:, None]).abs() > self.steps

    @property
    def attackable(self) -> Tensor:
        """(n,) bool: samples with a class that far away."""
        return self._is_far().any(1)

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The largest logit of a class that is too far, minus that of one near enough."""
        far = self._is_far()
        near = logits.masked_fill(far, -torch.inf).amax(1)
        lead = logits.masked_fill(~far, -torch.inf).amax(1) - near
        # Of equal logits the first leads, as in `columns`.
        is_wrong = far.gather(1, logits.argmax(1, keepdim=True))[:, 0]
        return torch.where(is_wrong, lead.clamp_min(TINY), lead)

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """0 and the margin, in which the first class is the true one."""
        margin = self.margin(logits, y, logits) if margin is None else margin
        return torch.stack((torch.zeros_like(margin), margin), 1)

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """A loss of these two."""
        return loss(self.logits_for_attack(logits, y), y)

    def select(self, keep: slice | Tensor) -> Self:
        """The criterion of some rows."""
        return replace(self, true=self.true[keep])

    def check(self, classes: int) -> None:
        """Any number of classes will do."""

    def describe(self) -> dict[str, Any]:
        """The name and the number of steps."""
        return {"name": self.name, "steps": self.steps}


@dataclass(frozen=True, kw_only=True)
class OrdinalTask(Task):
    """A model that answers ordered classes."""

    kind, unit, usual_attack = "ordinal", "answer", "pgd?steps=20"
    aims = ("far",)
    steps: int

    def criterion(self, ids: Sequence[int], aim: str = "") -> FarOff:
        """The criterion of some samples."""
        true = torch.as_tensor(self.truth(ids), device=self.device)
        return FarOff(true=true, classes=self.model.classes, steps=self.steps)

    def columns(
        self, answers: Tensor, ids: Sequence[int], *, truth: bool = False
    ) -> dict[str, Any]:
        """One answer a sample: whether it is far off; its text is how far, and the true class."""
        true = np.asarray(self.truth(ids))
        away = np.abs(answers.argmax(1).cpu().numpy() - true)
        wrong = (away > self.steps).astype(np.int64)
        texts = map(json.dumps, np.stack((true, away, wrong), 1).tolist())
        return {"valid": np.ones_like(true), "wrong": wrong, "answer": np.array([*texts], object)}


def open_ordinal(
    dataset: Dataset,
    model: Model,
    text: str | None,
    first: Sequence[int],
    device: torch.device,
    use: Use,
) -> OrdinalTask:
    """The task of a model; the criterion is the number of steps that are near enough, here 1."""
    text = text or "1"
    if not text.isdecimal():
        raise RequestError(f"criterion is {text!r}: write a number of steps, such as 1")
    return OrdinalTask(model=model, dataset=dataset, text=text, device=device, steps=int(text))
