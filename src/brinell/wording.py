"""How a call speaks: errors from deeper down name options of the command line, and a call from Python names keywords."""

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from brinell.core.errors import BrinellError

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
FLAGS = {"resume": "resume=True", "without-checks": "without_checks=True"}
"""Options that are switches, as keywords."""


def worded(call: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """The call with errors that speak of keywords, where those from deeper down speak of options: `out=` for `--out`."""

    @functools.wraps(call)
    def worded_call(*given: Arguments.args, **keywords: Arguments.kwargs) -> Answer:
        try:
            return call(*given, **keywords)
        except BrinellError as error:
            error.args = (in_python(str(error)), *error.args[1:])
            raise

    return worded_call


def in_options(call: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """A call of Python as the command line makes it, whose errors speak of options."""
    inner: Callable[Arguments, Answer] = getattr(call, "__wrapped__", call)
    return inner


def in_python(line: str) -> str:
    """A line with options of the command line written as keywords."""
    keyword = r"--([a-z][a-z-]*)(?: (?=[A-Z]{2}))?"  # with the space before the name of its value, as in --out FOLDER
    line = re.sub(r"--shard (\d+/\d+)", r'shard="\1"', line)
    return re.sub(keyword, lambda found: FLAGS.get(found[1], f"{found[1].replace('-', '_')}="), line)
