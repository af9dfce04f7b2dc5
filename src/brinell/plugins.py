"""Names, classes and instances of plugins: the only dynamic import of the package.

A plugin is a frozen, keyword-only dataclass of settings that can be built with no arguments. It is found by the name of its
file in the folder of its kind, by an entry point `brinell.<kind>` of an installed package, or as `module:Class` or
`file.py:Class` for scratch work. Listing imports nothing.
"""

import dataclasses
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.settings import MOST_COUNT
from brinell.core.user_files import import_file

FOLDERS = {
    "attack": "brinell.attacks",
    "distance": "brinell.distances",
    "distortion": "brinell.distortions",
    "defence": "brinell.defences",
    "detector": "brinell.detectors",
    "explainer": "brinell.explainers",
    "dataset": "brinell.datasets",
    "model": "brinell.models",
}
"""Kind to the package whose modules are its plugins."""


class Spec(NamedTuple):
    """A plugin as people write it: `NAME[:PATH][?key=value&...]`."""

    name: str
    path: str
    options: dict[str, str]


def parse(text: str) -> Spec:
    """Split `NAME:PATH?key=value` into its parts.

    `module:Class` and `file.py:Class` are names as a whole, since a plugin's own name has neither a dot nor a slash. The path
    of a URL (`http://...`) stays with its scheme.

    Raises:
        RequestError: nothing before the first colon, or an option without `=`.
    """
    body, _, query = text.partition("?")
    head, _, rest = body.partition(":")
    if head in ("http", "https"):
        head, rest = "http", body
    elif "." in head or "/" in head:
        head, rest = body, ""
    if not head:
        raise RequestError(f"{text!r} names nothing: write NAME, NAME:PATH or NAME?option=value")
    options = {}
    for pair in query.split("&") if query else []:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise RequestError(f"the options of {text!r} are not key=value pairs joined by &")
        options[key] = value
    return Spec(head, rest, options)


def names(kind: str) -> list[str]:
    """Sorted names of all plugins of a kind, importing none of them."""
    return sorted(_built_in(kind) | {entry.name for entry in _installed(kind)})


@functools.cache
def _installed(kind: str) -> EntryPoints:
    # Once for all stages of a cascade: it reads the metadata of every installed package.
    return entry_points(group=f"brinell.{kind}")


def _built_in(kind: str) -> set[str]:
    # find_spec imports brinell and the (empty) package of the kind, never a plugin module.
    spec = importlib.util.find_spec(FOLDERS[kind])
    if spec is None:
        return set()
    modules = pkgutil.iter_modules(spec.submodule_search_locations)
    return {module.name.replace("_", "-") for module in modules if not module.name.startswith("_")}


def is_built_in(kind: str, name: str) -> bool:
    """Whether a plugin comes with Brinell; nothing is imported for this."""
    return name in _built_in(kind)


def load(kind: str, name: str) -> type[Any]:
    """The dataclass of the plugin `name`.

    Raises:
        RequestError: no such plugin (with the nearest name), two of one name, or a module that holds none.
    """
    if "." in name or "/" in name:
        return _scratch(kind, name)
    found = [entry for entry in _installed(kind) if entry.name == name]
    built_in = name in _built_in(kind)
    if len(found) + built_in > 1:
        sources = [entry.value for entry in found] + [FOLDERS[kind]] * built_in
        raise RequestError(f"two {kind} plugins are called {name!r} ({', '.join(sources)}): uninstall one of the packages")
    if built_in:
        return _only_export(importlib.import_module(f"{FOLDERS[kind]}.{name.replace('-', '_')}"))
    if found:
        loaded: type[Any] = found[0].load()
        return loaded
    raise RequestError(f"there is no {kind} {name!r}{nearest(name, names(kind))}; `brinell plugins` lists them")


def _scratch(kind: str, name: str) -> type[Any]:
    source, _, attribute = name.rpartition(":")
    if not source:
        raise RequestError(f"{name!r} names no class: write file.py:Class or module:Class for a {kind} of your own")
    try:
        module = import_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
    except ModuleNotFoundError as error:
        raise RequestError(f"module {source!r} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"module {source!r} failed on import with {type(error).__name__}: {error}") from error
    plugin = getattr(module, attribute, None)
    if not isinstance(plugin, type):
        raise RequestError(f"{source} has no class {attribute!r}{nearest(attribute, dir(module))}")
    if not dataclasses.is_dataclass(plugin):
        raise RequestError(f"{attribute} in {source} is no dataclass: write @dataclass(frozen=True, kw_only=True) above it")
    return plugin


def _only_export(module: ModuleType) -> type[Any]:
    exported = [getattr(module, name) for name in module.__all__]
    if len(exported) != 1 or not dataclasses.is_dataclass(exported[0]):
        raise RequestError(f"{module.__name__} must export exactly one dataclass in __all__")
    return cast(type[Any], exported[0])


def build(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """An instance of the plugin with these settings; text is converted to the type of its field.

    Raises:
        RequestError: unknown plugin or option (with the nearest name), or a value of the wrong type or range.
    """
    plugin = load(kind, name)
    fields = {field.name: field for field in dataclasses.fields(plugin)}
    hints = get_type_hints(plugin)
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in fields:
            known = ", ".join(sorted(fields)) or "none"
            raise RequestError(f"{kind} {name} has no option {key!r}{nearest(key, fields)}; it has: {known}")
        part = fields[key].metadata.get("plugin")
        if part and isinstance(value, str):
            values[key] = parts(part, value)
        else:
            values[key] = found = _convert(f"option {key} of {kind} {name}", hints[key], value)
            if key != "seed" and isinstance(found, int) and found > MOST_COUNT:
                raise RequestError(f"option {key} of {kind} {name} is {found}: it is at most {MOST_COUNT:,}")
    try:
        return plugin(**values)
    except ValueError as error:
        raise RequestError(f"{kind} {name}: {error}") from None


def parts(kind: str, text: str) -> tuple[Any, ...]:
    """Plugins that belong together, written `NAME+NAME`; each may have options of its own as NAME(key=value,...).

    Raises:
        RequestError: a text of another form, or as `build`.
    """
    found = []
    for one in split(text):
        name, bracket, rest = one.partition("(")
        pairs = [pair.partition("=") for pair in rest.removesuffix(")").split(",") if pair]
        if bool(bracket) != rest.endswith(")") or not name or not all(key and equals for key, equals, _ in pairs):
            raise RequestError(f"{text!r} names no {kind}s: write NAME+NAME, and options as NAME(key=value,key=value)")
        options = {key.strip(): value for key, _, value in pairs}
        found.append(build(kind, name.strip(), options))
    return tuple(found)


def head(text: str) -> str:
    """The name in `NAME`, `NAME(key=value)` or `NAME?key=value`."""
    return text.partition("(")[0].partition("?")[0]


def split(text: str) -> list[str]:
    """The parts of `NAME+NAME(key=value)`; a `+` within brackets joins values of one setting."""
    return re.split(r"\+(?![^(]*\))", text)


def _convert(what: str, hint: Any, value: Any) -> Any:
    if isinstance(value, str) and get_origin(hint) is tuple:
        value = tuple(value.split("+"))
        return tuple(_convert(what, get_args(hint)[0], one) for one in value)
    try:
        return TypeAdapter(hint).validate_python(value, strict=not isinstance(value, str))
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise RequestError(f"{what} is {value!r}: {problem[0].lower()}{problem[1:]}") from None


def written(plugin: Any) -> dict[str, Any]:
    """The settings of a plugin as JSON has them; of those that are plugins themselves also their class and what its file holds.

    A plugin that reads files of its own says what is in them by a method `digest`.
    """
    settings = {}
    for field in dataclasses.fields(plugin):
        value = getattr(plugin, field.name)
        parts = value if isinstance(value, tuple) else ()
        if field.metadata.get("plugin"):
            settings[field.name] = [
                {"plugin": type(one).__qualname__, "source": _source(type(one))} | written(one) for one in parts
            ]
        else:
            settings[field.name] = list(value) if isinstance(value, tuple) else value
    return settings | ({"digest": plugin.digest()} if hasattr(plugin, "digest") else {})


def _source(plugin: type[Any]) -> str:
    """The module of a plugin, or for scratch work a hash of its file."""
    if plugin.__module__.startswith("brinell."):
        return plugin.__module__
    # A scratch file is no module that one could import again, so a method is asked where its text lies.
    written_in = inspect.getsourcefile(plugin.__call__)
    return hashlib.blake2b(bounded.read(Path(str(written_in)), bounded.MOST_TEXT), digest_size=8).hexdigest()


def nearest(name: str, known: Iterable[str]) -> str:
    """The closest of `known`, as the end of a message; empty where none is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else ""
