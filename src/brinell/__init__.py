"""Brinell: the hardness test for classifiers.

`brinell.audit` runs the whole evaluation from Python; the command line does the same. Names are imported on first use, so
that `import brinell` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from brinell.core.version import VERSION

if TYPE_CHECKING:
    from brinell.api import audit

__all__ = ["__version__", "audit"]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    if name == "audit":
        from brinell.api import audit

        return audit
    raise AttributeError(f"module 'brinell' has no attribute {name!r}")
