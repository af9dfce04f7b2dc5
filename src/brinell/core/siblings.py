"""Imports of a user's file: modules in its folder come first, as for `python FILE.py`, and that file alone sees them.

The modules in the folder of a file, and those that they import from there, become submodules of a package that is named after
the folder. So `sys.path` stays as it is, no other code finds these modules, and equal names in two folders are two modules. Every
module of the package has a private `__import__`, which looks into the folder first, also in functions that run later; it
serves `importlib.import_module` as well. Unlike `python FILE.py`, relative imports work: the folder is their package. What a
file adds to `sys.path` holds for its own imports alone.
"""

import ast
import builtins
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

PREFIX = "brinell_scratch_"
"""Beginning of the names of these packages."""
NEVER_BESIDE = frozenset((*sys.stdlib_module_names, *sys.builtin_module_names, "brinell"))
"""Names that a module beside a file does not take over."""
MOST_BYTES = 1 << 24
"""Largest file whose imports are read from its source."""

NO_LETTER = re.compile(r"\W")

Importer = Any
"""A function with the arguments of `__import__`."""


@dataclass(frozen=True)
class Scope:
    """The place of a user's file among packages."""

    file: Path
    """The file."""
    root: str
    """Name of the package of the folder to which the most distant relative import leads."""
    package: str
    """Name of the package of the file's own folder, which is `root` or below it."""
    search: tuple[str, ...]
    """Folders of `root`."""
    before: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    """`sys.path` before the file runs."""
    added: list[str] = field(default_factory=list)
    """Folders that the file added to it."""

    @property
    def name(self) -> str:
        """Name of the module of the file."""
        stem = self.file.stem
        return f"{self.package}.{stem if stem.isidentifier() else NO_LETTER.sub('_', stem) + '_' + _digest(stem)}"

    def package_of(self, name: str) -> str | None:
        """The package whose submodule an imported top-level name is; None for what comes from elsewhere."""
        folder = str(self.file.parent)
        if name in NEVER_BESIDE or folder in map(os.path.realpath, sys.path):
            return None
        beside = PathFinder.find_spec(name, [*self.added, folder])
        if beside is not None and beside.loader is not None and beside.origin != str(self.file):
            return self.package
        if _is_elsewhere(name):
            return None
        if beside is not None:
            return self.package
        return self.root if PathFinder.find_spec(name, list(self.search)) else None


def scope_of(file: Path) -> Scope:
    """The scope of a file, whose root package is the file's folder, or the farthest folder that its relative imports lead to."""
    file = Path(os.path.realpath(file))
    level, packages = _relative_level(file), _packages_above(file)
    depth = max(level - 1, len(packages)) if level else 0
    parents = [file.parent, *file.parent.parents]
    limit = next((number for number, parent in enumerate(parents) if not parent.name.isidentifier()), len(parents))
    depth = min(depth, limit)  # a folder whose name Python cannot write is no package
    root = f"{PREFIX}{_digest(f'{file.parent} {depth}')}"
    package = ".".join([root, *(parent.name for parent in reversed(parents[:depth]))])
    outer = [] if depth or not packages else [str(packages[-1].parent)]
    return Scope(file, root, package, (str(parents[depth]), *outer))


def _packages_above(file: Path) -> list[Path]:
    """The folders of packages in which a file lies, the innermost first."""
    folders = []
    for folder in file.parents:
        if not (folder / "__init__.py").is_file():
            break
        folders.append(folder)
    return folders


def _relative_level(file: Path) -> int:
    """The largest number of dots of the relative imports in a file; 0 without one."""
    return max((node.level for node in _imports_in(file) if isinstance(node, ast.ImportFrom)), default=0)


def _imports_in(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """The import statements of a file; none if it cannot be read as Python."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return []
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def _digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _is_elsewhere(name: str) -> bool:
    """True if Python finds a module of this name without the user's folder."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


# Running the file


def run_beside(file: Path) -> ModuleType:
    """Run the code of a file, with the modules of its folder, as a new module; each call runs all of it anew.

    Raises:
        Exception: whatever the code raises.
    """
    scope = scope_of(file)
    for name in [name for name in sys.modules if name.partition(".")[0] == scope.root]:
        del sys.modules[name]
    if not any(isinstance(finder, _SiblingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _SiblingFinder())
    importlib.invalidate_caches()
    root = ModuleType(scope.root)
    root.__path__ = list(scope.search)
    sys.modules[scope.root] = root
    _SCOPES[scope.root] = scope
    if scope.package != scope.root:
        importlib.import_module(scope.package)
        if scope.name in sys.modules:  # its package imports it
            return sys.modules[scope.name]
    spec = importlib.util.spec_from_file_location(scope.name, scope.file, loader=_SiblingLoader(scope.name, str(scope.file)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and inspect look a class up by the name of its module.
    sys.modules[scope.name] = module
    with kept_path():
        spec.loader.exec_module(module)
    return module


@contextmanager
def kept_path() -> Iterator[None]:
    """Set `sys.path` back at the end."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path


_SCOPES: dict[str, Scope] = {}
"""The scope of each package that was made here, by the package's name."""


class _SiblingFinder(MetaPathFinder):
    """Finds the modules of these packages, and no other."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module of these packages."""
        scope = _SCOPES.get(fullname.partition(".")[0])
        if scope is None:
            return None
        folders = [*scope.added, *(path or ())] if fullname.rpartition(".")[0] == scope.package else path
        spec = PathFinder.find_spec(fullname, folders, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _SiblingLoader(fullname, spec.loader.path)
        return spec


class _SiblingLoader(SourceFileLoader):
    """Runs a module whose imports look into the folder of the user's file first."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        scope = _SCOPES[module.__name__.partition(".")[0]]
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": _importer(scope)}
        super().exec_module(module)


def _importer(scope: Scope) -> Importer:
    """An `__import__` that looks into the folder of the file first."""

    def import_beside(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """As `__import__`."""
        scope.added[:] = dict.fromkeys([*(folder for folder in sys.path if folder not in scope.before), *scope.added])
        if level:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        top = name.partition(".")[0]
        package = scope.package_of(top)
        if package is None:
            module = builtins.__import__(name, globals, locals, fromlist or (), 0)
            return _own_importlib(scope) if module is importlib else module
        if fromlist:
            return builtins.__import__(f"{package}.{name}", globals, locals, fromlist, 0)
        importlib.import_module(f"{package}.{name}")
        return sys.modules[f"{package}.{top}"]

    return import_beside


def _own_importlib(scope: Scope) -> ModuleType:
    """The module importlib whose `import_module` looks into the folder of the file first."""

    def import_module(name: str, package: str | None = None) -> ModuleType:
        """As `importlib.import_module`."""
        place = None if name.startswith(".") else scope.package_of(name.partition(".")[0])
        return importlib.import_module(name if place is None else f"{place}.{name}", package)

    copy = ModuleType("importlib", importlib.__doc__)
    copy.__dict__.update(vars(importlib) | {"import_module": import_module})
    return copy


# Failures


def plain_text(text: str) -> str:
    """A message of Python without the names of these packages."""
    return re.sub(rf"{PREFIX}[0-9a-f]+", "its folder", re.sub(rf"{PREFIX}[0-9a-f]+\.", "", text))


def missing_module(error: BaseException, file: Path) -> str | None:
    """The end of a message about code of a file that imports a module which does not exist; None for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    name = plain_text(error.name)
    if error.name.startswith(PREFIX) and "." in name:
        return f"it imports {name}, and {name.rpartition('.')[0]} has no such part: check the name"
    top, folder = name.partition(".")[0], Path(os.path.realpath(file)).parent
    return (
        f"it imports {name}, which is neither in its folder {folder} nor installed: pip install {top}, or put {top}.py into "
        "that folder"
    )


# Digests


def read_sources(file: Path) -> list[tuple[str, bytes]]:
    """Name and content of each Python file beside a file that its imports lead to, in the order of names; it runs no code.

    Imports by a name that is only known while the code runs are not seen.
    """
    main = Path(os.path.realpath(file))
    waiting, files = [main], dict[Path, None]()
    while waiting:
        source = waiting.pop()
        for sibling in _siblings_of(source, main.parent):
            if sibling not in files and sibling != main:
                files[sibling] = None
                waiting.append(sibling)
    return [
        (os.path.relpath(path, main.parent), path.read_bytes()) for path in sorted(files) if path.stat().st_size <= MOST_BYTES
    ]


def _siblings_of(source: Path, folder: Path) -> Iterator[Path]:
    """The files that the imports of a source may lead to: of a package all."""
    for node in _imports_in(source):
        for base, name in _imported(node, source, folder):
            first, _, path = name.partition(".")
            if isinstance(node, ast.Import) or not node.level:
                if first in NEVER_BESIDE or not _is_beside(first, folder):
                    continue
            if first and (base / first).is_dir():
                yield from _sources_below(base / first, path)
            elif (base / f"{first}.py").is_file():
                yield base / f"{first}.py"


def _is_beside(name: str, folder: Path) -> bool:
    """True if a name is found beside a file first."""
    beside, elsewhere = PathFinder.find_spec(name, [str(folder)]), None
    if beside is not None and beside.loader is None:
        elsewhere = PathFinder.find_spec(name)
    return beside is not None and (elsewhere is None or elsewhere.loader is None)


def _imported(node: ast.Import | ast.ImportFrom, source: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """Folder and name of each module that a statement names."""
    if isinstance(node, ast.Import):
        yield from ((folder, alias.name) for alias in node.names)
    elif not node.level:
        yield folder, str(node.module)
    else:
        base = [source.parent, *source.parent.parents][min(node.level, len(source.parents)) - 1]
        yield from ((base, name) for name in ([node.module] if node.module else [alias.name for alias in node.names]))


def _sources_below(package: Path, path: str) -> Iterator[Path]:
    """The Python files of a package, or of a folder without `__init__.py` those that a name leads to."""
    if (package / "__init__.py").is_file():
        yield from sorted(package.rglob("*.py"))
        return
    first, _, further = path.partition(".")
    if first and (package / f"{first}.py").is_file():
        yield package / f"{first}.py"
    elif first and (package / first).is_dir():
        yield from _sources_below(package / first, further)
    else:
        yield from sorted(package.glob("*.py"))
