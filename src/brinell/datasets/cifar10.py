"""`cifar10:DIR`: CIFAR-10 from the original files, the python batches or the binary version.

Source and format: https://www.cs.toronto.edu/~kriz/cifar.html. The python batches are pickles, of which only the published ones
are read.
"""

import hashlib
import io
import pickle  # noqa: TID251  the published files alone, by their digests
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brinell.core import bounded
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Arrangement, Array, StoredArrays
from brinell.datasets._files import missing_originals_error
from brinell.datasets._labels import check_labels, class_names

PARTS = {"test": ("test_batch",), "train": tuple(f"data_batch_{number}" for number in range(1, 6))}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""Class names for a folder without the file of names."""
PIXELS = 3 * 32 * 32
PUBLISHED = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}
"""MD5 of the published pickles."""
MOST_BATCH = 1 << 25
"""Maximum size of a batch in bytes."""
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
        """Open the files."""
        folder = existing_path(self.path, "folder", "cifar10:DIR")
        places = (folder, folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin")
        for place in places:
            for suffix, read in (("", _python), (".bin", _binary)):
                files = [place / f"{part}{suffix}" for part in PARTS[self.split]]
                if missing := [file for file in files if not file.is_file()]:
                    if missing != files:
                        raise RequestError(f"there is no file {missing[0]}: the folder must hold every batch of the split")
                    continue
                return self._dataset(*read(files), _names(place))
        raise missing_originals_error(folder, PARTS[self.split][0], ".bin")

    def _dataset(self, x: Array, y: Array, names: Sequence[object]) -> Dataset:
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
    """Records of one byte of label and 3,072 of pixels."""
    contents = [bounded.read(path, MOST_BATCH) for path in files]
    for path, size in zip(files, map(len, contents), strict=True):
        if not size or size % (1 + PIXELS):
            raise RequestError(f"{path} has {size} bytes, which is no whole number of records of {1 + PIXELS}: fetch it again")
    records = np.frombuffer(b"".join(contents), np.uint8).reshape(-1, 1 + PIXELS)
    return records[:, 1:], records[:, 0]


def _python(files: Sequence[Path]) -> tuple[Array, Array]:
    """The pixels and labels of the batches one after another."""
    batches = [_unpickle(path) for path in files]
    return np.concatenate([batch["data"] for batch in batches]), np.concatenate([batch["labels"] for batch in batches])


class _Unpickler(pickle.Unpickler):
    """Makes numpy's arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {"_reconstruct": np._core.multiarray._reconstruct, "ndarray": np.ndarray, "dtype": np.dtype}  # type: ignore[attr-defined]
        if module not in ("numpy", "numpy.core.multiarray") or name not in allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return allowed[name]


def _unpickle(path: Path) -> Any:
    """The content of a published pickle; any other pickle is refused before it is read."""
    with bounded.open_regular(path) as file:
        content = file.read(MOST_BATCH)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != PUBLISHED.get(path.name):
        raise RequestError(
            f"{path} is not the file of CIFAR-10 that is published under this name, and no other pickle is read: fetch it again, "
            "or save images and labels by numpy.savez('FILE.npz', x=images, y=labels)"
        )
    return _Unpickler(io.BytesIO(content), encoding="latin1").load()


def _names(folder: Path) -> Sequence[object]:
    text, pickled = folder / "batches.meta.txt", folder / "batches.meta"
    if text.is_file():
        return [line.strip() for line in bounded.read(text, MOST_NAMES).decode("utf-8", "replace").splitlines() if line.strip()]
    return _unpickle(pickled)["label_names"] if pickled.is_file() else CLASSES
