"""Brinell: the hardness test for classifiers.

`brinell.audit` runs the whole evaluation from Python; the command line does the same, and every
other command is a call as well. Names are imported on first use, so that `import brinell` costs
nothing. Their signatures come from the register; `make docs` writes them into the stub beside this
file.
"""

from importlib import import_module
from typing import Any

from brinell.core.version import VERSION

__version__ = VERSION
HOMES = {
    "BrinellError": "core.errors:BrinellError",
    "BrinellWarning": "core.errors:BrinellWarning",
    "attack": "batch_attack:attack",
    "data": "inputs:data",
    "open": "calls:open_folder",
}
"""Modules and attributes of public names that are not studies."""
MODULES = ("plugins", "testing")
"""Public modules, which `import brinell` has as attributes."""


def __getattr__(name: str) -> Any:
    """A public name, imported on first use: of HOMES or MODULES, or the call of a study."""
    if name in HOMES:
        module, _, attribute = HOMES[name].partition(":")
        return getattr(import_module(f"brinell.{module}"), attribute)
    if name in MODULES:
        return import_module(f"brinell.{name}")
    if name.startswith("_"):
        raise AttributeError(f"module 'brinell' has no attribute {name!r}")
    from brinell.core.suggestions import suggestion
    from brinell.studies import register

    verbs = {verb.replace("-", "_").replace(" ", "_"): verb for verb in register.commands()}
    if name in verbs and (study := register.load(verbs[name])).call:
        return import_module("brinell.calls").call_of(study)
    calls = [*HOMES, *verbs]
    raise AttributeError(f"module 'brinell' has no attribute {name!r}{suggestion(name, calls)}")


def __dir__() -> list[str]:
    """The public names."""
    from brinell.studies import register

    calls = [study.name for study in register.studies().values() if study.call]
    return sorted([*HOMES, *MODULES, *calls, "__version__"])
