"""A hash of models that exist in memory alone: arrays bit by bit, functions by their source and by what they refer to.

No pickle is made. What cannot be looked into (an object of another library) counts by its class, and `models._callable` adds what
it answers.
"""

import functools
import hashlib
import inspect
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
"""To find the text of a class its file is parsed, which Python 3.11 cannot do in two threads at once (it counts depth for all of
them together, and stops with a SystemError)."""
DEEPEST = 60
"""Nested things are followed this far."""


def digest_of(*things: Any) -> str:
    """Hash of what these things hold, the same for equal content in another process."""
    hashed = hashlib.blake2b(digest_size=16)
    _feed(hashed, things, {}, 0)
    return hashed.hexdigest()


def modules_in(thing: Any) -> list[nn.Module]:
    """The torch modules that a function, a bound method or a partial refers to, each once."""
    modules: dict[int, nn.Module] = {}
    seen: set[int] = set()

    def collect(part: Any) -> None:
        if id(part) in seen:
            return
        seen.add(id(part))
        if isinstance(part, nn.Module):
            modules[id(part)] = part
        elif isinstance(part, functools.partial | types.FunctionType | types.MethodType | list | tuple | dict):
            for inner in _parts(part):
                collect(inner)
        elif not isinstance(part, type | types.ModuleType) and callable(part) and hasattr(part, "__dict__"):
            for inner in vars(part).values():
                collect(inner)

    collect(thing)
    return list(modules.values())


def structure_of(module: nn.Module) -> str:
    """The printed module without memory addresses, and the source of each class that torch does not bring."""
    text = [re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module))]
    for kind in sorted({type(part) for part in module.modules()}, key=lambda kind: (kind.__module__, kind.__qualname__)):
        text.append(kind.__qualname__)
        if not kind.__module__.startswith("torch."):
            text.append(source_of(kind))
    return "\n".join(text)


def source_of(thing: Any) -> str:
    """The text of a class or function; empty where it was typed in and not saved."""
    try:
        with PARSING:
            return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""


def _parts(thing: Any) -> list[Any]:
    """What a function, method, partial or container refers to."""
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, types.FunctionType):
        return [value for _, value in _referred(thing)]
    return list(thing.values()) if isinstance(thing, dict) else list(thing)


def _referred(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Names and values that a function uses beside its arguments: defaults, its closure, globals that are no libraries."""
    defaults = [*enumerate(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    named = [(str(name), value) for name, value in defaults]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            named.append((name, cell.cell_contents))
    for name in _names(function.__code__):
        if name in function.__globals__:
            value = function.__globals__[name]
            foreign = getattr(value, "__module__", None) != function.__module__
            if not isinstance(value, types.ModuleType) and not (isinstance(value, type | types.FunctionType) and foreign):
                named.append((name, value))
    return named


def _names(code: types.CodeType) -> list[str]:
    inner = [name for one in code.co_consts if isinstance(one, types.CodeType) for name in _names(one)]
    return sorted({*code.co_names, *inner})


def _feed(hashed: Any, thing: Any, seen: dict[int, tuple[int, Any]], depth: int) -> None:
    """Add one thing to a hash."""
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes | np.generic):
        hashed.update(f"{type(thing).__name__} {thing!r}\0".encode())
        return
    if id(thing) in seen or depth > DEEPEST:
        hashed.update(f"again {seen.get(id(thing), (-1, None))[0]}\0".encode())
        return
    seen[id(thing)] = len(seen), thing  # kept, so that no other thing comes to lie at its address
    if isinstance(thing, Tensor):
        thing = thing.detach().cpu().contiguous()
        hashed.update(f"{thing.dtype} {tuple(thing.shape)}\0".encode())
        thing = thing.reshape(-1).view(dtype=torch.uint8).numpy()
    if isinstance(thing, np.ndarray):
        _array(hashed, thing, seen, depth)
        return
    for part in _opened(thing):
        _feed(hashed, part, seen, depth + 1)


def _array(hashed: Any, x: np.ndarray[Any, Any], seen: dict[int, tuple[int, Any]], depth: int) -> None:
    hashed.update(f"array {x.dtype} {x.shape}\0".encode())
    if x.dtype.names:  # field by field: between them lies padding of no meaning
        for name in x.dtype.names:
            _array(hashed, x[name], seen, depth)
    elif x.dtype == object:
        for one in x.ravel().tolist():
            _feed(hashed, one, seen, depth + 1)
    else:
        hashed.update(np.ascontiguousarray(x).tobytes())


def _opened(thing: Any) -> list[Any]:
    """What is inside a thing, in an order that does not depend on the process."""
    if isinstance(thing, nn.Module):
        return [structure_of(thing), dict(thing.named_parameters()), dict(thing.named_buffers())]
    if isinstance(thing, Mapping):
        return [f"{len(thing)} pairs", *(part for pair in thing.items() for part in pair)]
    if isinstance(thing, list | tuple):
        return [f"{len(thing)} in order", *thing]
    if isinstance(thing, set | frozenset):
        return [f"{len(thing)} of a set", *sorted(map(repr, thing))]
    if isinstance(thing, functools.partial | types.MethodType):
        return [type(thing).__name__, *_parts(thing)]
    if isinstance(thing, types.FunctionType):
        # Several lambdas may share one line of source.
        text = source_of(thing) if thing.__name__ != "<lambda>" else ""
        return [text or _code(thing.__code__), *(part for pair in _referred(thing) for part in pair)]
    if isinstance(thing, type):
        return [f"class {thing.__module__}.{thing.__qualname__}"]
    return [f"{type(thing).__module__}.{type(thing).__qualname__}", *_state(thing)]


def _code(code: types.CodeType) -> list[Any]:
    """What a compiled function does, without where it stands."""
    constants = [_code(one) if isinstance(one, types.CodeType) else one for one in code.co_consts]
    return [code.co_code, constants, list(code.co_names)]


def _state(thing: Any) -> list[Any]:
    """What an object keeps, of classes that are known to keep nothing else; weights of Keras; otherwise nothing."""
    if callable(weights := getattr(thing, "get_weights", None)):
        return [np.asarray(one) for one in weights()]
    home = type(thing).__module__.partition(".")[0]
    own = home in ("sklearn", "numpy", "scipy", "builtins") or hasattr(thing, "get_params") or bool(source_of(type(thing)))
    if not own or isinstance(thing, types.ModuleType | types.BuiltinFunctionType):
        return []
    try:
        state = thing.__getstate__()
    except Exception:
        return []
    return [source_of(type(thing)) if home not in ("sklearn", "numpy", "scipy") else "", state]
