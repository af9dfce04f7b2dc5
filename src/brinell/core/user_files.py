"""Files of the user's own: Python files with the factory of a model, a distortion, an attack; and a
folder that no run owns.
"""

import ast
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Literal

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.core.suggestions import nearest_name

DRIVE = re.compile(r"[A-Za-z]:[\\/]")
"""The beginning of a path on Windows, whose colon separates no name from a path."""
PREFIX = "brinell_scratch_"
"""Beginning of the names of the modules that users' files become."""
MOST_ENTRIES = 1000
"""Largest number of entries of a folder among which a path is looked for."""
_HOME = re.compile(r"(?:^|(?<=[:=+,(]))~[^\s/\\:=+,()?&]*(?=$|[/\\?&+,)])")
"""A home folder, where a path can begin in a text: at its start, after a name and its colon, or
as the value of an option."""


def expand_home(text: str) -> str:
    """A path or a spec with home folders in full; other texts as they are.

    A spec such as `npz:~/x.npz?classes=~/names.txt` may hold several.
    """
    return _HOME.sub(lambda match: os.path.expanduser(match[0]), text)


def user_path(path: str | os.PathLike[str]) -> Path:
    """A path that a user gave, with the home folder in full."""
    return Path(expand_home(os.fspath(path)))


def is_windows_path(text: str) -> bool:
    """True for a path that begins with the letter of a drive, such as `C:/data/x.npz`."""
    return DRIVE.match(text) is not None


def path_hint(path: str | os.PathLike[str]) -> str:
    """The end of a message about a path that does not exist; empty if nothing is like it.

    It names the most similar path that exists.
    """
    text = os.fspath(path)
    # Paths copied from a terminal of Windows are common in WSL.
    if os.sep == "/" and is_windows_path(text):
        mounted = f"/mnt/{text[0].lower()}/{text[3:]}".replace("\\", "/")
        return (
            "; it is a path of Windows, and this is another system: write where the "
            f"drive is mounted here, such as {mounted}"
        )
    if os.sep == "/" and "\\" in text:
        return f"; paths have slashes here: write {text.replace(chr(92), '/')}"

    nearest = nearest_path(text)
    return f", did you mean {nearest!r}?" if nearest else ""


def nearest_path(text: str) -> str:
    """The most similar path that exists; empty if none is like it."""
    # The first part of the path that does not exist, among its neighbours.
    missing = Path(text)
    while missing.parent != missing and not missing.parent.exists():
        missing = missing.parent
    folder = missing.parent

    try:
        entries = [
            entry.name
            for entry in islice(folder.iterdir(), MOST_ENTRIES)
            if not entry.name.startswith(".")
        ]
    except OSError:
        return ""

    remainder = Path(text).relative_to(missing)
    suggestion = nearest_name(missing.name, sorted(entries))
    return str(folder / suggestion / remainder) if suggestion else ""


def existing_path(path: str, kind: Literal["file", "folder"], spec: str) -> Path:
    """The file or folder that a spec names; refuses a path that does not exist."""
    if not path:
        raise RequestError(f"no {kind} was named: write {spec}")
    location = Path(path).expanduser()
    if not (location.is_file() if kind == "file" else location.is_dir()):
        # The folder around the path may exist with a file of a similar name in it.
        nearest = nearest_path(str(location))
        raise RequestError(
            f"there is no {kind} {location}: check the path in {spec}{path_hint(location)}",
            instead=(path, nearest) if nearest else None,
        )
    return location


def check_foreign(path: str | os.PathLike[str]) -> None:
    """Refuse a path of another system, which would become the name of one file here.

    One that exists is fine.
    """
    text = os.fspath(path)
    if os.sep == "/" and (is_windows_path(text) or "\\" in text) and not os.path.exists(text):
        raise RequestError(f"there is no file or folder {text}{path_hint(text)}")


def top_level_statements(file: Path) -> list[ast.stmt]:
    """The top-level statements of a Python file.

    An empty list if it cannot be read, which the later run of the file reports.
    """
    try:
        return ast.parse(bounded.read(file, bounded.MOST_TEXT)).body
    except (OSError, SyntaxError, ValueError, RequestError):
        return []


def bound_names(file: Path) -> list[str]:
    """Names of functions and classes of a Python file.

    They are bound by definition, or by assignment of a name, a lambda or a partial.
    """
    names: dict[str, None] = {}
    for node in top_level_statements(file):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = None
        elif isinstance(node, ast.Assign) and _is_function(node.value):
            targets = (target.id for target in node.targets if isinstance(target, ast.Name))
            names |= dict.fromkeys(name for name in targets if not name.isupper())
    return list(names)


def _is_function(value: ast.expr) -> bool:
    """True for an expression that may be a function: a name, a lambda, or a call of partial."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] == "partial"
    return isinstance(value, ast.Name | ast.Attribute | ast.Lambda)


@contextmanager
def folder_on_path(file: Path) -> Iterator[None]:
    """Put the folder of a file first on `sys.path`, as for `python FILE.py`.

    Modules beside another file are forgotten.
    """
    folder = os.path.realpath(file.parent)
    path = list(sys.path)
    for name in [name for name, other in _MODULES_BESIDE.items() if other != folder]:
        sys.modules.pop(name, None)
        del _MODULES_BESIDE[name]

    earlier = set(sys.modules)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        for name in sys.modules.keys() - earlier:
            module = sys.modules[name]
            # A package without a file of its own has folders. Attributes of a module may be made
            # when they are asked for, whatever their name, as by torch.classes.
            folders = iter(getattr(module, "__dict__", {}).get("__path__", ()))
            origin = getattr(module, "__file__", None) or next(folders, "")
            is_below = os.path.realpath(origin).startswith(folder + os.sep)
            if is_below and "site-packages" not in origin:
                _MODULES_BESIDE[name] = folder


_MODULES_BESIDE: dict[str, str] = {}
"""The modules in the folder of the file that was imported last, by name, and their folder."""


def import_file(path: Path) -> ModuleType:
    """Run the code of a file as a module with a unique name; it may import its neighbours."""
    if not path.is_file():
        raise RequestError(
            f"there is no file {path}: check the path before the colon{path_hint(path)}"
        )
    if path.suffix != ".py":
        raise RequestError(f"{path} is not a Python file")

    # The modules beside it are read again too: they may have changed since.
    for name in _MODULES_BESIDE:
        sys.modules.pop(name, None)
    _MODULES_BESIDE.clear()
    spec = importlib.util.spec_from_file_location(module_name(path), os.path.realpath(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and inspect look a class up by the name of its module.
    sys.modules[spec.name] = module
    try:
        with folder_on_path(path):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RequestError(failure_text(f"{path} failed on import", error, path)) from error
    return module


def failure_text(problem: str, error: BaseException, file: Path) -> str:
    """The line for an error that the code of a file raised.

    It says what to do where a module is missing.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        folder = Path(os.path.realpath(file)).parent
        return (
            f"{problem}: it imports {error.name}, which is neither in its folder "
            f"{folder} nor installed: pip install {top}, or "
            f"put {top}.py into that folder"
        )
    return f"{problem} with {type(error).__name__}: {one_line(error)}"


def module_name(path: Path) -> str:
    """Name of the module that the code of a file becomes, another one for each path."""
    digest = hashlib.blake2b(os.path.realpath(path).encode(), digest_size=6).hexdigest()
    return f"{PREFIX}{digest}_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}"


def hash_code(file: Path, digest_size: int = 64, *, siblings: bool = True) -> str:
    """Hash of a Python file, and with `siblings` of those in its folder that it imports."""
    hash = hashlib.blake2b(bounded.read(file, bounded.MOST_TEXT), digest_size=digest_size)
    for path in modules_beside(file) if siblings else []:
        name = os.path.relpath(path, os.path.realpath(file.parent))
        hash.update(f"\0{name}\0".encode() + bounded.read(path, bounded.MOST_TEXT))
    return hash.hexdigest()


def modules_beside(file: Path) -> list[Path]:
    """The Python files beside a file that its imports lead to, in the order of names.

    Of a package they are all. No code runs.
    """
    folder = Path(os.path.realpath(file.parent))
    waiting = [Path(os.path.realpath(file))]
    files = set[Path]()
    while waiting:
        source = waiting.pop()
        files.add(source)
        # Only modules beside the file: a library is a matter of its version.
        for name in _imported_names(source):
            module = folder / f"{name}.py"
            candidates = [module] if module.is_file() else (folder / name).rglob("*.py")
            waiting += [path for path in candidates if path not in files]

    return sorted(files - {Path(os.path.realpath(file))})


def _imported_names(file: Path) -> set[str]:
    """The names that the statements of a file import, without what follows a dot."""
    names = set[str]()
    for statement in top_level_statements(file):
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


def cache_folder() -> Path:
    """Folder of the user's cached files, which may not exist yet.

    It is BRINELL_CACHE, or brinell/ in XDG_CACHE_HOME or ~/.cache.
    """
    folder = os.environ.get("BRINELL_CACHE")
    return (
        Path(folder)
        if folder
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brinell"
    )
