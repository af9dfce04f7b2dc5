"""`image-folder:DIR`: a folder of pictures, decoded on demand.

The folder holds either one subfolder per class (sorted names are the labels), or a labels.csv with the column file and one of
label, imagenet_index, class_index, index. The listed pictures lie in the folder or in images/. A file *classes.json, a list of
names or of {"index", "name"}, gives the full list of classes; subfolders are then looked up in it by name or wnid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from brinell.core.bounded import MOST_SIDE
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.settings import at_least, at_most
from brinell.datasets._arrays import Array, Rows, StoredArrays
from brinell.datasets._files import existing_path
from brinell.datasets._listing import crop_centre, listing_of, open_picture

__all__ = ["ImageFolder"]

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"))
Mode = Literal["RGB", "L"]


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """Pictures in folders, or listed in labels.csv."""

    path: str = ""
    """The folder."""
    size: int = 0
    """Resize the shorter side to this many pixels and crop the centre; 0 keeps the pictures unchanged, which must have one
    size.
    """
    mode: Mode = "RGB"
    """RGB, or L for grey."""

    def __post_init__(self) -> None:
        at_least(self, size=0)
        at_most(self, size=MOST_SIDE)

    def __call__(self) -> Dataset:
        """List the folder and read the size of each picture.

        Raises:
            RequestError: no pictures, a bad labels.csv or classes.json, pictures of several sizes without `size`.
        """
        folder = existing_path(self.path, "folder", "image-folder:DIR")
        listing = listing_of(folder, SUFFIXES, "pictures", "images")
        height, width = (self.size, self.size) if self.size else _one_size(listing.files)
        domain = Domain(kind="image", shape=(len(self.mode), height, width), levels=256)
        settings = f"{domain.text()} {self.mode} {bool(self.size)}"
        return StoredArrays(
            name=folder.resolve().name,
            x=_Pictures(listing.files, domain.shape, self),
            y=listing.labels,
            domain=domain,
            classes=listing.classes,
            divisor=255.0,
            info=DataInfo(names=tuple(_name(file, folder) for file in listing.files)),
            digest=lambda: listing.digest(settings),
        )


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name


class _Pictures(Rows):
    """(n, C, H, W) uint8: the pictures of a listing, decoded one at a time."""

    def __init__(self, files: Sequence[Path], shape: tuple[int, ...], settings: ImageFolder) -> None:
        super().__init__(len(files), shape, np.dtype(np.uint8))
        self._files, self._settings = files, settings

    def row(self, index: int) -> Array:
        """(C, H, W): the pixels of one picture."""
        file, (_, height, width) = self._files[index], self.shape[1:]
        with open_picture(file) as original:
            if original.mode.startswith(("I", "F")):
                raise ValueError(f"{original.mode} pixels, more than 8 bits; convert it")
            image = original.convert(self._settings.mode)
            if self._settings.size:
                image = crop_centre(image, height)
            pixels = np.array(image, dtype=np.uint8)
        if pixels.shape[:2] != (height, width):
            raise RequestError(
                f"{file} is {pixels.shape[1]} x {pixels.shape[0]} now, not {width} x {height}: leave the folder alone"
            )
        return pixels.reshape(height, width, -1).transpose(2, 0, 1)


def _one_size(files: Sequence[Path]) -> tuple[int, int]:
    """Width and height that all pictures share."""
    first = _size(files[0])
    for file in files[1:]:
        if (size := _size(file)) != first:
            raise RequestError(
                f"{files[0]} is {first[0]} x {first[1]} and {file} is {size[0]} x {size[1]}: "
                "bring them to one size with the option size=224 (shorter side, then centre crop)"
            )
    return first[1], first[0]


def _size(file: Path) -> tuple[int, int]:
    """Width and height of a picture."""
    with open_picture(file) as image:
        return image.size
