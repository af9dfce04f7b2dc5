"""`masks:FOLDER?side=257&split=val2017`: pictures with the class of each pixel, for segmentation.

The folder holds images/ with the pictures, and masks.npz, or masks/ with a PNG of the same name for
each picture, whose pixel values are the classes. masks.npz holds `masks` (n, h, w), and may hold
`files` (names of the pictures), `split` (a text for each picture) and `classes`; without `files`
the sorted pictures count. 255 marks pixels that no figure counts. Pictures are made `side` pixels
high and wide by bicubic interpolation, masks by the nearest pixel.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from PIL import Image

from brinell.core.bounded import MOST_SIDE
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.settings import Checked, Range
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Array, StoredArrays
from brinell.datasets._files import npz_array, read_error
from brinell.datasets._listing import (
    PictureFiles,
    classes_of,
    digest_of,
    one_size,
    open_picture,
    picture_path,
    sizes_of,
)
from brinell.datasets._masks import check_masks, mask_truth

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm"))


@dataclass(frozen=True, kw_only=True)
class Masks(Checked):
    """Pictures in images/ with their masks."""

    path: str = ""
    """The folder."""
    side: Annotated[int, Range(f"[0, {MOST_SIDE}]")] = 0
    """Height and width in pixels to which pictures and masks are brought; 0 keeps them, which
    must have one size."""
    split: str = ""
    """Use the pictures of this split alone, by the array `split` of masks.npz; by default all."""

    holds_truth: ClassVar[bool] = True

    def __call__(self) -> Dataset:
        """Read the masks, and the size of each picture."""
        folder = existing_path(self.path, "folder", "masks:FOLDER")
        if not (folder / "images").is_dir():
            raise RequestError(
                f"{folder} has no folder images/: put the pictures there, and "
                "masks.npz or masks/ beside it"
            )
        if (folder / "masks.npz").is_file():
            files, masks, classes = self._archive(folder)
        else:
            files, masks, classes = self._pictures(folder)

        sizes, notes = sizes_of(files)
        for file, size, mask in zip(files, sizes, masks, strict=True):
            if size != mask.shape:
                raise RequestError(
                    f"{file} is {size[1]} x {size[0]} pixels and its mask "
                    f"{mask.shape[1]} x {mask.shape[0]}: give each picture a "
                    "mask of its own size"
                )
        names = check_masks(masks, classes, str(folder))
        # Without a size to resize to, all pictures must have one: a batch has one shape.
        if not self.side:
            one_size(files, [mask.shape for mask in masks], "side=257")

        stored = np.stack([self._resized(mask) for mask in masks])
        domain = Domain(kind="image", shape=(3, *stored.shape[1:]), levels=256)
        return StoredArrays(
            name=folder.resolve().name,
            x=PictureFiles(files, domain.shape, "stretch"),
            y=np.zeros(len(files), dtype=np.int64),
            domain=domain,
            classes=names,
            divisor=255.0,
            info=DataInfo(
                names=tuple(file.name for file in files),
                truth=mask_truth(stored),
                notes=notes,
            ),
            # Pictures are read when they are needed, so the digest goes by their files.
            digest=lambda: digest_of(f"{domain.text()} masks", [stored], files),
        )

    def _archive(self, folder: Path) -> tuple[list[Path], list[Array], list[str] | None]:
        """The pictures of a masks.npz, their masks, and the names of the classes if it has any."""
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
            raise RequestError(
                f"{file} has no array masks of shape (pictures, height, width): save one"
            )

        masks = arrays["masks"]
        # Without names the pictures are taken in the order of their names.
        names = (
            arrays["files"].astype(str).tolist()
            if "files" in arrays
            else [path.name for path in _list_pictures(folder / "images")]
        )
        if len(names) != len(masks):
            raise RequestError(
                f"{file} has {len(masks)} masks, and there are {len(names)} "
                "pictures: give each picture one mask"
            )
        index = np.arange(len(masks))
        if self.split:
            splits = arrays.get("split", np.empty(0, dtype=str)).astype(str)
            index = np.flatnonzero(splits == self.split)
            if not len(index):
                names_of_splits = ", ".join(sorted(set(splits.tolist()))) or "none"
                raise RequestError(
                    f"{file} has no split {self.split!r}; it has "
                    f"{names_of_splits}: name one of them, or leave split out"
                )
        files = [picture_path(folder, names[place], file) for place in index.tolist()]
        return (
            files,
            [masks[place] for place in index.tolist()],
            arrays["classes"].tolist() if "classes" in arrays else None,
        )

    def _pictures(self, folder: Path) -> tuple[list[Path], list[Array], list[str] | None]:
        """The pictures of a folder, the masks of masks/, and the names of the classes if known."""
        if self.split:
            raise RequestError(
                "split= is for masks.npz with an array split: leave it out, or "
                "name the folder of that split"
            )

        files, masks = _list_pictures(folder / "images"), []
        for file in files:
            mask_file = folder / "masks" / f"{file.stem}.png"
            if not mask_file.is_file():
                raise RequestError(
                    f"there is no mask {mask_file}: save one for {file.name}, or "
                    f"masks.npz in {folder}"
                )
            # A mask in colours would be read as grey values, which are no classes.
            with open_picture(mask_file) as image:
                if image.mode not in ("L", "P", "1"):
                    raise RequestError(
                        f"{mask_file} has {image.mode} pixels: save the class of "
                        "each pixel as a grey value of 8 bits"
                    )
                masks.append(np.array(image, dtype=np.uint8))

        classes = classes_of(folder)
        return files, masks, None if classes is None else list(classes.names)

    def _resized(self, mask: Array) -> Array:
        """(side, side) uint8: a mask by its nearest pixels; as it is without a side."""
        if not self.side:
            return mask.astype(np.uint8)
        image = Image.fromarray(mask.astype(np.uint8))
        return np.asarray(image.resize((self.side, self.side), Image.Resampling.NEAREST))


def _list_pictures(folder: Path) -> list[Path]:
    """The pictures of a folder by their names; refuses a folder without any."""
    files = sorted(path for path in folder.glob("[!.]*") if path.suffix.lower() in SUFFIXES)
    if not files:
        raise RequestError(f"{folder} holds no pictures: put them there")
    return files
