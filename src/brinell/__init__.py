"""Brinell: the hardness test for classifiers.

`brinell.audit` runs the whole evaluation from Python; the command line does the same. Names are imported on first use, so
that `import brinell` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from brinell.core.version import VERSION

if TYPE_CHECKING:
    from brinell.api import audit, benchmark, detect, epsilon, review, unrestricted, verify
    from brinell.attacking import attack
    from brinell.core.errors import BrinellError
    from brinell.inputs import data

__all__ = [
    "BrinellError",
    "__version__",
    "attack",
    "audit",
    "benchmark",
    "data",
    "detect",
    "epsilon",
    "review",
    "unrestricted",
    "verify",
]
__version__ = VERSION
HOMES = {"attack": "brinell.attacking", "BrinellError": "brinell.core.errors", "data": "brinell.inputs"}
"""Where names lie that are no calls of `brinell.api`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(HOMES.get(name, "brinell.api")), name)
    raise AttributeError(f"module 'brinell' has no attribute {name!r}")
