"""What goes wrong, in one line: what happened, why, and what to do about it. The command line turns each into its exit code."""

import functools
import re
from collections.abc import Callable
from enum import Enum
from typing import ParamSpec, TypeVar

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")


def one_line(error: BaseException, most: int = 300) -> str:
    """What an error says, without line breaks and cut to `most` characters; the name of its class where it says nothing."""
    return " ".join(str(error).split())[:most] or type(error).__name__


class Spelling(Enum):
    """How the reader of a line writes an option."""

    PYTHON = "python"
    TERMINAL = "terminal"


def option(name: str, value: str = "") -> str:
    """An option within a line, to be spelled by whoever shows the line: `--out FOLDER` at a terminal, `out=` in Python.

    Args:
        name: the option as a Python keyword, such as `batch_size`.
        value: the value to give: shown in both spellings where it is one (`3/16`), at the terminal alone where it is a
            placeholder in capitals (`FOLDER`); empty for none.
    """
    return f"\ue000{name}\ue001{value}\ue002"


_OPTION = re.compile("\ue000([a-z_0-9]+)\ue001([^\ue002]*)\ue002")
SWITCHES = frozenset(("resume", "without_checks"))
"""Options without a value, which Python sets to True."""


def spell(line: str, spelling: Spelling) -> str:
    """The line with its options as the reader writes them."""
    return _OPTION.sub(lambda match: _spelled(match[1], match[2], spelling), line)


def _spelled(name: str, value: str, spelling: Spelling) -> str:
    if spelling is Spelling.TERMINAL:
        return f"--{name.replace('_', '-')}" + (f" {value}" if value else "")
    if name in SWITCHES:
        return f"{name}=True"
    placeholder = not value or value.isupper()
    return f"{name}=" + ("" if placeholder else value if value.isdigit() else f'"{value}"')


class BrinellError(Exception):
    """Base of every error that a user can mend: what happened, why, and what to do, in one line.

    Args:
        what: what happened.
        why: the reason, where `what` does not say it.
        remedy: what to do about it.
        option: the option at fault, as a Python keyword; empty where it is none.
    """

    exit_code = 2
    spelling = Spelling.TERMINAL
    """How its text spells options: as at a terminal, until a call from Python lets it out (`in_python`)."""

    def __init__(self, what: str = "", why: str = "", remedy: str = "", *, option: str = "") -> None:
        super().__init__(what, why, remedy)
        self.what, self.why, self.remedy, self.option = what, why, remedy, option

    @property
    def line(self) -> str:
        """The whole line, whose options are not spelled yet."""
        reason = f"{self.what}: {self.why}" if self.why else self.what
        return f"{reason}{'; ' if self.why else ': '}{self.remedy}" if self.remedy else reason

    def __str__(self) -> str:
        return spell(self.line, self.spelling)


class BrinellWarning(UserWarning):
    """What a reader of figures must know before them: a failed check, a doubt about a budget."""


class RequestError(BrinellError):
    """A request that cannot be carried out: a bad option, a damaged file, a model that does not fit the data (exit 2)."""


class ModelError(BrinellError):
    """A model that answers with what no classifier may answer: NaN, a wrong shape (exit 2)."""


class StoppedError(BrinellError):
    """A run that stopped midway, with everything computed so far on disk (exit 3)."""

    exit_code = 3
    resumable = True
    """Whether going on may end otherwise."""


class DivergedError(StoppedError):
    """A training whose loss is no number: going on would end the same way (exit 3)."""

    resumable = False


class MemoryShortError(BrinellError):
    """The device had no memory for a batch; an audit halves its batches and asks again (exit 2)."""


class BatchError(ModelError):
    """A model that raises on a batch; whether one sample is to blame shows when the others are asked without it (exit 2)."""


class ContractError(BrinellError):
    """A plugin that broke its contract: an input out of bounds or over budget, undeclared access, a query too many (exit 2)."""


class UnreachableError(StoppedError):
    """A model on another machine that does not answer, or no longer answers sensibly (exit 3)."""


class SampleError(ModelError):
    """Samples that cannot be judged while the rest can: the model fails on them alone, or their inputs cannot be read."""


def in_python(call: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """A call that people make from Python: its errors spell options as keywords."""

    @functools.wraps(call)
    def edge(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return call(*args, **kwargs)
        except BrinellError as error:
            error.spelling = Spelling.PYTHON
            raise

    return edge
