"""Files of the user's own: Python files with the factory of a model, a distortion, an attack; and a folder that no run owns."""

import hashlib
import os
import re
from itertools import islice
from pathlib import Path
from types import ModuleType

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.core.siblings import missing_module, plain_text, read_sources, run_beside, scope_of
from brinell.core.suggestions import MOST_SUGGESTED, edit_distance

DRIVE = re.compile(r"[A-Za-z]:[\\/]")
"""The beginning of a path on Windows, whose colon separates no name from a path."""
MOST_ENTRIES = 1000
"""Largest number of entries of a folder among which a path is looked for."""
_HOME = re.compile(r"(?:^|(?<=[:=+,(]))~[^\s/\\:=+,()?&]*(?=$|[/\\?&+,)])")
"""A home folder, where a path can begin in a text: at its start, after a name and its colon, or as the value of an option."""


def expand_home(text: str) -> str:
    """A path, or a spec such as `npz:~/x.npz?classes=~/names.txt`, with home folders in full; other texts as they are."""
    return _HOME.sub(lambda match: os.path.expanduser(match[0]), text)


def user_path(path: str | os.PathLike[str]) -> Path:
    """A path that a user gave, with the home folder in full."""
    return Path(expand_home(os.fspath(path)))


def is_windows_path(text: str) -> bool:
    """True for a path that begins with the letter of a drive, such as `C:/data/x.npz`, with slashes of either kind."""
    return DRIVE.match(text) is not None


def path_hint(path: str | os.PathLike[str]) -> str:
    """The end of a message about a path that does not exist: the path that is meant; empty if nothing like it is there."""
    text = os.fspath(path)
    if os.sep == "/" and is_windows_path(text):
        mounted = f"/mnt/{text[0].lower()}/{text[3:]}".replace("\\", "/")
        return f"; it is a path of Windows, and this is another system: write where the drive is mounted here, such as {mounted}"
    if os.sep == "/" and "\\" in text:
        return f"; paths have slashes here: write {text.replace(chr(92), '/')}"
    missing = Path(text)
    while missing.parent != missing and not missing.parent.exists():
        missing = missing.parent
    folder = missing.parent
    try:
        entries = [entry.name for entry in islice(folder.iterdir(), MOST_ENTRIES) if not entry.name.startswith(".")]
    except OSError:
        return ""
    name, rest = missing.name, Path(text).relative_to(missing)
    distances = {entry: edit_distance(name.lower(), entry.lower()) for entry in entries}
    near = [entry for entry in sorted(entries) if distances[entry] <= max(1, len(name) // 5)]
    return f", did you mean {' or '.join(repr(str(folder / entry / rest)) for entry in near[:MOST_SUGGESTED])}?" if near else ""


def import_file(path: Path) -> ModuleType:
    """Run the code of a file and return it as a module with a unique name.

    The file can import the modules of its folder (`core.siblings`).

    Raises:
        RequestError: the file does not exist, or its code raised an error.
    """
    if not path.is_file():
        raise RequestError(f"there is no file {path}: check the path before the colon{path_hint(path)}")
    if path.suffix != ".py":
        raise RequestError(f"{path} is not a Python file")
    try:
        return run_beside(path)
    except (Exception, SystemExit) as error:
        raise RequestError(failure_text(f"{path} failed on import", error, path)) from error


def failure_text(problem: str, error: BaseException, file: Path) -> str:
    """The line for an error that the code of a file raised; what to do about it where a module is missing."""
    remedy = missing_module(error, file)
    text = f"{problem} with {type(error).__name__}"
    return f"{text}: {remedy}" if remedy else f"{text}: {plain_text(one_line(error))}"


def module_name(path: Path) -> str:
    """Name of the module that the code of a file becomes, another one for each path."""
    return scope_of(path).name


def hash_code(file: Path, digest_size: int = 64, *, siblings: bool = True) -> str:
    """Hash of a Python file, and with `siblings` of those in its folder that it imports."""
    hash = hashlib.blake2b(bounded.read(file, bounded.MOST_TEXT), digest_size=digest_size)
    for name, content in read_sources(file) if siblings else []:
        hash.update(f"\0{name}\0".encode() + content)
    return hash.hexdigest()


def cache_folder() -> Path:
    """Folder of the user's cached files: BRINELL_CACHE, or brinell/ in XDG_CACHE_HOME or ~/.cache; it may not exist yet."""
    folder = os.environ.get("BRINELL_CACHE")
    return Path(folder) if folder else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brinell"
