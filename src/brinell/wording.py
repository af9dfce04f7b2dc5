"""How a call speaks: errors from deeper down name options of the command line, and a call from Python names keywords."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from brinell.core.errors import in_python as worded

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
__all__ = ["in_options", "worded"]


def in_options(call: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """A call of Python as the command line makes it, whose errors speak of options."""
    inner: Callable[Arguments, Answer] = getattr(call, "__wrapped__", call)
    return inner
