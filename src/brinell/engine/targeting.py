"""Target classes of a targeted audit: one class for all samples, each sample's least likely one, or
one drawn at random.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.criterion import NotRejected, WrittenCriterion
from brinell.core.errors import RequestError
from brinell.core.streams import Streams
from brinell.core.suggestions import suggestion

LEAST_LIKELY, RANDOM, LAST = "least-likely", "random", "last"


@dataclass(frozen=True)
class Targeting:
    """Rule that chooses the target class of each sample."""

    text: str
    """The requested text: a class by name or number, least-likely, or random."""
    class_index: int | None

    def classes(self, logits: Tensor, labels: Tensor, rng: Streams) -> Tensor:
        """(n,) int64 target classes, by the answers (n, classes) to the clean inputs; the labels
        (n,) are never drawn.
        """
        if self.class_index is not None:
            return torch.full_like(labels, self.class_index)
        if self.text == LEAST_LIKELY:
            return logits.argmin(1)
        draws = rng.fold("target").integers(logits.shape[1] - 1)
        return draws + (draws >= labels)

    def check(self, model: str, classes: int) -> None:
        """Raise RequestError if the model does not have the class."""
        if self.class_index is not None and self.class_index >= classes:
            raise RequestError(
                f"there is no target class {self.text!r}: model {model} has the "
                f"classes 0 to {classes - 1}"
            )

    def describe(self) -> dict[str, Any]:
        """The criterion's entry in the manifest."""
        return {"name": "targeted", "towards": self.text}


def parse_targeting(text: str | None, classes: tuple[str, ...]) -> Targeting | None:
    """Parse a class by name or number, least-likely, or random; None for an untargeted audit."""
    if text is None:
        return None
    if text in (LEAST_LIKELY, RANDOM):
        return Targeting(text, None)
    if text in classes:
        return Targeting(text, classes.index(text))
    if text.isdecimal():
        return Targeting(text, int(text))

    hint = suggestion(text, (*classes, LEAST_LIKELY, RANDOM))
    raise RequestError(
        f"there is no target class {text!r}{hint}: name a class, give its number, "
        "or write least-likely or random"
    )


def parse_reject_class(
    text: str | None, names: tuple[str, ...], classes: int, targeted: bool
) -> int | None:
    """Parse the class by which a model of so many classes rejects inputs: by name, number, or last;
    None if there is none.
    """
    if text is None:
        return None
    if targeted:
        raise RequestError(
            "of a targeted audit the target class alone is a success, so a "
            "reject class changes nothing: leave it out"
        )

    if text != LAST and text not in names and not text.isdecimal():
        hint = suggestion(text, (*names, LAST))
        raise RequestError(
            f"there is no reject class {text!r}{hint}: name a class, give its number, or write last"
        )
    if text == LAST:
        index = classes - 1
    else:
        index = names.index(text) if text in names else int(text)
    NotRejected(index).check(classes)
    return index


def attackable_samples(
    labels: np.ndarray[Any, Any],
    towards: Targeting | None,
    threshold: WrittenCriterion | None = None,
) -> np.ndarray[Any, Any]:
    """(m,) int64 positions of samples that are not of the target or wrong class; raises
    RequestError if there are none.
    """
    class_index, subject = None, ""
    if threshold is not None:
        class_index, subject = threshold.wrong_class, f"class of criterion {threshold.text}"
    elif towards is not None:
        class_index, subject = towards.class_index, f"target class {towards.text}"
    if class_index is None:
        return np.arange(len(labels), dtype=np.int64)

    index = np.flatnonzero(labels != class_index)
    if not len(index):
        raise RequestError(
            f"all samples are of the {subject}: name another class, or take more samples"
        )
    return index.astype(np.int64)
