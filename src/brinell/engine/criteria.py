"""Criteria of success other than any wrong class: target classes, a class by which a model rejects
inputs, and criteria as a user writes them, such as true<0.1, class=cat>0.9 or top5.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.criterion import NotRejected, TopK, WrittenCriterion, WrittenProbability
from brinell.core.errors import RequestError, option
from brinell.core.streams import Streams
from brinell.core.suggestions import suggestion
from brinell.engine.request import Request

LEAST_LIKELY, RANDOM, LAST = "least-likely", "random", "last"
TOP = re.compile(r"top[-: ]?(\d{1,6})")
PATTERN = re.compile(r"(true\s*<|class\s*=\s*(?P<name>.+?)\s*>)\s*(?P<value>[^<>=]+)")


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
        # A class other than the label: draws from the label on skip it.
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
        return Targeting(text, class_index=None)
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


def resolve_threshold(request: Request, classes: tuple[str, ...]) -> WrittenCriterion | None:
    """The criterion of a request; None if it has none. Refuses one beside another criterion."""
    for name in ("targeted", "reject_class"):
        if request.criterion is not None and getattr(request, name) is not None:
            raise RequestError(
                f"{option('criterion')} and {option(name)} each say what a "
                "success is: leave one of them out"
            )
    return parse_threshold(request.criterion, classes)


def parse_threshold(text: str | None, classes: tuple[str, ...]) -> WrittenCriterion | None:
    """Parse true<P, which also demands a wrong class, class=NAME>P, or topK; None for None.

    `classes` are the names of the data's classes; a class may be given by its number as well.
    """
    if text is None:
        return None
    if (top := TOP.fullmatch(text.strip())) is not None:
        return TopK(int(top[1]))
    match = PATTERN.fullmatch(text.strip())
    if match is None:
        below = option("criterion", '"true<0.1"')
        above = option("criterion", '"class=NAME>0.9"')
        raise RequestError(
            f"criterion {text!r} is not known: write {below} or {above}, "
            f"thresholds on a probability, or {option('criterion', 'top5')} for data with a "
            "class for each input"
        )

    try:
        value = float(match["value"])
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise RequestError(
            f"criterion {text!r} needs a probability between 0 and 1, such as "
            f"0.1, and {match['value'].strip()} is none"
        )

    name = match["name"]
    if name is None:
        return WrittenProbability(true_below=value, text=f"true<{value:g}")
    if name not in classes and not name.isdecimal():
        raise RequestError(
            f"there is no class {name!r}{suggestion(name, classes)}: give a name "
            "or a number of a class"
        )
    index = classes.index(name) if name in classes else int(name)
    name = classes[index] if index < len(classes) else name
    return WrittenProbability(wrong_class=index, wrong_above=value, text=f"class={name}>{value:g}")


def check_threshold(threshold: WrittenCriterion, model: str, classes: int, access: str) -> None:
    """Refuse a criterion whose classes the model lacks, or whose scores its labels do not show."""
    if access == "labels":
        raise RequestError(
            f"model {model} answers labels only, and criterion {threshold.text} "
            f"is about scores: leave {option('criterion')} out"
        )
    if threshold.wrong_class is not None and threshold.wrong_class >= classes:
        raise RequestError(
            f"there is no class {threshold.wrong_class}: model {model} has the "
            f"classes 0 to {classes - 1}"
        )
    threshold.check(classes)


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
