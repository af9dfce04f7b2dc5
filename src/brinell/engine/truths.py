"""Data whose truth is more than a class, told apart before anything is opened."""

from typing import Any

from brinell import plugins
from brinell.core.data import Dataset
from brinell.datasets._files import existing_path
from brinell.datasets.bench import manifest_of
from brinell.engine.request import IN_MEMORY
from brinell.engine.spelling import expand_spec

DENSE = ("masks", "boxes")
"""Plugins of data with a mask or with objects for each picture."""


def has_truth(data: Any) -> bool:
    """True for data with a mask or with objects for each picture: a spec or a data set."""
    if isinstance(data, str) and not data.startswith(f"{IN_MEMORY}:"):
        name, path, _ = plugins.parse(expand_spec("dataset", data))
        if name == "bench" and path:
            return manifest_of(existing_path(path, "folder", "bench:FOLDER")).get("task") is not None
        return name in DENSE
    return isinstance(data, Dataset) and data.info.truth is not None
