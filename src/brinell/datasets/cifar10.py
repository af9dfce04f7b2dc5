"""`cifar10:DIR`: CIFAR-10 from the original files, the python batches or the binary version.

Source and format: https://www.cs.toronto.edu/~kriz/cifar.html. The python batches are pickles; they are read opcode by opcode
and never unpickled. Pixels stay on disk (those of the python batches in a temporary file) and are mapped.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from brinell.core import bounded
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets._arrays import Array, StoredArrays
from brinell.datasets._axes import Arrangement
from brinell.datasets._files import existing_path, map_array, missing_originals_error, read_error
from brinell.datasets._labels import check_labels, class_names
from brinell.datasets._opcodes import read_values

__all__ = ["Cifar10"]

PARTS = {"test": ("test_batch",), "train": tuple(f"data_batch_{number}" for number in range(1, 6))}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""Class names for a folder without the file of names."""
PIXELS = 3 * 32 * 32
MOST_NAMES = 1 << 20
"""Maximum size of the file of class names in bytes."""


@dataclass(frozen=True, kw_only=True)
class Cifar10:
    """CIFAR-10 from its original files."""

    path: str = ""
    """Folder with test_batch and data_batch_1 to 5 (python version), or the same as .bin (binary version)."""
    split: Literal["test", "train"] = "test"
    """Part of the data."""

    def __call__(self) -> Dataset:
        """Open the files.

        Raises:
            RequestError: a file that is missing, damaged, cut short or asks for more than arrays.
        """
        folder = existing_path(self.path, "folder", "cifar10:DIR")
        places = (folder, folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin")
        for place in places:
            files = [place / part for part in PARTS[self.split]]
            if files[0].is_file():
                return self._dataset(*_python(files), _names(place))
            files = [file.with_suffix(".bin") for file in files]
            if files[0].is_file():
                return self._dataset(*_binary(files), _names(place))
        raise missing_originals_error(folder, PARTS[self.split][0], ".bin")

    def _dataset(self, x: Array, y: Array, names: Sequence[object]) -> Dataset:
        """The data set of these arrays."""
        labels = check_labels(y, len(x), f"the list of labels of cifar10:{self.path}")
        return StoredArrays(
            name=f"cifar10-{self.split}",
            x=x,
            y=labels,
            arrangement=Arrangement(kind="image", shape=(3, 32, 32), axes=(0, 1)),
            domain=Domain(kind="image", shape=(3, 32, 32), levels=256),
            classes=class_names(names, labels, f"the file of class names of cifar10:{self.path}"),
            divisor=255.0,
            info=DataInfo(published=True),
        )


def _binary(files: Sequence[Path]) -> tuple[Array, Array]:
    """Records of one byte of label and 3,072 of pixels; several files are joined in a temporary one."""
    with tempfile.TemporaryFile() as joined:
        for path in files:
            with _open(path) as file:
                records = _records(file, path)
            if len(files) > 1:
                _append(joined, records, path)
        records = records if len(files) == 1 else _records(joined, files[0].parent)
    return records[:, 1:], np.array(records[:, 0])


def _records(file: IO[bytes], path: Path) -> Array:
    """Records of the binary format, mapped into memory."""
    size = file.seek(0, 2)
    if size == 0 or size % (1 + PIXELS):
        raise RequestError(f"{path} has {size} bytes, which is no whole number of records of {1 + PIXELS}: fetch it again")
    return map_array(file, np.dtype(np.uint8), (size // (1 + PIXELS), 1 + PIXELS), 0, path)


def _python(files: Sequence[Path]) -> tuple[Array, Array]:
    """The pixels of the batches one after another in a temporary file, and all labels."""
    labels: list[int] = []
    with tempfile.TemporaryFile() as pixels:
        for path in files:
            data, batch_labels = _batch(path)
            labels += batch_labels
            _append(pixels, data, path)
        x = map_array(pixels, np.dtype(np.uint8), (len(labels), PIXELS), 0, files[0].parent)
    try:
        return x, np.array([label.__index__() for label in labels])
    except AttributeError:
        raise RequestError(f"{files[0]} is no CIFAR-10 batch: its labels are no whole numbers; fetch it again") from None


def _batch(path: Path) -> tuple[Array, list[Any]]:
    """Pixels and labels of a batch in the Python format."""
    with _open(path) as file:
        batch = read_values(file, path)
    if not isinstance(batch, dict) or "data" not in batch or "labels" not in batch:
        raise RequestError(f"{path} is no CIFAR-10 batch: it has no data and labels; fetch it again")
    data, labels = batch["data"], batch["labels"]
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (PIXELS,):
        raise RequestError(f"{path} is no CIFAR-10 batch: its data is no array of bytes with {PIXELS} columns; fetch it again")
    if not isinstance(labels, list | np.ndarray) or len(labels) != len(data):
        raise RequestError(f"{path} has no list of {len(data)} labels, one for each image: fetch it again")
    return data, list(labels)


def _append(file: IO[bytes], data: Array, path: Path) -> None:
    try:
        file.write(np.ascontiguousarray(data).data)
        file.flush()
    except OSError as error:
        raise read_error(path, error) from None


def _open(path: Path) -> IO[bytes]:
    """Open a batch file."""
    try:
        return bounded.open_regular(path)
    except FileNotFoundError:
        raise RequestError(f"there is no file {path}: the folder must hold every batch of the split") from None
    except OSError as error:
        raise read_error(path, error) from None


def _names(folder: Path) -> Sequence[object]:
    """Class names of the folder; empty without a file."""
    text, pickled = folder / "batches.meta.txt", folder / "batches.meta"
    if text.is_file():
        return [line.strip() for line in bounded.read(text, MOST_NAMES).decode("utf-8", "replace").splitlines() if line.strip()]
    if not pickled.is_file():
        return CLASSES
    with _open(pickled) as file:
        meta = read_values(file, pickled)
    if not isinstance(meta, dict) or not isinstance(names := meta.get("label_names"), list):
        raise RequestError(f"{pickled} has no list label_names: fetch it again")
    return names
