"""Files of the user's own: Python files with the factory of a model, a distortion, an attack; and a folder that no run owns."""

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

from brinell.core.errors import RequestError


def import_file(path: Path) -> ModuleType:
    """The module in a file, run under a name of its own.

    Raises:
        RequestError: no such file, or an error while it ran.
    """
    if not path.is_file():
        raise RequestError(f"there is no file {path}: check the path before the colon")
    spec = importlib.util.spec_from_file_location("brinell_scratch_" + re.sub(r"\W", "_", str(path.resolve())), path)
    if spec is None or spec.loader is None:
        raise RequestError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and inspect look a class up by the name of its module.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RequestError(f"{path} failed on import with {type(error).__name__}: {error}") from error
    return module


def own_folder() -> Path:
    """Where Brinell keeps what is a person's own: BRINELL_CACHE, or brinell/ in XDG_CACHE_HOME or ~/.cache; it need not exist."""
    named = os.environ.get("BRINELL_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brinell"
