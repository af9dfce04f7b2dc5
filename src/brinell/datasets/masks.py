"""`masks:FOLDER?side=257&split=val2017`: pictures with the class of each pixel, for segmentation.

The folder holds images/ with the pictures, and masks.npz, or masks/ with a PNG of the same name for each picture, whose
pixel values are the classes. masks.npz holds `masks` (n, h, w), and may hold `files` (names of the pictures), `split` (a text for
each picture) and `classes`; without `files` the sorted pictures count. 255 marks pixels that no figure counts. Pictures are made
`side` pixels high and wide by bicubic interpolation, masks by the nearest pixel.
"""

import hashlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from brinell.core import bounded
from brinell.core.bounded import MOST_SIDE
from brinell.core.data import DataInfo, Dataset, Truth
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.settings import at_least, at_most
from brinell.datasets._arrays import Array, StoredArrays, little_endian_bytes
from brinell.datasets._files import existing_path, npz_array, read_error
from brinell.datasets._listing import open_picture
from brinell.datasets._masks import check_masks, names_of_classes, take_masks
from brinell.datasets._pictures import Pictures

__all__ = ["Masks"]

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm"))


@dataclass(frozen=True, kw_only=True)
class Masks:
    """Pictures in images/ with their masks."""

    path: str = ""
    """The folder."""
    side: int = 0
    """Height and width in pixels to which pictures and masks are brought; 0 keeps them, which must have one size."""
    split: str = ""
    """Use the pictures of this split alone, by the array `split` of masks.npz; by default all."""

    def __post_init__(self) -> None:
        at_least(self, side=0)
        at_most(self, side=MOST_SIDE)

    def __call__(self) -> Dataset:
        """Read the masks, and the size of each picture.

        Raises:
            RequestError: a file is missing or damaged, a mask has another size than its picture or an unknown class, or the split
                does not exist.
        """
        folder = existing_path(self.path, "folder", "masks:FOLDER")
        if not (folder / "images").is_dir():
            raise RequestError(f"{folder} has no folder images/: put the pictures there, and masks.npz or masks/ beside it")
        if (folder / "masks.npz").is_file():
            files, masks, classes = self._archive(folder)
        else:
            files, masks, classes = self._pictures(folder)
        for file, mask in zip(files, masks, strict=True):
            with open_picture(file) as image:
                if image.size != (mask.shape[1], mask.shape[0]):
                    raise RequestError(
                        f"{file} is {image.size[0]} x {image.size[1]} pixels and its mask {mask.shape[1]} x {mask.shape[0]}: "
                        "give each picture a mask of its own size"
                    )
        names = check_masks(masks, classes, str(folder))
        stored = np.stack([self._resized(mask) for mask in masks]) if self.side else self._stacked(files, masks)
        height, width = stored.shape[1:]
        domain = Domain(kind="image", shape=(3, height, width), levels=256)
        return StoredArrays(
            name=folder.resolve().name,
            x=Pictures(files, (height, width)),
            y=np.zeros(len(files), dtype=np.int64),
            domain=domain,
            classes=names,
            divisor=255.0,
            info=DataInfo(
                names=tuple(file.name for file in files),
                truth=Truth(task="segmentation", load=partial(take_masks, stored)),
            ),
            digest=lambda: _digest(files, stored, domain.text()),
        )

    def _archive(self, folder: Path) -> tuple[list[Path], list[Array], list[str] | None]:
        """Pictures, masks and names of classes of masks.npz."""
        file = folder / "masks.npz"
        try:
            with zipfile.ZipFile(file) as archive:
                arrays = {
                    name: np.asarray(npz_array(archive, name, file))
                    for name in ("masks", "files", "split", "classes")
                    if f"{name}.npy" in archive.namelist()
                }
        except (OSError, zipfile.BadZipFile) as error:
            raise read_error(file, error) from None
        if "masks" not in arrays or arrays["masks"].ndim != 3:
            raise RequestError(f"{file} has no array masks of shape (pictures, height, width): save one")
        masks = arrays["masks"]
        names = (
            arrays["files"].astype(str).tolist()
            if "files" in arrays
            else [path.name for path in _list_pictures(folder / "images")]
        )
        if len(names) != len(masks):
            raise RequestError(f"{file} has {len(masks)} masks, and there are {len(names)} pictures: give each picture one mask")
        index = np.arange(len(masks))
        if self.split:
            splits = arrays.get("split", np.empty(0, dtype=str)).astype(str)
            index = np.flatnonzero(splits == self.split)
            if not len(index):
                names_of_splits = ", ".join(sorted(set(splits.tolist()))) or "none"
                raise RequestError(
                    f"{file} has no split {self.split!r}; it has {names_of_splits}: name one of them, or leave split out"
                )
        files = [_picture_path(folder, names[place], file) for place in index.tolist()]
        return files, [masks[place] for place in index.tolist()], arrays["classes"].tolist() if "classes" in arrays else None

    def _pictures(self, folder: Path) -> tuple[list[Path], list[Array], list[str] | None]:
        """Pictures and masks of images/ and masks/, and the names in classes.json."""
        if self.split:
            raise RequestError("split= is for masks.npz with an array split: leave it out, or name the folder of that split")
        files, masks = _list_pictures(folder / "images"), []
        for file in files:
            mask_file = folder / "masks" / f"{file.stem}.png"
            if not mask_file.is_file():
                raise RequestError(f"there is no mask {mask_file}: save one for {file.name}, or masks.npz in {folder}")
            with open_picture(mask_file) as image:
                if image.mode not in ("L", "P", "1"):
                    raise RequestError(
                        f"{mask_file} has {image.mode} pixels: save the class of each pixel as a grey value of 8 bits"
                    )
                masks.append(np.array(image, dtype=np.uint8))
        return files, masks, names_of_classes(folder / "classes.json")

    def _resized(self, mask: Array) -> Array:
        """(side, side) uint8: a mask by its nearest pixels."""
        image = Image.fromarray(mask.astype(np.uint8))
        return np.asarray(image.resize((self.side, self.side), Image.Resampling.NEAREST))

    def _stacked(self, files: Sequence[Path], masks: Sequence[Array]) -> Array:
        """(n, h, w) uint8: masks of one size."""
        for file, mask in zip(files, masks, strict=True):
            if mask.shape != masks[0].shape:
                raise RequestError(
                    f"{files[0]} is {masks[0].shape[1]} x {masks[0].shape[0]} and {file} is {mask.shape[1]} x {mask.shape[0]}: "
                    "bring them to one size with the option side=257"
                )
        return np.stack([mask.astype(np.uint8) for mask in masks])


def _list_pictures(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not files:
        raise RequestError(f"{folder} holds no pictures: put them there")
    return files


def _picture_path(folder: Path, name: str, table: Path) -> Path:
    bounded.path_inside(folder, f"images/{name}", table, links=True)
    path = folder / "images" / name
    if not path.is_file():
        raise RequestError(f"{table} lists {name!r}, which is not in {folder}/images: fetch it")
    return path


def _digest(files: Sequence[Path], masks: Array, settings: str) -> str:
    """Hash of the pictures' bytes, the masks and the size to which they are brought."""
    hash = hashlib.blake2b(json.dumps([settings, "masks"]).encode(), digest_size=16)
    hash.update(little_endian_bytes(masks))
    for file in files:
        try:
            with bounded.open_regular(file) as content:
                hash.update(hashlib.file_digest(content, "blake2b").digest())
        except OSError as error:
            raise read_error(file, error) from None
    return hash.hexdigest()
