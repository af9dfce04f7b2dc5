"""Pictures of one size from files, for data with masks or boxes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from brinell.datasets._arrays import Array, Rows
from brinell.datasets._listing import open_picture


class Pictures(Rows):
    """(n, 3, h, w) uint8: pictures, decoded one at a time."""

    def __init__(self, files: Sequence[Path], size: tuple[int, int]) -> None:
        super().__init__(len(files), (3, *size), np.dtype(np.uint8))
        self._files = files

    def row(self, index: int) -> Array:
        """(3, h, w): one picture."""
        _, height, width = self.shape[1:]
        with open_picture(self._files[index]) as original:
            image = original.convert("RGB")
            if image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BICUBIC)
            return np.asarray(image, dtype=np.uint8).transpose(2, 0, 1)
