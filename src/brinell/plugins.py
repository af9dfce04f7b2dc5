"""Names, classes and instances of plugins: the only dynamic import of the package.

A plugin is a frozen, keyword-only dataclass of settings that can be built with no arguments. It is
found by the name of its file in the folder of its kind, by an entry point `brinell.<kind>` of an
installed package, or as `module:Class` or `file.py:Class` for scratch work. Listing imports
nothing.
"""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from brinell.core.errors import RequestError
from brinell.core.settings import MOST_COUNT
from brinell.core.suggestions import nearest_name, suggestion
from brinell.core.user_files import PREFIX, hash_code, import_file, is_windows_path

FOLDERS = {
    "attack": "brinell.attacks",
    "bound": "brinell.bounds",
    "distance": "brinell.distances",
    "distortion": "brinell.distortions",
    "defence": "brinell.defences",
    "detector": "brinell.detectors",
    "explainer": "brinell.explainers",
    "dataset": "brinell.datasets",
    "model": "brinell.models",
}
"""Kind to the package whose modules are its plugins."""


_REFUSES: ContextVar[bool] = ContextVar("refuses", default=False)


class ForeignCodeError(RequestError):
    """Code that does not run where another's folder is judged."""


@contextmanager
def refusing_code() -> Iterator[None]:
    """Context in which plugins of files and modules that a spec names are refused."""
    token = _REFUSES.set(True)
    try:
        yield
    finally:
        _REFUSES.reset(token)


class Spec(NamedTuple):
    """A plugin as people write it: `NAME[:PATH][?key=value&...]`."""

    name: str
    path: str
    options: dict[str, str]


def parse(text: str) -> Spec:
    """Split `NAME:PATH?key=value` into its parts.

    `module:Class` and `file.py:Class` are names as a whole, since a plugin's own name has neither a
    dot nor a slash. The path of a URL (`http://...`) stays with its scheme.
    """
    body, _, query = text.partition("?")
    head, _, path = body.partition(":")
    # Addresses have colons and question marks of their own.
    if head in ("http", "https"):
        head, path = "http", body
    # On Windows a colon stands behind the letter of a drive.
    elif is_windows_path(body) or is_scratch(head):
        head, path = body, ""

    if not head:
        raise RequestError(f"{text!r} names nothing: write NAME, NAME:PATH or NAME?option=value")

    options = {}
    for pair in query.split("&") if query else []:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise RequestError(f"the options of {text!r} are not key=value pairs joined by &")
        options[key] = value

    return Spec(head, path, options)


def with_options(text: str, options: Mapping[str, str | None]) -> str:
    """A plugin's text with these options in place of those of the same names; None
    takes one away.
    """
    body, kept = text.partition("?")[0], {**parse(text).options, **options}
    pairs = "&".join(f"{name}={value}" for name, value in kept.items() if value is not None)
    return f"{body}?{pairs}" if pairs else body


def names(kind: str) -> list[str]:
    """Sorted names of all plugins of a kind, importing none of them."""
    return sorted(_built_in(kind) | {entry.name for entry in _installed(kind)})


@functools.cache
def _installed(kind: str) -> EntryPoints:
    """The entry points of a kind, in the metadata of installed packages."""
    # Once for all stages of a cascade: it reads the metadata of every installed package.
    return entry_points(group=f"brinell.{kind}")


def _built_in(kind: str) -> set[str]:
    """Names of the plugins in the folder of a kind; the files are not imported."""
    package = importlib.import_module(FOLDERS[kind])  # it is empty
    modules = pkgutil.iter_modules(package.__path__)
    return {module.name.replace("_", "-") for module in modules if not module.name.startswith("_")}


def is_scratch(name: str) -> bool:
    """True if a name is that of a module or a file: plugins have neither dots nor slashes."""
    return any(mark in name for mark in "./\\")


def load(kind: str, name: str) -> type[Any]:
    """The dataclass of the plugin `name`."""
    if is_scratch(name):
        return _scratch(kind, name)
    entries = [entry for entry in _installed(kind) if entry.name == name]
    built_in = name in _built_in(kind)
    # A package may not replace a plug-in of ours, or of another package, without saying so.
    if len(entries) + built_in > 1:
        sources = [entry.value for entry in entries] + [FOLDERS[kind]] * built_in
        raise RequestError(
            f"two {kind} plugins are called {name!r} ({', '.join(sources)}): "
            "uninstall one of the packages"
        )

    if built_in:
        module = importlib.import_module(f"{FOLDERS[kind]}.{name.replace('-', '_')}")
        classes = [
            value
            for name, value in vars(module).items()
            if dataclasses.is_dataclass(value)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        ]
        assert len(classes) == 1, f"{module.__name__} holds one public dataclass, its plug-in"
        return cast(type[Any], classes[0])
    if entries:
        return cast(type[Any], entries[0].load())
    raise RequestError(
        f"there is no {kind} "
        f"{name!r}{suggestion(name, names(kind), '`brinell plugins` lists them')}"
    )


def _unknown_option(kind: str, name: str, key: str, fields: Iterable[str]) -> RequestError:
    """The error about an option that a plugin does not have."""
    options_text = ", ".join(sorted(fields)) or "none"
    nearest = nearest_name(key, fields)
    return RequestError(
        f"{kind} {name} has no option {key!r}{suggestion(key, fields)}; it has: {options_text}",
        instead=(f"{key}=", f"{nearest}=") if nearest else None,
    )


def _scratch(kind: str, name: str) -> type[Any]:
    """The dataclass that `file.py:Class` or `module:Class` names."""
    source, _, attribute = name.rpartition(":")
    # Where a folder is judged that somebody else made, its code must not run.
    if _REFUSES.get():
        raise ForeignCodeError(f"{kind} {name} is code, which does not run where it is judged")
    if not source:
        raise RequestError(
            f"{name!r} names no class: write file.py:Class or module:Class for a {kind} of your own"
        )
    try:
        is_file = source.endswith(".py")
        module = import_file(Path(source)) if is_file else importlib.import_module(source)
    except RequestError:
        raise
    except ModuleNotFoundError as error:
        raise RequestError(f"module {source!r} cannot be imported: {error}") from None
    # A plug-in's file may end the program or raise anything while it is imported.
    except (Exception, SystemExit) as error:
        raise RequestError(
            f"module {source!r} failed on import with {type(error).__name__}: {error}"
        ) from error

    plugin = getattr(module, attribute, None)
    if not isinstance(plugin, type):
        raise RequestError(
            f"{source} has no class {attribute!r}{suggestion(attribute, dir(module))}"
        )
    if not dataclasses.is_dataclass(plugin):
        raise RequestError(
            f"{attribute} in {source} is no dataclass: write "
            "@dataclass(frozen=True, kw_only=True) above it"
        )
    return plugin


def build(kind: str, name: str, options: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """An instance of the plugin with these settings; text is converted to the type of its field."""
    return build_class(kind, name, load(kind, name), options)


def build_class(kind: str, name: str, plugin: type[Any], options: Mapping[str, Any]) -> Any:
    """An instance of a dataclass of settings; kind and name are those of messages."""
    fields = {field.name: field for field in dataclasses.fields(plugin)}
    hints = get_type_hints(plugin)
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in fields:
            raise _unknown_option(kind, name, key, fields)
        part = fields[key].metadata.get("plugin")
        if part and isinstance(value, str):
            values[key] = build_list(part, value)
        else:
            values[key] = converted = _convert(f"option {key} of {kind} {name}", hints[key], value)
            # A seed may be any number.
            if key != "seed" and isinstance(converted, int) and converted > MOST_COUNT:
                raise RequestError(
                    f"option {key} of {kind} {name} is {converted}: it is at most {MOST_COUNT:,}"
                )

    try:
        return plugin(**values)
    except ValueError as error:
        raise RequestError(f"{kind} {name}: {error}") from None


def describe(kind: str, name: str) -> tuple[str, dict[str, str]]:
    """The summary of a plugin's docstring, and its settings with their defaults in Python."""
    settings = load(kind, name)
    paragraph = (inspect.getdoc(settings) or "").partition("\n\n")[0]
    summary = " ".join(paragraph.split())
    return summary, {field.name: repr(field.default) for field in dataclasses.fields(settings)}


def build_list(kind: str, text: str) -> tuple[Any, ...]:
    """Build a list of plugins from `NAME+NAME`; each may have options: NAME(key=value,...)."""
    plugins = []
    for plugin_text in split(text):
        name, bracket, options_text = plugin_text.partition("(")
        pairs = [pair.partition("=") for pair in options_text.removesuffix(")").split(",") if pair]
        if (
            bool(bracket) != options_text.endswith(")")
            or not name
            or not all(key and equals for key, equals, _ in pairs)
        ):
            raise RequestError(
                f"{text!r} names no {kind}s: write NAME+NAME, and options as "
                "NAME(key=value,key=value)"
            )

        options = {key.strip(): value for key, _, value in pairs}
        plugins.append(build(kind, name.strip(), options))
    return tuple(plugins)


def head(text: str) -> str:
    """The name in `NAME`, `NAME(key=value)` or `NAME?key=value`."""
    return text.partition("(")[0].partition("?")[0]


def split(text: str) -> list[str]:
    """The parts of `NAME+NAME(key=value)`; a `+` within brackets joins values of one setting."""
    return re.split(r"\+(?![^(]*\))", text)


def _convert(description: str, hint: Any, value: Any) -> Any:
    """A value in the type of its field; a text is read as one of that type."""
    if isinstance(value, str) and get_origin(hint) is tuple:
        parts = value.split("+")
        return tuple(_convert(description, get_args(hint)[0], part) for part in parts)
    try:
        return TypeAdapter(hint).validate_python(value, strict=not isinstance(value, str))
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise RequestError(
            f"{description} is {value!r}: {problem[0].lower()}{problem[1:]}"
        ) from None


def settings_of(plugin: Any) -> dict[str, Any]:
    """The settings of a plugin as JSON.

    A setting that is a plugin includes its class and the digest of its file. A plugin that reads
    files describes their content by a method `digest`.
    """
    settings = {}

    for field in dataclasses.fields(plugin):
        value = getattr(plugin, field.name)
        parts = value if isinstance(value, tuple) else ()
        # Which code a setting is follows from its file, since two classes may share a name.
        if field.metadata.get("plugin"):
            settings[field.name] = [
                {"plugin": type(plugin_part).__qualname__, "source": source_of(type(plugin_part))}
                | settings_of(plugin_part)
                for plugin_part in parts
            ]
        else:
            settings[field.name] = list(value) if isinstance(value, tuple) else value
    return settings | ({"digest": plugin.digest()} if hasattr(plugin, "digest") else {})


def source_of(plugin: type[Any]) -> str:
    """The module of a plugin, or for scratch work a hash of its file."""
    if plugin.__module__.startswith("brinell."):
        return plugin.__module__
    file = Path(str(inspect.getsourcefile(plugin)))
    # The neighbours count for a lone file, whose imports no version pins.
    return hash_code(file, digest_size=8, siblings=plugin.__module__.startswith(PREFIX))
