"""`cifar10:DIR`: CIFAR-10 from the original files of the version for Python.

Source and format: https://www.cs.toronto.edu/~kriz/cifar.html. The batches are pickles: only the
published ones are read.
"""

import hashlib
import io
import pickle  # noqa: TID251  the published files alone, by their digests
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brinell.core import bounded
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Arrangement, StoredArrays

PARTS = {"test": ("test_batch",), "train": tuple(f"data_batch_{number}" for number in range(1, 6))}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PUBLISHED = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
"""MD5 of the published pickles."""
MOST_BATCH = 1 << 25
"""Maximum size of a batch in bytes."""


@dataclass(frozen=True, kw_only=True)
class Cifar10:
    """CIFAR-10 from its original files."""

    path: str = ""
    """Folder with test_batch and data_batch_1 to 5, the files of the version for Python."""
    split: Literal["test", "train"] = "test"
    """Part of the data."""

    def __call__(self) -> Dataset:
        """Open the files."""
        folder = existing_path(self.path, "folder", "cifar10:DIR")
        # The files lie in the folder itself, or in that of the archive.
        for place in (folder, folder / "cifar-10-batches-py"):
            files = [place / part for part in PARTS[self.split]]
            missing = [file for file in files if not file.is_file()]
            # Some of the batches lie here: those that are missing are missing here.
            if missing != files:
                break
        if missing:
            raise RequestError(
                f"there is no file {missing[0]}: name the folder of the version "
                "for Python, with all batches"
            )

        batches = [_unpickle(path) for path in files]
        return StoredArrays(
            name=f"cifar10-{self.split}",
            x=np.concatenate([batch["data"] for batch in batches]),
            y=np.concatenate([batch["labels"] for batch in batches]),
            arrangement=Arrangement(kind="image", shape=(3, 32, 32), axes=(0, 1)),
            domain=Domain(kind="image", shape=(3, 32, 32), levels=256),
            classes=CLASSES,
            divisor=255.0,
            info=DataInfo(published=True),
        )


class _Unpickler(pickle.Unpickler):
    """Makes numpy's arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The function or class of this name, if arrays need it."""
        allowed = {
            "_reconstruct": np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
            "ndarray": np.ndarray,
            "dtype": np.dtype,
        }
        if module not in ("numpy", "numpy.core.multiarray") or name not in allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return allowed[name]


def _unpickle(path: Path) -> Any:
    """The content of a published pickle; any other pickle is refused before it is read."""
    with bounded.open_regular(path) as file:
        content = file.read(MOST_BATCH)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != PUBLISHED.get(path.name):
        raise RequestError(
            f"{path} is not the file of CIFAR-10 that is published under this "
            "name, and no other pickle is read: fetch it again, "
            "or save images and labels by numpy.savez('FILE.npz', x=images, y=labels)"
        )
    return _Unpickler(io.BytesIO(content), encoding="latin1").load()
