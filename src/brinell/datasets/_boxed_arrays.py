"""Pictures in memory with the boxes of their objects: what `brinell.data(x, boxes=...)` gives."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from brinell.core.boxes import Objects
from brinell.core.data import Truth
from brinell.core.errors import RequestError
from brinell.core.values import as_array
from brinell.datasets._boxes import check_objects, check_set, make_objects, take_objects
from brinell.datasets._memory import ArrayDataset


class BoxedArrays(ArrayDataset):
    """Pictures with the objects of each; the other arguments are those of `ArrayDataset`.

    Args:
        x: (n, *shape) pictures.
        boxes: for each picture a dict of boxes (k, 4) as x0, y0, x1, y1 in its pixels, labels (k,) and optionally crowd (k,),
            or a pair of boxes and labels.
        classes: names of the classes; by default the numbers up to the largest label.

    Raises:
        RequestError: boxes of another number of pictures, outside of them or without an area, or labels that name no class.
    """

    def __init__(self, x: Any, boxes: Any, classes: Sequence[str] | None = None, **settings: Any) -> None:
        inputs = as_array(x, "inputs")
        if not isinstance(boxes, list | tuple) or len(boxes) != len(inputs):
            count = len(boxes) if hasattr(boxes, "__len__") else f"a {type(boxes).__name__}"
            raise RequestError(
                f"boxes hold {count} for {len(inputs)} pictures: give a list with boxes and labels for each picture"
            )
        objects = [_objects(entry, number) for number, entry in enumerate(boxes)]
        largest = max((int(entry.labels.max()) for entry in objects if len(entry)), default=0)
        names = tuple(map(str, range(largest + 1) if classes is None else classes))
        super().__init__(inputs, np.zeros(len(inputs), dtype=np.int64), names, **settings)
        if self.domain.kind != "image":
            raise RequestError(f"inputs are {self.domain.kind}s of shape {self.domain.shape}, and boxes are of pictures")
        height, width = self.domain.shape[1:]
        self._objects = [
            check_objects(entry, (height, width), len(names), f"picture {number}") for number, entry in enumerate(objects)
        ]
        check_set(self._objects, "boxes")
        self.info = replace(self.info, truth=Truth(task="detection", load=partial(take_objects, self._objects)))
        self._content = self._values_and_boxes

    def _values_and_boxes(self) -> str:
        """Hash of the pictures and their objects."""
        hash = hashlib.blake2b(self._values().encode(), digest_size=16)
        for entry in self._objects:
            hash.update(b"".join(np.ascontiguousarray(array).tobytes() for array in (entry.boxes, entry.labels, entry.crowd)))
        return hash.hexdigest()


def _objects(entry: Any, number: int) -> Objects:
    """The objects of one picture, from a dict or a pair."""
    subject = f"picture {number}"
    if isinstance(entry, Mapping) and "boxes" in entry and "labels" in entry:
        return make_objects(entry["boxes"], entry["labels"], entry.get("crowd"), subject)
    if isinstance(entry, tuple | list) and len(entry) == 2:
        return make_objects(entry[0], entry[1], None, subject)
    content = f"have {', '.join(map(str, entry)) or 'nothing'}" if isinstance(entry, Mapping) else f"are a {type(entry).__name__}"
    raise RequestError(f"the objects of {subject} {content}: give a dict with boxes and labels")
