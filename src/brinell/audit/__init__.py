"""The audit: from a request to records. Plan first, then compute, unit by unit."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`brinell.audit(...)` is the Python call, and importing this package puts it under the same name: it answers for both."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return importlib.import_module("brinell.api").audit(*arguments, **settings)


sys.modules[__name__].__class__ = _Callable
