"""Pictures in memory with their masks: what `brinell.data(x, masks=...)` gives."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from brinell.core.data import Truth
from brinell.core.errors import RequestError
from brinell.core.values import as_array
from brinell.datasets._arrays import little_endian_bytes
from brinell.datasets._masks import check_masks, take_masks
from brinell.datasets._memory import ArrayDataset


class MaskedArrays(ArrayDataset):
    """Pictures with a mask for each; the other arguments are those of `ArrayDataset`.

    Args:
        x: (n, *shape) pictures.
        masks: (n, h, w) whole numbers: the class of each pixel, or 255.
        classes: names of the classes; by default their numbers.

    Raises:
        RequestError: masks of another number or size than the pictures, or values other than classes.
    """

    def __init__(self, x: Any, masks: Any, classes: Sequence[str] | None = None, **settings: Any) -> None:
        inputs, masks = as_array(x, "inputs"), as_array(masks, "masks")
        if masks.ndim != 3 or len(masks) != len(inputs):
            raise RequestError(
                f"masks have shape {masks.shape} for {len(inputs)} pictures: give one mask (height, width) for each picture"
            )
        names = check_masks(list(masks), None if classes is None else list(classes), "masks")
        super().__init__(inputs, np.zeros(len(inputs), dtype=np.int64), names, **settings)
        if self.domain.kind != "image" or self.domain.shape[1:] != masks.shape[1:]:
            raise RequestError(
                f"masks have {masks.shape[2]} x {masks.shape[1]} pixels, and inputs are {self.domain.kind}s of shape "
                f"{self.domain.shape}: give each picture a mask of its own size"
            )
        stored = masks.astype(np.uint8)
        self._masks = stored
        self.info = replace(self.info, truth=Truth(task="segmentation", load=partial(take_masks, stored)))
        self._content = self._values_and_masks

    def _values_and_masks(self) -> str:
        """Hash of the pictures and their masks."""
        hash = hashlib.blake2b(self._values().encode(), digest_size=16)
        hash.update(little_endian_bytes(self._masks))
        return hash.hexdigest()
