"""Names of the classes of data sets of torch, also of those within subsets, concatenations, loaders and wrappers."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from torch.utils import data as torch_data

from brinell.core.errors import is_foreign

WRAPPED = ("dataset", "subset", "base_dataset", "base", "ds")
"""Attributes under which a wrapper holds its data set."""
MOST_NESTED = 20
"""Most data sets within each other whose classes are looked for."""
COMPARED = 8
"""Number of labels by which it is seen that a wrapper leaves labels as they are."""


def class_names_of(data: Any, depth: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the classes of a torch data set or of the data sets that it contains, and notes; empty if none states any.

    A wrapper has the names of what it contains, as long as it shows the same labels.
    """
    names = _attribute(data, "classes")
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        return tuple(names), ()
    numbers = _attribute(data, "class_to_idx")
    if isinstance(numbers, Mapping) and numbers and sorted(map(str, numbers.values())) == sorted(map(str, range(len(numbers)))):
        return tuple(str(name) for name, _ in sorted(numbers.items(), key=lambda pair: int(pair[1]))), ()
    if depth == MOST_NESTED:
        return (), ()
    answers = [class_names_of(part, depth + 1) for part in _parts(data)]
    notes = tuple(dict.fromkeys(note for _, part_notes in answers for note in part_notes))
    lists = list(dict.fromkeys(part_names for part_names, _ in answers))
    if len(lists) < 2:
        return (lists[0] if lists else ()), notes
    listing = " and ".join(", ".join(part_names[:4]) or "none" for part_names in lists[:2])
    text = f"the joined data sets name different classes ({listing}), so the names are left out: give classes= if you know them"
    return (), (*notes, text)


def _parts(data: Any) -> list[Any]:
    """The data sets within a data set that show the same labels as it."""
    if isinstance(data, torch_data.ConcatDataset):
        return list(data.datasets)
    inner = next((part for name in WRAPPED if (part := _attribute(data, name)) is not None), None)
    if inner is None or inner is data:
        return []
    if isinstance(data, torch_data.DataLoader) or type(data) is torch_data.Subset or _shows_labels_of(data, inner):
        return [inner]
    return []


def _shows_labels_of(outer: Any, inner: Any) -> bool:
    """True if some items of a wrapper have the labels of the items that they come from."""
    with suppress(Exception):  # of the code of others, which need not have items
        indices = _attribute(outer, "indices")
        count = len(outer)
        if indices is None and len(inner) != count:
            return False
        places = range(0, count, max(1, count // COMPARED))
        return all(bool(outer[place][1] == inner[place if indices is None else indices[place]][1]) for place in places)
    return False


def _attribute(data: Any, name: str) -> Any:
    """An attribute of an object of others; None if it has none, or its code fails."""
    try:
        return getattr(data, name, None)
    except BaseException as error:
        if not is_foreign(error):
            raise
        return None
