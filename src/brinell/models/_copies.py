"""Copies of a model in memory.

`copy.deepcopy` shares functions, so a closure that counts its calls would count those of its copies too. Here the user's own
functions are copied as well, with their closures, defaults, attributes, and the globals that they refer to; so are random
generators and locks. Classes are shared, and with them what a method keeps in its class or in the globals of its file.
"""

import copy
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import ModelError, one_line
from brinell.core.model import Model
from brinell.models._content import global_references, is_users, parts_of

LOCKS = {type(make()): make for make in (threading.Lock, threading.RLock)}


def model_copier(model: Model) -> Callable[[], Model]:
    """A function that returns copies of the model as it is now; each call raises ModelError if it cannot be copied."""
    try:
        pristine = copy_object(model)
    except Exception as error:
        text = f"the model cannot be copied ({type(error).__name__}: {one_line(error, 100)})"

        def refuse() -> Model:
            """Raise the reason."""
            raise ModelError(text)

        return refuse
    return lambda: cast(Model, copy_object(pristine))


def copy_object(value: Any) -> Any:
    """A deep copy of an object that shares no state with it but that of classes."""
    memo: dict[int, Any] = {}
    functions, scopes = list[types.FunctionType](), dict[int, dict[str, Any]]()
    for part in _reachable(value):
        if isinstance(part, types.FunctionType):
            functions.append(part)
            scope = scopes.setdefault(id(part.__globals__), dict(part.__globals__))
            cells = tuple(types.CellType() for _ in part.__closure__ or ())
            memo[id(part)] = types.FunctionType(part.__code__, scope, part.__name__, None, cells)
        elif isinstance(part, torch.Generator):
            memo[id(part)] = part.clone_state()
        elif type(part) in LOCKS:
            memo[id(part)] = LOCKS[type(part)]()
    for function in functions:
        _fill(function, memo[id(function)], memo)
    return copy.deepcopy(value, memo)


def _fill(function: types.FunctionType, made: types.FunctionType, memo: dict[int, Any]) -> None:
    """Give the copy of a function copies of what the function refers to."""
    made.__defaults__ = copy.deepcopy(function.__defaults__, memo)
    made.__kwdefaults__ = copy.deepcopy(function.__kwdefaults__, memo)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    made.__dict__.update(copy.deepcopy(function.__dict__, memo))
    for cell, empty in zip(function.__closure__ or (), made.__closure__ or (), strict=True):
        try:
            empty.cell_contents = copy.deepcopy(cell.cell_contents, memo)
        except ValueError:  # not assigned yet
            continue
    for name, value in global_references(function):
        if not isinstance(value, type):
            made.__globals__[name] = copy.deepcopy(value, memo)


def _reachable(root: Any) -> Iterator[Any]:
    """Every user's function, generator and lock that an object refers to, each once."""
    waiting, visited = [root], dict[int, Any]()
    while waiting:
        part = waiting.pop()
        if id(part) in visited or isinstance(part, type | types.ModuleType | Tensor | np.ndarray | str | bytes | int | float):
            continue
        visited[id(part)] = part
        if isinstance(part, types.FunctionType) and not is_users(part):
            continue
        if isinstance(part, torch.Generator | types.FunctionType) or type(part) in LOCKS:
            yield part
        waiting += [*parts_of(part), *getattr(part, "__dict__", {}).values()]
