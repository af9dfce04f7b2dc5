"""A hash of models that exist in memory only: arrays bit by bit, functions by their source and the values that they refer to.

Nothing is pickled. An object that cannot be inspected, such as one of another library, is represented by its class;
`models._callable` adds the predicted classes on random inputs.
"""

import functools
import hashlib
import inspect
import linecache
import re
import threading
import types
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PARSING = threading.Lock()
"""Finding the source of a class parses its file. Python 3.11 cannot do that in two threads at once: it counts the depth for all
threads together and stops with a SystemError.
"""
_SOURCES: dict[tuple[str, str, int | None], str] = {}
"""Sources of classes by the text of their file, their name in it, and their first line where Python knows it."""
DEEPEST = 60
"""Maximum depth to which nested values are followed."""


def digest_of(*values: Any) -> str:
    """Hash of the content of these values, the same for equal content in another process."""
    hash = hashlib.blake2b(digest_size=16)
    _feed(hash, values, {}, 0)
    return hash.hexdigest()


def modules_in(root: Any) -> list[nn.Module]:
    """The torch modules that a function, a bound method or a partial refers to, each once."""
    modules: dict[int, nn.Module] = {}
    visited: set[int] = set()

    def collect(part: Any) -> None:
        """Collect the modules that a function refers to."""
        if id(part) in visited:
            return
        visited.add(id(part))
        if isinstance(part, nn.Module):
            modules[id(part)] = part
        elif isinstance(part, functools.partial | types.FunctionType | types.MethodType | list | tuple | dict):
            for inner in _parts(part):
                collect(inner)
        elif not isinstance(part, type | types.ModuleType) and callable(part) and hasattr(part, "__dict__"):
            for inner in vars(part).values():
                collect(inner)

    collect(root)
    return list(modules.values())


def structure_of(module: nn.Module) -> str:
    """The printed module without memory addresses, and the source of each class that does not come from torch."""
    text = [re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module))]
    for kind in sorted({type(part) for part in module.modules()}, key=lambda kind: (kind.__module__, kind.__qualname__)):
        text.append(kind.__qualname__)
        if not kind.__module__.startswith("torch."):
            text.append(source_of(kind))
    return "\n".join(text)


def source_of(definition: Any) -> str:
    """Source of a class or function; empty if it was typed in and never saved."""
    try:
        with PARSING:
            return _source_of_class(definition) if isinstance(definition, type) else inspect.getsource(definition)
    except (OSError, TypeError):
        return ""


def _source_of_class(definition: type) -> str:
    """Source of a class, found once for each content of its file: copies of a model come from the same file again and again."""
    if (file := inspect.getsourcefile(definition)) is None:
        return inspect.getsource(definition)
    linecache.checkcache(file)
    key = "".join(linecache.getlines(file)), definition.__qualname__, getattr(definition, "__firstlineno__", None)
    if key not in _SOURCES:
        _SOURCES[key] = inspect.getsource(definition)
    return _SOURCES[key]


def _parts(container: Any) -> list[Any]:
    """The values that a function, method, partial or container refers to."""
    if isinstance(container, functools.partial):
        return [container.func, *container.args, *container.keywords.values()]
    if isinstance(container, types.MethodType):
        return [container.__self__, container.__func__]
    if isinstance(container, types.FunctionType):
        return [value for _, value in _references(container)]
    return list(container.values()) if isinstance(container, dict) else list(container)


def _references(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Names and values that a function uses beyond its arguments: defaults, closure, and globals except libraries."""
    defaults = [*enumerate(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    references = [(str(name), value) for name, value in defaults]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            references.append((name, cell.cell_contents))
    for name in _names(function.__code__):
        if name in function.__globals__:
            value = function.__globals__[name]
            foreign = getattr(value, "__module__", None) != function.__module__
            if not isinstance(value, types.ModuleType) and not (isinstance(value, type | types.FunctionType) and foreign):
                references.append((name, value))
    return references


def _names(code: types.CodeType) -> list[str]:
    """Names that code and its inner functions use."""
    inner = [name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _names(constant)]
    return sorted({*code.co_names, *inner})


def _feed(hash: Any, value: Any, visited: dict[int, tuple[int, Any]], depth: int) -> None:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        hash.update(f"{type(value).__name__} {value!r}\0".encode())
        return
    if id(value) in visited or depth > DEEPEST:
        hash.update(f"again {visited.get(id(value), (-1, None))[0]}\0".encode())
        return
    visited[id(value)] = len(visited), value  # kept, so that no other thing comes to lie at its address
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous()
        hash.update(f"{value.dtype} {tuple(value.shape)}\0".encode())
        value = value.reshape(-1).view(dtype=torch.uint8).numpy()
    if isinstance(value, np.ndarray):
        _array(hash, value, visited, depth)
        return
    for part in _contents(value):
        _feed(hash, part, visited, depth + 1)


def _array(hash: Any, x: np.ndarray[Any, Any], visited: dict[int, tuple[int, Any]], depth: int) -> None:
    hash.update(f"array {x.dtype} {x.shape}\0".encode())
    if x.dtype.names:  # field by field: between them lies padding of no meaning
        for name in x.dtype.names:
            _array(hash, x[name], visited, depth)
    elif x.dtype == object:
        for element in x.ravel().tolist():
            _feed(hash, element, visited, depth + 1)
    else:
        hash.update(np.ascontiguousarray(x).tobytes())


def _contents(value: Any) -> list[Any]:
    """The contents of a value, in an order that does not depend on the process."""
    if isinstance(value, nn.Module):
        return [structure_of(value), dict(value.named_parameters()), dict(value.named_buffers())]
    if isinstance(value, Mapping):
        return [f"{len(value)} pairs", *(part for pair in value.items() for part in pair)]
    if isinstance(value, list | tuple):
        return [f"{len(value)} in order", *value]
    if isinstance(value, set | frozenset):
        return [f"{len(value)} of a set", *sorted(map(repr, value))]
    if isinstance(value, functools.partial | types.MethodType):
        return [type(value).__name__, *_parts(value)]
    if isinstance(value, types.FunctionType):
        # Several lambdas may share one line of source.
        text = source_of(value) if value.__name__ != "<lambda>" else ""
        return [text or _code(value.__code__), *(part for pair in _references(value) for part in pair)]
    if isinstance(value, type):
        return [f"class {value.__module__}.{value.__qualname__}"]
    return [f"{type(value).__module__}.{type(value).__qualname__}", *_state(value)]


def _code(code: types.CodeType) -> list[Any]:
    """The content of a code object without file name and line numbers."""
    constants = [_code(constant) if isinstance(constant, types.CodeType) else constant for constant in code.co_consts]
    return [code.co_code, constants, list(code.co_names)]


def _state(value: Any) -> list[Any]:
    """The attributes of an object if they are known to be its complete state, the weights of a Keras model, otherwise nothing."""
    if callable(weights := getattr(value, "get_weights", None)):
        return [np.asarray(weight) for weight in weights()]
    library = type(value).__module__.partition(".")[0]
    is_readable = (
        library in ("sklearn", "numpy", "scipy", "builtins") or hasattr(value, "get_params") or bool(source_of(type(value)))
    )
    if not is_readable or isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return []
    try:
        state = value.__getstate__()
    except Exception:
        return []
    return [source_of(type(value)) if library not in ("sklearn", "numpy", "scipy") else "", state]
