"""`boxes:FOLDER?side=352`: pictures with the boxes of their objects, for detection.

The folder holds images/ and the annotations: boxes.json with `classes` and for each picture `file`,
`boxes` (x0, y0, x1, y1 in its pixels), `labels` and `crowd`; or COCO's JSON (`images`,
`annotations`, `categories`); or annotations/*.xml of VOC, one file for each picture. A crowd, and
what VOC marks as difficult, is nothing to find, and nothing found there is wrong. Pictures are
stretched to `side` x `side` pixels by bicubic interpolation, and the boxes with them; every other
resizing belongs into the model. Pictures without objects stay: false boxes count in them, and
shares of objects leave them out.
"""

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from brinell.core.bounded import MOST_SIDE
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.settings import Checked, Range
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import StoredArrays
from brinell.datasets._boxes import check_objects, object_truth, read_annotations, scale
from brinell.datasets._listing import PictureFiles, digest_of, one_size, picture_path, sizes_of


@dataclass(frozen=True, kw_only=True)
class Boxes(Checked):
    """Pictures in images/ with the boxes of their objects."""

    path: str = ""
    """The folder."""
    side: Annotated[int, Range(f"[0, {MOST_SIDE}]")] = 0
    """Height and width in pixels to which pictures and boxes are stretched; 0 keeps them, which
    must have one size."""

    holds_truth: ClassVar[bool] = True

    def __call__(self) -> Dataset:
        """Read the annotations, and the size of each picture."""
        folder = existing_path(self.path, "folder", "boxes:FOLDER")
        if not (folder / "images").is_dir():
            raise RequestError(
                f"{folder} has no folder images/: put the pictures there, and boxes.json beside it"
            )
        pictures, classes = read_annotations(folder)
        if not pictures or not classes:
            raise RequestError(
                f"{folder} lists {len(pictures)} pictures and {len(classes)} "
                "classes: list at least one of each"
            )

        files = [
            picture_path(folder, annotation.file, f"the annotations of {folder}")
            for annotation in pictures
        ]
        sizes, notes = sizes_of(files)
        objects = [
            check_objects(annotation.objects, size, len(classes), f"{annotation.file} in {folder}")
            for annotation, size in zip(pictures, sizes, strict=True)
        ]

        height, width = (
            (self.side, self.side)
            if self.side
            else one_size(files, sizes, "side=352, as the model was trained")
        )
        # The boxes go with the pictures, which are stretched when they are read.
        objects = [
            scale(entry, size, (height, width)) for entry, size in zip(objects, sizes, strict=True)
        ]

        domain = Domain(kind="image", shape=(3, height, width), levels=256)
        return StoredArrays(
            name=folder.resolve().name,
            x=PictureFiles(files, domain.shape, "stretch"),
            y=np.zeros(len(files), dtype=np.int64),
            domain=domain,
            classes=classes,
            divisor=255.0,
            info=DataInfo(
                names=tuple(entry.file for entry in pictures),
                truth=object_truth(objects, str(folder)),
                notes=notes,
            ),
            digest=lambda: digest_of(
                json.dumps([domain.text(), "boxes", list(classes)]),
                (array for entry in objects for array in (entry.boxes, entry.labels, entry.crowd)),
                files,
            ),
        )
