"""Models whose answers are brought into the order of the data's classes, matched by their names
(`core.class_names`).
"""

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core import bounded
from brinell.core.class_names import (
    MOST_UNLIKE,
    NEVER,
    check_names,
    is_same_name,
    match_classes,
    names_of_mapping,
)
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError
from brinell.core.model import Access, Model
from brinell.models._answers import Converted

WNID = re.compile(r"n\d{8}")
"""A class of ImageNet by its number in WordNet."""
IMAGENET = 1000
"""Classes of ImageNet."""
CLASSES_FILE = "classes.json"
"""The file beside a model's weights that names its classes, in the order of its answers."""


class OrderedModel(Converted):
    """A model whose answers are in another order: that of the data's classes.

    Args:
        model: the inner model.
        order: for each answer its place in the answer of the inner model, or `NEVER`; empty if only
            the note is new.
        class_names: names of the classes in the new order.
        note: what the reader of the report must know about the order.
    """

    def __init__(
        self, model: Model, order: Sequence[int], class_names: Sequence[str], note: str
    ) -> None:
        self.order = tuple(order)
        super().__init__(
            model,
            step=str(self.order) if order else "",
            classes=len(order) or model.classes,
            class_names=tuple(class_names),
            class_order=self.order,
            notes=(note,) if note else (),
        )
        # Indices are made once: an attack asks for the order with each of its queries.
        self._never = torch.tensor([place == NEVER for place in order])
        self._index = torch.tensor([max(place, 0) for place in order])

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape), in the order of the data's classes."""
        answer = self.model.predict(x)
        # An answer of another form is refused by whoever asks.
        if not self.order or answer.ndim != 2 or answer.shape[1] != self.model.classes:
            return answer
        ordered = answer.index_select(1, self._index.to(answer.device))
        if not bool(self._never.any()):
            return ordered
        # A class that is never answered lies below all others by more than their spread.
        low, high = answer.detach().amin(1, keepdim=True), answer.detach().amax(1, keepdim=True)
        return torch.where(self._never.to(answer.device), low - (high - low) - 1, ordered)


def in_order_of(model: Model, dataset: Dataset, class_names: Sequence[str] = ()) -> Model:
    """The model with its answers in the order of the data's classes; itself if they are."""
    info = model.info
    # The classes of maps and boxes are those of pixels and objects.
    if info.output is not None:
        return model
    # Answers are recognised by their numbers later, which a class never answered would hide.
    declared = info.answers is not None or model.access == Access.LABELS
    count = 2 if model.classes == 1 else model.classes
    source = "the option class_names= of" if class_names else "the class names of"
    names = check_names(f"{source} {model.name}", class_names or info.class_names, count)
    if dataset.classes and all(map(WNID.fullmatch, dataset.classes)):
        names = wnids_of(names, count, len(dataset.classes)) or names
    present = np.unique(np.asarray(dataset.labels())).tolist()
    match = match_classes(model.name, names, tuple(dataset.classes), count, present)

    # In the same order a wrapper only carries the remark, or the names that the user gave.
    if not match.order:
        return OrderedModel(model, (), names, match.note) if match.note or class_names else model
    if not declared and (model.classes == 1 or NEVER in match.order):
        raise RequestError(
            f"{match.note}: say what model {model.name} answers by its option "
            "answers=, such as answers=logits"
        )
    return OrderedModel(
        model, match.order, _ordered_names(names, dataset.classes, match.order), match.note
    )


def _ordered_names(names: Sequence[str], classes: Sequence[str], order: Sequence[int]) -> list[str]:
    """The names of the data's classes, then those of the model's further ones, or their numbers."""
    further = [names[place] if names and place != NEVER else "" for place in order]
    ordered = [*classes, *further[len(classes) :]]
    return [name or str(place) for place, name in enumerate(ordered)]


def wnids_of(names: Sequence[str], count: int, data_count: int) -> tuple[str, ...]:
    """The classes of a network of ImageNet as wnids, `n01440764`, by the list that timm brings:
    where it names none, or those of ImageNet in their order; empty for any other network.
    """
    if count not in (IMAGENET, IMAGENET + 1):
        return ()
    timm = find_spec("timm")
    # Without timm's list names are compared as they are, or equal numbers of classes by place.
    if timm is None or timm.origin is None:
        if names or data_count == count:
            return ()
        raise RequestError(
            "the classes of the data are wnids of ImageNet, whose order timm lists: pip install "
            "'brinell[vision]'"
        )

    folder = Path(timm.origin).parent / "data" / "_info"
    wnids = (folder / "imagenet_synsets.txt").read_text(encoding="utf-8").split()
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8").splitlines()
    lemmas = dict(line.split("\t", 1) for line in lines)
    # Networks of TensorFlow have a background before the classes.
    first = count - IMAGENET
    unlike = [
        lemmas[wnid]
        for wnid, name in zip(wnids, names[first:], strict=False)
        if not is_same_name(name, lemmas[wnid])
    ]
    if len(unlike) > MOST_UNLIKE * IMAGENET:
        return ()
    return (*["background"] * first, *wnids)


def names_of_json(subject: str, content: Any) -> tuple[str, ...]:
    """The names of classes in JSON; refuses anything but a list or mapping of names."""
    pairs = _pairs_of(content)
    if not pairs:
        raise RequestError(
            f"{subject} is no list of class names, of {{index, name}}, nor a "
            "mapping of numbers to names: correct it"
        )

    names_by_number = {str(number): name for number, name in pairs}
    if len(names_by_number) < len(pairs):
        raise RequestError(f"{subject} gives one number to two classes: give each its own")
    return names_of_mapping(subject, names_by_number)


def _pairs_of(content: Any) -> list[tuple[Any, Any]]:
    """The numbers of classes with their names, in any of the forms in which people write them."""
    if isinstance(content, Mapping):
        pairs = list(content.items())
        # Names to numbers, as class_to_idx has them.
        if all(isinstance(value, int) for value in content.values()):
            return [(number, name) for name, number in pairs]
        return pairs
    if not isinstance(content, list):
        return []

    if all(isinstance(entry, Mapping) and {"index", "name"} <= entry.keys() for entry in content):
        return [(entry["index"], entry["name"]) for entry in content]
    if any(isinstance(entry, Mapping | list) for entry in content):
        return []
    return list(enumerate(content))


def names_beside(*files: str | Path) -> tuple[str, ...]:
    """The names in the classes.json beside the first of these files with one; empty for none."""
    for file in files:
        beside = Path(file).expanduser().parent / CLASSES_FILE
        if str(file) and beside.is_file():
            return names_of_json(str(beside), bounded.json_of(beside))
    return ()


def names_of_config(network: object, name: str) -> tuple[str, ...]:
    """The names in the `id2label` of a network of transformers; empty without one."""
    config = getattr(network, "config", None)
    mapping = getattr(config, "id2label", None)
    inverse = getattr(config, "label2id", None)
    if not isinstance(mapping, Mapping) or not mapping:
        return ()
    return names_of_mapping(
        f"id2label of {name}", mapping, inverse if isinstance(inverse, Mapping) else None
    )
