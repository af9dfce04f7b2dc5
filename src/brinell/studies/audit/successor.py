"""Data whose truth is more than a class: another study audits models of them."""

from typing import Any

from brinell import plugins
from brinell.core.data import Dataset
from brinell.engine.request import IN_MEMORY
from brinell.engine.spelling import expand_spec

DENSE = ("masks", "boxes")
"""Plugins of data with a mask or with objects for each picture."""


def verb_for(data: Any) -> str:
    """The verb that takes such data, a spec or a data set; empty if an audit does."""
    if isinstance(data, str) and not data.startswith(f"{IN_MEMORY}:"):
        return "dense" if plugins.parse(expand_spec("dataset", data)).name in DENSE else ""
    return "dense" if isinstance(data, Dataset) and data.info.truth is not None else ""
