"""The proxy of a plug-in in a child process: its declared properties and settings, which do not change."""

import functools
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Self, cast

from brinell.core.contracts import Kind
from brinell.core.model import Access
from brinell.isolation.process import PluginProcess, Properties


class IsolatedPlugin:
    """A plug-in in a child process. Subclasses have the methods of its kind.

    Args:
        process: the child process.
        properties: the child's description of the plug-in, checked.
        source: the module of the plug-in, or the hash of its file, as this process knows it.
    """

    form: ClassVar[type[Properties]] = Properties
    """What the description contains."""

    def __init__(self, process: PluginProcess, properties: dict[str, Any], source: str) -> None:
        self._process, self._properties, self.source = process, properties, source
        self._witness: PluginProcess | None = None
        self.access: Access = Access(properties["access"])
        self.domains: frozenset[Kind] = frozenset(properties["domains"])

    def __deepcopy__(self, memo: object) -> Self:
        duplicate = copy(self)
        duplicate._process, duplicate._witness = self._process.copy(), None
        return duplicate

    @property
    def witness(self) -> PluginProcess:
        """A second process of the plug-in (`isolation.witness`)."""
        if self._witness is None:
            self._witness = self._process.copy()
        return self._witness

    def written_settings(self) -> dict[str, Any]:
        """Settings of the plug-in, as `plugins.settings_of` returns them."""
        return dict(self._properties["settings"])

    @property
    def defaults(self) -> dict[str, str]:
        """Its settings with their defaults."""
        return dict(self._properties["defaults"])


@functools.cache
def named_class(base: Callable[..., IsolatedPlugin], name: str, module: str, summary: str) -> type[IsolatedPlugin]:
    """A subclass of a proxy with the name, module and docstring of the plug-in's class, which records and messages show."""
    return type(name, (cast(Any, base),), {"__module__": module, "__qualname__": name, "__doc__": summary})
