"""Files of the user's own: Python files with the factory of a model, a distortion, an attack; and a folder that no run owns."""

import ast
import hashlib
import os
import re
from itertools import islice
from pathlib import Path
from types import ModuleType

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.core.siblings import missing_module, plain_text, read_sources, run_beside, scope_of
from brinell.core.suggestions import MOST_SUGGESTED, edit_distance, suggestion

DRIVE = re.compile(r"[A-Za-z]:[\\/]")
"""The beginning of a path on Windows, whose colon separates no name from a path."""
DYNAMIC = re.compile(r"import\s+\*|import_module|__\w*(?:dict|import|getattr)__|\b(?:globals|locals|vars|setattr|exec|eval)\b")
"""Words of a Python file that may give names which its text does not have."""
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
    """The end of a message about a path that does not exist, with the most similar existing path; empty if there is none."""
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


def check_foreign(path: str | os.PathLike[str]) -> None:
    """Refuse a path of another system, which would become the name of one folder or file here; one that exists is fine.

    Raises:
        RequestError: the path begins with the letter of a drive or has back slashes, and this system has slashes.
    """
    text = os.fspath(path)
    if os.sep == "/" and (is_windows_path(text) or "\\" in text) and not os.path.exists(text):
        raise RequestError(f"there is no file or folder {text}{path_hint(text)}")


def top_level_statements(file: Path) -> list[ast.stmt]:
    """The top-level statements of a Python file; none if it cannot be read, which the later run of the file reports."""
    try:
        return ast.parse(bounded.read(file, bounded.MOST_TEXT)).body
    except (OSError, SyntaxError, ValueError, RequestError):
        return []


def bound_names(file: Path) -> list[str]:
    """Names of functions and classes of a Python file, by definition or by assignment of a name, a lambda or a partial."""
    names: dict[str, None] = {}
    for node in top_level_statements(file):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = None
        elif isinstance(node, ast.Assign) and _is_function(node.value):
            targets = (target.id for target in node.targets if isinstance(target, ast.Name))
            names |= dict.fromkeys(name for name in targets if not name.isupper())
    return list(names)


def check_function(file: Path, name: str) -> None:
    """Refuse the name of a function that a Python file cannot have: its text lacks the word and makes no names at run time.

    Raises:
        RequestError: the file lacks it.
    """
    names = [known for known in bound_names(file) if not known.startswith("_")]
    text = bounded.read(file, bounded.MOST_TEXT).decode("utf-8", "replace")
    if names and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) and not DYNAMIC.search(text):
        listing = f"it has {', '.join(names)}"
        raise RequestError(f"{file} has no function {name!r}{suggestion(name, names, listing)}")


def _is_function(value: ast.expr) -> bool:
    """True for an expression that may be a function: a name, a lambda, or a call of partial."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] == "partial"
    return isinstance(value, ast.Name | ast.Attribute | ast.Lambda)


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
