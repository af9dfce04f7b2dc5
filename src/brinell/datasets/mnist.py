"""`mnist:DIR`: MNIST, or a data set in its form (Fashion-MNIST, ...), from the original idx files,
packed by gzip or not.

Format: http://yann.lecun.com/exdb/mnist, "the IDX file format".
"""

import gzip
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from brinell.core import bounded
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Array, StoredArrays, arrange
from brinell.datasets._files import array_of, read_error
from brinell.datasets._labels import check_labels

FOLDERS = (".", "raw", "MNIST/raw")
"""Folders of the files: the folder itself, or torchvision's subfolders."""
PREFIX = {"train": "train", "test": "t10k"}
BYTES = 0x08
"""The idx code of unsigned bytes, the only type that MNIST uses."""


@dataclass(frozen=True, kw_only=True)
class Mnist:
    """MNIST from its original files."""

    path: str = ""
    """Folder with train-images-idx3-ubyte, t10k-images-idx3-ubyte and so on, as they are or as
    .gz."""
    split: Literal["test", "train"] = "test"
    """Part of the data."""

    def __call__(self) -> Dataset:
        """Open the files."""
        folder = existing_path(self.path, "folder", "mnist:DIR")
        images = _find(folder, f"{PREFIX[self.split]}-images", "idx3-ubyte")
        labels = _find(folder, f"{PREFIX[self.split]}-labels", "idx1-ubyte")
        x = _idx(images, 3)
        y = check_labels(_idx(labels, 1), len(x), str(labels))
        if y.max() > 9:
            raise RequestError(
                f"{labels} holds the label {y.max()}, but MNIST has the classes 0 "
                "to 9: fetch it again"
            )

        # Without an axis of channels: there is one.
        arrangement = arrange(x.shape, kind="image", layout="first")
        return StoredArrays(
            name=f"mnist-{self.split}",
            x=x,
            y=y,
            arrangement=arrangement,
            domain=Domain(kind="image", shape=arrangement.shape, levels=256),
            classes=tuple("0123456789"),
            divisor=255.0,
            info=DataInfo(published=True),
        )


def _find(folder: Path, stem: str, kind: str) -> Path:
    """The file of this name, as it is or as .gz, in the folder or in torchvision's."""
    for place in FOLDERS:
        for name in (f"{stem}-{kind}", f"{stem}.{kind}"):
            for suffix in ("", ".gz"):
                if (file := folder / place / (name + suffix)).is_file():
                    return file
    raise RequestError(
        f"{folder} has no {stem}-{kind} (or .gz): name the folder of the original files"
    )


def _idx(file: Path, axes: int) -> Array:
    """The bytes of an idx file with so many axes."""
    most = max(bounded.IN_MEMORY, bounded.RATIO * file.stat().st_size)
    try:
        with gzip.open(file) if file.suffix == ".gz" else bounded.open_regular(file) as stream:
            content = stream.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise read_error(file, error) from None
    bounded.check_unpacked_size(len(content), file.stat().st_size, file)

    # Two zeros, the type, the number of axes, then the length of each axis.
    head = content[: 4 + 4 * axes]
    if len(head) < 4 + 4 * axes or head[:4] != bytes((0, 0, BYTES, axes)):
        raise RequestError(
            f"{file} is no idx file of bytes with {axes} axes (it starts with "
            f"{head[:4].hex()}): fetch it again"
        )
    return array_of(
        content, np.dtype(np.uint8), struct.unpack(f">{axes}I", head[4:]), len(head), file
    )
