"""Masks of pictures: checks of their classes, and the names of these, for data from folders and
from memory.
"""

from collections.abc import Sequence

import numpy as np

from brinell.core.data import Truth
from brinell.core.errors import RequestError
from brinell.core.record import Array

IGNORED = 255
"""The value of a pixel without a class."""
MOST = IGNORED
"""Largest number of classes, whose numbers are bytes other than `IGNORED`."""


def check_masks(
    masks: Sequence[Array], names: Sequence[str] | None, subject: str
) -> tuple[str, ...]:
    """The names of the classes, after a check that masks hold classes or `IGNORED` alone.

    Without names they are the numbers up to the largest class.
    """
    largest = -1
    present: set[int] = set()
    for number, mask in enumerate(masks):
        classes = _classes_in(mask, number, subject)
        largest = max(largest, *classes, -1)
        present |= classes
        # The first mask that shows the mistake is named, before all were read.
        if names is not None and largest >= len(names):
            raise RequestError(
                f"mask {number} of {subject} holds the class {largest}, and names "
                f"are given for 0 to {len(names) - 1}: name "
                f"every class, or write {IGNORED} where a pixel counts for none"
            )

    if largest < 0:
        raise RequestError(
            f"no mask of {subject} has a pixel of any class: there is nothing to audit"
        )
    # Two values of which one is «ignored» are most often object and background.
    if largest == 0 and any((mask == IGNORED).any() for mask in masks):
        raise RequestError(
            f"the masks of {subject} hold 0 and {IGNORED} alone, and {IGNORED} "
            "marks pixels that no figure counts: write 1 in "
            f"place of {IGNORED} if it is a class"
        )
    if len(present) == 1:
        raise RequestError(
            f"all masks of {subject} hold the class {present.pop()} alone, so "
            "that nothing shows whether a model tells classes "
            "apart: give masks of several classes"
        )

    if names is None:
        return tuple(map(str, range(largest + 1)))
    # The tables of a report name classes, so two of one name could not be told apart.
    if len(names) > MOST or len(set(names)) < len(names):
        raise RequestError(
            f"{subject} has {len(names)} names of classes, of which "
            f"{len(set(names))} differ: name each class once"
        )
    return tuple(map(str, names))


def _classes_in(mask: Array, number: int, subject: str) -> set[int]:
    """The classes that occur in a mask."""
    if mask.dtype.kind not in "biu":
        raise RequestError(
            f"mask {number} of {subject} has type {mask.dtype}: a mask holds "
            "the class of each pixel as a number"
        )
    values = np.unique(mask)
    # 255 marks pixels that count for none, as in Pascal VOC.
    classes = values[values != IGNORED]
    if len(classes) and (classes[0] < 0 or classes[-1] > IGNORED):
        raise RequestError(
            f"mask {number} of {subject} holds {classes[0]} to {classes[-1]}: "
            "classes are 0 to 254, 255 for none"
        )
    return set(classes.tolist())


def mask_truth(masks: Array) -> Truth:
    """The truth of pictures with these masks (n, h, w) uint8."""
    return Truth(
        task="segmentation", load=lambda indices: masks[np.asarray(indices, dtype=np.int64)]
    )
