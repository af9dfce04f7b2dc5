"""Parameter types of the Python calls, by the names in their signatures."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from brinell.core.contracts import Dataset
from brinell.core.model import Model
from brinell.engine.progress import Progress


class Estimator(Protocol):
    """A fitted classifier of scikit-learn."""

    def predict(self, X: Any, /) -> Any:  # as scikit-learn calls it
        """The classes of inputs."""

    def get_params(self, deep: bool = True) -> Any:
        """The settings."""


class Indexed(Protocol):
    """Samples by their position, as a data set of torch or of the hub has them."""

    def __getitem__(self, index: Any, /) -> Any:
        """A sample."""


class HasFolder(Protocol):
    """The result of a call that left a folder."""

    @property
    def folder(self) -> str:
        """The folder."""


AnyModel = str | Path | Callable[..., Any] | Model | Estimator
"""A spec, a module, a function of arrays, an estimator, a pipeline."""
Models = AnyModel | Sequence[AnyModel] | Mapping[str, AnyModel]
"""One model, several, or several by name."""
Data = str | Path | Dataset | Iterable[Any] | Indexed
"""A spec, arrays, a pair of arrays, a mapping, a data set."""
Labels = Iterable[Any] | Indexed
"""(n,) classes."""
Eps = float | str | Iterable[Any]
"""A budget, or several: numbers, or texts such as 8/255 and 0:8/255:9."""
Norm = float | str | Sequence[float | str]
"""linf, l2, l1, l0, pixels, patch:5, np.inf, 2, 1, 0, or embedding:FILE."""
Device = int | str | torch.device
"""A device by name or number."""
File = str | os.PathLike[str]
"""A path."""
Folder = File | HasFolder
"""A folder, or the result of the call that made it."""
ProgressOption = Progress | bool
"""True for live progress, False for none, or an object that receives progress."""

__all__ = [
    "AnyModel",
    "Data",
    "Device",
    "Eps",
    "File",
    "Folder",
    "Labels",
    "Models",
    "Norm",
    "ProgressOption",
]
