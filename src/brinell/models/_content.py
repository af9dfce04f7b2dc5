"""The content of a model in memory: the parts that its functions refer to, a hash of them, and
copies.

Arrays count bit by bit; functions by their source and by the values that they refer to, defaults,
closures and globals of the same file; classes of users by the source, defaults and closures of
their functions. Nothing is pickled. An object of a library that cannot be inspected counts by its
class; `models._function` adds the predicted classes on random inputs.
"""

import copy
import functools
import hashlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.errors import ModelError, one_line
from brinell.core.model import Model

LIBRARIES = frozenset(
    (
        "brinell",
        "numpy",
        "onnx2pytorch",
        "scipy",
        "sklearn",
        "timm",
        "torch",
        "torchvision",
        "transformers",
    )
)
"""Packages whose functions and classes are known by name, and whose functions keep nothing
between calls."""
COMPLETE = ("brinell", "builtins", "numpy", "scipy", "sklearn")
"""Packages whose objects hold their complete state."""
DEEPEST = 60
"""Maximum depth to which nested values are followed."""


def is_users(definition: Any) -> bool:
    """True for a function or class of no library."""
    library = (getattr(definition, "__module__", None) or "builtins").partition(".")[0]
    return library not in LIBRARIES and library not in sys.stdlib_module_names


def bound_values(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values that a function was made with: defaults and closure."""
    yield from ((str(number), value) for number, value in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents


def global_references(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values of the globals that a function uses, but for what other files define."""
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        foreign = getattr(value, "__module__", None) != function.__module__
        if not isinstance(value, types.ModuleType | None) and not (
            isinstance(value, type | types.FunctionType) and foreign
        ):
            yield name, value


def _names(code: types.CodeType) -> list[str]:
    """The names that a code uses, with the codes of functions within it."""
    inner = [
        name
        for constant in code.co_consts
        if isinstance(constant, types.CodeType)
        for name in _names(constant)
    ]
    return sorted({*code.co_names, *inner})


def parts_of(value: Any) -> list[Any]:
    """The values that a function, method, partial, container or callable object refers to."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        # What a function closes over and which globals it names decide its answers as its code
        # does.
        return [part for _, part in (*bound_values(value), *global_references(value))]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return list(getattr(value, "__dict__", {}).values())


def modules_in(root: Any) -> list[nn.Module]:
    """The torch modules that a function, a bound method or a partial refers to, each once."""
    modules, visited, waiting = list[nn.Module](), dict[int, Any](), [root]
    while waiting:
        part = waiting.pop()
        if id(part) in visited or isinstance(part, type | types.ModuleType):
            continue
        # The object is kept with its id: an id may be given anew once its object is gone.
        visited[id(part)] = part
        if isinstance(part, nn.Module):
            modules.append(part)
        elif isinstance(part, list | tuple | dict) or callable(part):
            # Reversed, since the stack takes the last one first: modules come in the order of their
            # names.
            waiting += reversed(parts_of(part))
    return modules


def model_copier(model: Model) -> Callable[[], Model]:
    """A function that returns deep copies of the model as it is now.

    Each call raises ModelError if the model cannot be copied. Functions are shared, and so is what
    their closures hold, which the digest of a function covers.
    """
    try:
        pristine = copy.deepcopy(model)
    except Exception as error:
        text = f"the model cannot be copied ({type(error).__name__}: {one_line(error, 100)})"

        def refuse() -> Model:
            """Say why there is no copy, once somebody needs one."""
            raise ModelError(text)

        return refuse
    return lambda: copy.deepcopy(pristine)


def digest_of(*values: Any) -> str:
    """Hash of the content of these values, the same for equal content in another process."""
    hash = hashlib.blake2b(digest_size=16)
    _feed(hash, values, visited={}, depth=0)
    return hash.hexdigest()


def _feed(hash: Any, value: Any, visited: dict[int, tuple[int, Any]], depth: int) -> None:
    """Add a value to a hash, and what it consists of."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        hash.update(f"{type(value).__name__} {value!r}\0".encode())
        return
    # What occurs again counts by its number in the order of first visits, -1 for too deep.
    if id(value) in visited or depth > DEEPEST:
        hash.update(f"again {visited.get(id(value), (-1, None))[0]}\0".encode())
        return

    # The value is kept, so that no other one comes to lie at its address.
    visited[id(value)] = (len(visited), value)
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous()
        hash.update(f"{value.dtype} {tuple(value.shape)}\0".encode())
        # NumPy lacks some types of torch, but not their bytes.
        value = value.reshape(-1).view(dtype=torch.uint8).numpy() if value.numel() else np.zeros(0)
    if isinstance(value, np.ndarray):
        _array(hash, value, visited, depth)
        return
    for part in _contents(value):
        _feed(hash, part, visited, depth + 1)


def _array(
    hash: Any, x: np.ndarray[Any, Any], visited: dict[int, tuple[int, Any]], depth: int
) -> None:
    """Add an array to a hash: its type, its shape and its values."""
    hash.update(f"array {x.dtype} {x.shape}\0".encode())
    if x.dtype.names:
        # Field by field: between them lies padding of no meaning.
        for name in x.dtype.names:
            _array(hash, x[name], visited, depth)
    elif x.dtype == object:
        for element in x.ravel().tolist():
            _feed(hash, element, visited, depth + 1)
    else:
        hash.update(np.ascontiguousarray(x).data)


def _contents(value: Any) -> list[Any]:
    """The contents of a value, in an order that does not depend on the process."""
    if isinstance(value, nn.Module):
        kinds = sorted(
            {type(part) for part in value.modules()},
            key=lambda kind: (kind.__module__, kind.__qualname__),
        )
        # Addresses differ from process to process.
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
        return [text, kinds, dict(value.named_parameters()), dict(value.named_buffers())]

    if isinstance(value, Mapping):
        # The number first: else nested and flat contents could give the same text.
        return [f"{len(value)} pairs", *(part for pair in value.items() for part in pair)]
    if isinstance(value, list | tuple):
        return [f"{len(value)} in order", *value]
    if isinstance(value, set | frozenset):
        # Their order depends on the process.
        return [f"{len(value)} of a set", *sorted(map(repr, value))]
    if isinstance(value, functools.partial | types.MethodType):
        return [type(value).__name__, *parts_of(value)]

    if isinstance(value, types.FunctionType):
        # Code of installed packages is known by its name; the versions are in the manifest.
        if not is_users(value):
            return [f"{value.__module__}.{value.__qualname__}"]
        return [*_definition(value), *(part for pair in global_references(value) for part in pair)]
    if isinstance(value, type):
        name = f"class {value.__module__}.{value.__qualname__}"
        if not is_users(value):
            return [name]
        functions = filter(None, map(_function, vars(value).values()))
        return [name, *value.__bases__, *map(_definition, functions)]
    return [f"{type(value).__module__}.{type(value).__qualname__}", *_state(value)]


def _function(entry: Any) -> Any:
    """The function of a method or property of a class; None for other entries."""
    entry = entry.fget if isinstance(entry, property) else getattr(entry, "__func__", entry)
    return entry if isinstance(entry, types.FunctionType) else None


def _definition(function: types.FunctionType) -> list[Any]:
    """Source of a function, and what it was made with.

    Globals, which its calls may change, are left out.
    """
    text: Any = _code(function.__code__)
    # Several lambdas may share one line of source; what was typed in has none.
    if function.__name__ != "<lambda>":
        with suppress(OSError, TypeError):
            text = inspect.getsource(function)
    return [text, *chain.from_iterable(bound_values(function))]


def _code(code: types.CodeType) -> list[Any]:
    """A code with its constants, in which functions within it are codes again."""
    constants = [
        _code(constant) if isinstance(constant, types.CodeType) else constant
        for constant in code.co_consts
    ]
    return [code.co_code, constants, list(code.co_names)]


def _state(value: Any) -> list[Any]:
    """The attributes of an object if they are known to be its complete state.

    Of a model of Keras they are its weights; of other objects nothing.
    """
    # Keras' models pickle their graph, whose text differs between processes; their weights do not.
    if callable(weights := getattr(value, "get_weights", None)):
        return [np.asarray(weight) for weight in weights()]

    kind = type(value)
    is_complete = (
        kind.__module__.partition(".")[0] in COMPLETE
        or hasattr(value, "get_params")
        or is_users(kind)
    )
    if not is_complete or isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return []
    try:
        return [kind, value.__getstate__()]
    # An object that cannot say its state counts as having none, and is known by its class.
    except Exception:
        return []
