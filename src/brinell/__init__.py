"""Brinell: the hardness test for classifiers.

`brinell.audit` runs the whole evaluation from Python; the command line does the same. Names are imported on first use, so
that `import brinell` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from brinell.core.version import VERSION

if TYPE_CHECKING:
    from brinell.api import audit, benchmark, detect, epsilon, review, unrestricted, verify

__all__ = ["__version__", "audit", "benchmark", "detect", "epsilon", "review", "unrestricted", "verify"]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    if name in __all__:
        from brinell import api

        return getattr(api, name)
    raise AttributeError(f"module 'brinell' has no attribute {name!r}")
