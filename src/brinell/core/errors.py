"""Errors in one line: what happened, why, and what to do about it.

The command line turns each into its exit code.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec, TypeVar

from brinell.core.suggestions import suggestion

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")


def one_line(error: BaseException, most: int = 300) -> str:
    """Text of an error in one line of at most `most` characters; its class where it has no text."""
    try:
        text = str(error)
    except Exception:
        # The text of a foreign error is foreign code as well.
        text = ""
    return " ".join(text[: 10 * most].split())[:most] or type(error).__name__


def short(value: object, most: int = 60) -> str:
    """The repr of a value for an error line; of other long values than texts, their type."""
    if isinstance(value, str):
        return repr(value if len(value) <= most else f"{value[: most - 3]}...")
    try:
        text = " ".join(repr(value).split())
    except Exception:
        # The repr of a foreign object is foreign code; a list may be nested too deeply.
        text = ""
    return text if 0 < len(text) <= most else f"a {type(value).__name__}"


def option(name: str, value: str = "") -> str:
    """An option within a line, with its value: `--batch-size 32` for `batch_size`.

    In Python the name is the keyword.
    """
    return f"--{name.replace('_', '-')}" + (f" {value}" if value else "")


def options(name: str, values: Iterable[str]) -> str:
    """An option once for each of several values."""
    return " ".join(option(name, value) for value in values)


def _place_of(error: "BrinellError") -> str:
    """Module and function that made an error, such as `engine.eps_grid.parse_eps`."""
    # 0 is this function, 1 the `__init__` of BrinellError that calls it.
    frame: FrameType | None = sys._getframe(2)
    # An error of a subclass is made within its `__init__`: the place is that of the caller.
    while (
        frame is not None
        and frame.f_code.co_name == "__init__"
        and frame.f_locals.get("self") is error
    ):
        frame = frame.f_back
    if frame is None:
        return ""
    names = [name for name in frame.f_code.co_qualname.split(".") if not name.startswith("<")]
    return ".".join([str(frame.f_globals.get("__name__", "")).removeprefix("brinell."), *names])


class BrinellError(Exception):
    """Base of every error that a user can mend: what happened, why, and what to do, in one line.

    Args:
        problem: what happened.
        reason: why it happened, if `problem` does not say it.
        remedy: what to do about it.
        option: the option at fault, as a Python keyword; empty where it is none.
        instead: words of a spec that are wrong, and the right ones; None where none are sure.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str = "",
        reason: str = "",
        remedy: str = "",
        *,
        option: str = "",
        instead: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(problem, reason, remedy)

        self.problem, self.reason, self.remedy, self.option = problem, reason, remedy, option
        self.instead = instead
        self.code = _place_of(self)
        """The code names the place of the refusal as module.function: it stays the same when the
        wording changes."""

    def __str__(self) -> str:
        """Problem, reason and remedy in one line, as far as there are any."""
        reason = f"{self.problem}: {self.reason}" if self.reason else self.problem
        text = f"{reason}{'; ' if self.reason else ': '}{self.remedy}" if self.remedy else reason
        return " ".join(text.splitlines()) if len(text.splitlines()) > 1 else text


class BrinellWarning(UserWarning):
    """A warning to read before the figures: a failed check, a doubt about a budget."""


class RequestError(BrinellError):
    """A request that cannot be carried out: a bad option, a damaged file, a misfit (exit 2)."""


class ModelError(BrinellError):
    """A model whose answers are invalid for a classifier: NaN, a wrong shape (exit 2)."""


class StoppedError(BrinellError):
    """A run that stopped midway, with everything computed so far on disk (exit 3)."""

    exit_code = 3
    resumable = True
    """True if a resumed run may end differently."""


class DivergedError(StoppedError):
    """The loss of a training is not a number: resuming would end the same way (exit 3)."""

    resumable = False


class MemoryShortError(BrinellError):
    """The device had no memory for a batch; an audit halves its batches and asks again (exit 2)."""


class BatchError(ModelError):
    """A model that raises on a batch (exit 2).

    One sample may be to blame: the others are then asked without it.
    """


class ContractError(BrinellError):
    """A plugin that broke its contract: an input over budget, a query too many (exit 2)."""


class UnreachableError(StoppedError):
    """A model on another machine that does not answer, or no longer answers sensibly (exit 3)."""


class TimeUpError(Exception):
    """The time of an audit is up: what asks next is ended, and what was found so far counts."""


class SampleError(ModelError):
    """Samples that cannot be judged while the rest can.

    The model fails on them alone, or their inputs cannot be read.
    """


def is_foreign(error: BaseException) -> bool:
    """True for exceptions of foreign code, `sys.exit` included.

    Errors of Brinell and Ctrl-C are others: they end the run.
    """
    return not isinstance(error, BrinellError | KeyboardInterrupt)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Context of a call from Python: failures of files and memory in it are errors of ours."""
    try:
        yield
    except MemoryError as error:
        raise MemoryShortError(
            "this machine has too little memory for it: give a smaller "
            f"{option('batch_size')} or fewer {option('samples')}"
        ) from error
    except OSError as error:
        raise RequestError(
            f"a file cannot be used ({one_line(error)}): check its path, its rights, and the "
            "space on the disk"
        ) from error


def in_python(call: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """A call from Python: unknown keywords are errors of ours, and so is what `one_line_errors`
    catches.
    """
    parameters = inspect.signature(call).parameters

    @functools.wraps(call)
    def edge(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        # Python's own error for a keyword names no spelling that is close.
        for name in kwargs:
            if name not in parameters:
                raise RequestError(
                    f"{call.__name__} has no parameter {name!r}{suggestion(name, parameters)}"
                )
        with one_line_errors():
            return call(*args, **kwargs)

    return edge
