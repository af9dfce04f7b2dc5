"""Large libraries that few tests use: imported by the first test that does, not by the collection
of all.
"""

import importlib
import importlib.util
from typing import Any

import pytest


class _Library:
    """Placeholder for a module until an attribute is used; the lookups by which pytest collects a
    file do not count as use.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest", "is_hypothesis")):
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def library(name: str) -> Any:
    """The module of that name; the tests of the file that asks for it are skipped where it is not
    installed.
    """
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    return _Library(name)
