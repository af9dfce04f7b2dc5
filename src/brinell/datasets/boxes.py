"""`boxes:FOLDER?side=352`: pictures with the boxes of their objects, for detection.

The folder holds images/ and the annotations: boxes.json with `classes` and for each picture `file`, `boxes` (x0,
y0, x1, y1 in its pixels), `labels` and `crowd`; or COCO's JSON (`images`, `annotations`, `categories`); or annotations/*.xml
of VOC, one file for each picture. A crowd, and what VOC marks as difficult, is nothing to find, and nothing found there is
wrong. Pictures are stretched to `side` x `side` pixels by bicubic interpolation, and the boxes with them; every other resizing
belongs into the model. Pictures without objects stay: false boxes count in them, and shares of objects leave them out.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from brinell.core import bounded
from brinell.core.bounded import MOST_SIDE
from brinell.core.boxes import Objects
from brinell.core.data import DataInfo, Dataset, Truth
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.settings import at_least, at_most
from brinell.datasets._arrays import StoredArrays
from brinell.datasets._boxes import Annotation, check_objects, check_set, read_annotations, scale, take_objects
from brinell.datasets._files import existing_path, read_error
from brinell.datasets._listing import open_picture
from brinell.datasets._pictures import Pictures

__all__ = ["Boxes"]


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """Pictures in images/ with the boxes of their objects."""

    path: str = ""
    """The folder."""
    side: int = 0
    """Height and width in pixels to which pictures and boxes are stretched; 0 keeps them, which must have one size."""

    def __post_init__(self) -> None:
        at_least(self, side=0)
        at_most(self, side=MOST_SIDE)

    def __call__(self) -> Dataset:
        """Read the annotations, and the size of each picture.

        Raises:
            RequestError: a file is missing or damaged, a box lies outside of its picture or has no area, a class does not
                exist, or the pictures have several sizes.
        """
        folder = existing_path(self.path, "folder", "boxes:FOLDER")
        if not (folder / "images").is_dir():
            raise RequestError(f"{folder} has no folder images/: put the pictures there, and boxes.json beside it")
        pictures, classes = read_annotations(folder)
        if not pictures or not classes:
            raise RequestError(f"{folder} lists {len(pictures)} pictures and {len(classes)} classes: list at least one of each")
        files = [_picture_path(folder, annotation) for annotation in pictures]
        sizes = [_size(file) for file in files]
        objects = [
            check_objects(annotation.objects, size, len(classes), f"{annotation.file} in {folder}")
            for annotation, size in zip(pictures, sizes, strict=True)
        ]
        check_set(objects, str(folder))
        height, width = (self.side, self.side) if self.side else _one_size(files, sizes)
        objects = [scale(entry, size, (height, width)) for entry, size in zip(objects, sizes, strict=True)]
        domain = Domain(kind="image", shape=(3, height, width), levels=256)
        return StoredArrays(
            name=folder.resolve().name,
            x=Pictures(files, (height, width)),
            y=np.zeros(len(files), dtype=np.int64),
            domain=domain,
            classes=classes,
            divisor=255.0,
            info=DataInfo(
                names=tuple(annotation.file for annotation in pictures),
                truth=Truth(task="detection", load=partial(take_objects, objects)),
            ),
            digest=lambda: digest(files, objects, classes, domain.text()),
        )


def _picture_path(folder: Path, annotation: Annotation) -> Path:
    name = annotation.file
    bounded.path_inside(folder, f"images/{name}", folder, links=True)
    path = folder / "images" / name
    if not path.is_file():
        raise RequestError(f"the annotations of {folder} list {name!r}, which is not in images/: fetch it, or drop its entry")
    return path


def _size(file: Path) -> tuple[int, int]:
    """Height and width of a picture."""
    with open_picture(file) as image:
        return image.size[1], image.size[0]


def _one_size(files: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The height and width of all pictures."""
    for file, size in zip(files, sizes, strict=True):
        if size != sizes[0]:
            raise RequestError(
                f"{files[0]} is {sizes[0][1]} x {sizes[0][0]} and {file} is {size[1]} x {size[0]}: bring them to one size "
                f"with the "
                "option side=352, as the model was trained"
            )
    return sizes[0]


def digest(files: Sequence[Path], objects: Sequence[Objects], classes: Sequence[str], settings: str) -> str:
    """Hash of the pictures' bytes, the boxes, the names of the classes and the size to which they are brought."""
    hash = hashlib.blake2b(json.dumps([settings, "boxes", list(classes)]).encode(), digest_size=16)
    for file, entry in zip(files, objects, strict=True):
        hash.update(b"".join(np.ascontiguousarray(array).tobytes() for array in (entry.boxes, entry.labels, entry.crowd)))
        try:
            with bounded.open_regular(file) as content:
                hash.update(hashlib.file_digest(content, "blake2b").digest())
        except OSError as error:
            raise read_error(file, error) from None
    return hash.hexdigest()
