"""Target classes of a targeted audit: one class for all samples, each sample's least likely one, or one drawn at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.criterion import NotRejected
from brinell.core.errors import RequestError
from brinell.core.streams import Streams

LEAST_LIKELY, RANDOM, LAST = "least-likely", "random", "last"


@dataclass(frozen=True)
class Targeting:
    """How the target class of each sample is chosen."""

    text: str
    """As it was asked for: a class by name or number, least-likely, or random."""
    chosen: int | None
    """The number of the class, where one was named."""

    def classes(self, logits: Tensor, labels: Tensor, rng: Streams) -> Tensor:
        """(n,) int64 target classes.

        Args:
            logits: (n, classes) answers to the clean inputs.
            labels: (n,) int64 true classes, which are never drawn.
            rng: a stream for each sample.
        """
        if self.chosen is not None:
            return torch.full_like(labels, self.chosen)
        if self.text == LEAST_LIKELY:
            return logits.argmin(1)
        drawn = rng.fold("target").integers(logits.shape[1] - 1)
        return drawn + (drawn >= labels)

    def check(self, model: str, classes: int) -> None:
        """Refuse a class that a model does not know."""
        if self.chosen is not None and self.chosen >= classes:
            raise RequestError(f"there is no target class {self.text!r}: model {model} has the classes 0 to {classes - 1}")

    def about(self) -> dict[str, Any]:
        """What the manifest says of the criterion."""
        return {"name": "targeted", "towards": self.text}


def targeting(text: str | None, classes: tuple[str, ...]) -> Targeting | None:
    """How target classes are chosen; None for an untargeted audit.

    Args:
        text: a class by name or number, least-likely, or random.
        classes: names of the classes of the data.

    Raises:
        RequestError: there is no such class.
    """
    if text is None:
        return None
    if text in (LEAST_LIKELY, RANDOM):
        return Targeting(text, None)
    if text in classes:
        return Targeting(text, classes.index(text))
    if text.isdecimal():
        return Targeting(text, int(text))
    near = plugins.nearest(text, (*classes, LEAST_LIKELY, RANDOM))
    raise RequestError(f"there is no target class {text!r}{near}: name a class, give its number, or write least-likely or random")


def reject_class(text: str | None, names: tuple[str, ...], classes: int, targeted: bool) -> int | None:
    """The class by which a model rejects inputs; None where there is none.

    Args:
        text: a class by name or number, or last.
        names: names of the classes of the data.
        classes: how many the model distinguishes.
        targeted: whether attacks aim at one class.

    Raises:
        RequestError: there is no such class, or attacks aim at a class, for which it makes no difference.
    """
    if text is None:
        return None
    if targeted:
        raise RequestError(
            "of a targeted audit the target class alone is a success, so a reject class changes nothing: leave it out"
        )
    if text != LAST and text not in names and not text.isdecimal():
        near = plugins.nearest(text, (*names, LAST))
        raise RequestError(f"there is no reject class {text!r}{near}: name a class, give its number, or write last")
    chosen = classes - 1 if text == LAST else names.index(text) if text in names else int(text)
    NotRejected(chosen).check(classes)
    return chosen


def others(labels: np.ndarray[Any, Any], towards: Targeting | None) -> np.ndarray[Any, Any]:
    """(m,) int64 positions of the samples that can be attacked: those of the target class are left out, and must not be all."""
    if towards is None or towards.chosen is None:
        return np.arange(len(labels), dtype=np.int64)
    left = np.flatnonzero(labels != towards.chosen)
    if not len(left):
        raise RequestError(f"all samples are of the target class {towards.text}: name another class, or take more samples")
    return left.astype(np.int64)
