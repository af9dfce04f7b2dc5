"""Brinell: the hardness test for classifiers.

`brinell.audit` runs the whole evaluation from Python; the command line does the same. Names are imported on first use, so
that `import brinell` costs nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from brinell.core.version import VERSION

if TYPE_CHECKING:
    from brinell.across import corrupt, study, transfer
    from brinell.api import audit, benchmark, compare, detect, epsilon, gate, report, review, unrestricted, verify
    from brinell.attacking import attack
    from brinell.core.errors import BrinellError, BrinellWarning
    from brinell.explaining import explain
    from brinell.harden import module as harden
    from brinell.inputs import data

__all__ = [
    "BrinellError",
    "BrinellWarning",
    "__version__",
    "attack",
    "audit",
    "benchmark",
    "compare",
    "corrupt",
    "data",
    "detect",
    "epsilon",
    "explain",
    "export",
    "gate",
    "harden",
    "report",
    "review",
    "study",
    "transfer",
    "unrestricted",
    "verify",
]
__version__ = VERSION
HOMES = {
    "BrinellError": "core.errors",
    "BrinellWarning": "core.errors",
    "attack": "attacking",
    "data": "inputs",
    "explain": "explaining",
    "corrupt": "across",
    "study": "across",
    "transfer": "across",
}
"""Where names lie that are no calls of `brinell.api`."""


class _Package(ModuleType):
    """The package, in which `report` is the call also where something has imported the room of that name."""

    @property
    def report(self) -> Any:
        return _find("report")

    @report.setter
    def report(self, room: ModuleType) -> None:
        """The room, by whoever imports it first: `from brinell.pages import html` finds it without this name."""


sys.modules[__name__].__class__ = _Package


def _find(name: str) -> Any:
    if name == "harden":  # a module that can be called, as brinell.harden(...), and holds what a training loop takes
        return import_module("brinell.harden")
    return getattr(import_module(f"brinell.{HOMES.get(name, 'api')}"), name)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _find(name)
    raise AttributeError(f"module 'brinell' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
