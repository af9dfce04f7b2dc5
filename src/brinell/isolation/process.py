"""The child process of a plug-in that does not come with Brinell, as this process sees it: started, asked, ended.

The model, the data, the ledger and the run folder stay here. Messages of the child are validated before anything uses them. If
the child ends, is silent for too long or sends an invalid message, it has failed, which is a ContractError in one line
(design/0024-isolation.md).
"""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from brinell.core.contracts import Kind
from brinell.core.errors import OPTION_MARKS, ContractError, RequestError
from brinell.core.frames import EndedError, Frame, Pipe, PipeError
from brinell.manifest import MOST, Content, Listing, fault, misfit

GROUP_SECONDS = 3600.0
"""Total seconds that this process waits for the child in one group of samples."""
CALL_SECONDS = 600.0
"""Total seconds that this process waits for a call without queries, such as that of a distortion."""
END_SECONDS = 0.2
"""Seconds for a child to end by itself before it is killed."""
START_SECONDS = 120.0
"""Seconds within which the child builds the plug-in, and answers each request about it."""
ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TMPDIR")
"""Environment variables that the child receives. No token is among them."""
MAX_RATIO = 64
"""Largest size of a frame, as a multiple of what was sent."""
MIN_FRAME_BYTES = 1 << 26
"""Bytes that are allowed in addition."""
DEPTH = 20
"""Largest depth of a table of the child."""
MOST_TEXT = 300
"""Characters of a text of the child that a line shows."""

Reply = Callable[[Frame], Mapping[str, Tensor]]
"""Answers a query that the child makes while it works."""


def _checked_line(text: str) -> str:
    """A text on one line that changes nothing around it where it is shown."""
    if not text.isprintable():
        raise misfit("holds characters that cannot be shown on one line")
    return text


def _checked_facts(value: dict[str, Any]) -> dict[str, Any]:
    """A table as JSON has it, without numbers and depths that other readers of JSON refuse."""
    if not _is_plain(value, DEPTH):
        raise misfit("holds more than texts of one line, finite numbers, lists and tables")
    return value


def _is_plain(value: Any, depth: int) -> bool:
    """True if a value from JSON is written as JSON again by every writer."""
    if isinstance(value, dict | list):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(part, depth - 1) for part in parts)
    if isinstance(value, str):
        return value.isprintable()
    return value is None or (isinstance(value, int) and abs(value) <= MOST) or (isinstance(value, float) and math.isfinite(value))


Line = Annotated[str, Field(max_length=2000), AfterValidator(_checked_line)]
"""A text that people are shown."""
Facts = Annotated[dict[str, Any], AfterValidator(_checked_facts)]
"""A table that is written to the run folder."""


class Properties(Content):
    """The child's description of the plug-in that it has built."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
    """Name of its class."""
    summary: Line
    """First line of its docstring."""
    defaults: dict[Line, Line]
    """Its settings with their defaults, as Python writes them."""
    settings: Facts
    """Its settings."""
    access: Annotated[int, Field(ge=1, le=3)]
    """Access to a model that it needs."""
    domains: Listing[Kind]
    """The kinds of data that it supports."""


class PluginProcess:
    """The child process of one plug-in, which starts when it is asked for the first time.

    Args:
        kind: kind of the plug-in, such as attack.
        name: the plug-in as `plugins.build` takes it.
        options: its settings.
        form: what its description has to contain.
    """

    def __init__(self, kind: str, name: str, options: Mapping[str, Any], form: type[Properties]) -> None:
        self.kind, self.name, self.options, self.form = kind, name, dict(options), form
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None

    def __del__(self) -> None:
        try:
            self.end()
        except Exception:
            pass

    def copy(self) -> "PluginProcess":
        """A new process for the same plug-in."""
        return PluginProcess(self.kind, self.name, self.options, self.form)

    @property
    def running(self) -> bool:
        """True if the child was started and has not failed."""
        return self._process is not None

    def start(self) -> dict[str, Any]:
        """Start the child and return its description of the plug-in.

        Raises:
            RequestError: the child cannot build it.
        """
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        threads = str(torch.get_num_threads())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "brinell.engine.plugin_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C of the terminal is for this process, which ends the child
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._pipe = Pipe(
            self._process.stdout.fileno(), self._process.stdin.fileno(), most=MIN_FRAME_BYTES, seconds=START_SECONDS
        )
        path = [os.path.abspath(folder) for folder in sys.path]
        fields = {"kind": self.kind, "name": self.name, "options": self.options, "path": path, "threads": int(threads)}
        try:
            self._pipe.send("build", fields)
            frame = self._pipe.receive()
        except PipeError as error:
            raise RequestError(str(self.failure(error))) from None
        if frame.op == "failed":
            self.end()
            raise RequestError(_text(frame, "why") or "it fails without a word")
        if reason := fault(frame.fields, self.form):
            raise RequestError(str(self.failure(f"it describes itself by something in which {reason}")))
        return frame.fields

    def ask(
        self,
        op: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Tensor] | None = None,
        *,
        form: type[Content] = Content,
        seconds: float = START_SECONDS,
        reply: Reply | None = None,
    ) -> Frame:
        """Send a request to the child, answer its queries by `reply` while it works, and return its checked answer.

        Raises:
            ContractError: the child failed, or its answer does not have the form.
            RequestError: the plug-in refuses the request.
        """
        if self._pipe is None:
            self.start()
        pipe, arrays = self._pipe, arrays or {}
        assert pipe is not None
        pipe.remaining = seconds
        pipe.most = MIN_FRAME_BYTES + MAX_RATIO * sum(array.element_size() * array.numel() for array in arrays.values())
        try:
            pipe.send(op, fields, arrays)
            while (frame := self.receive()).op != "done":
                if reply is None:
                    raise PipeError(f"it was asked for {op} and said {frame.op[:40]!r}")
                pipe.send("answer", None, reply(frame))
        except PipeError as error:
            raise self.failure(error) from None
        except BaseException:
            self.end()  # the child waits for an answer that will not come
            raise
        if reason := fault(frame.fields, form):
            raise self.failure(f"it answers {op} by something in which {reason}")
        return frame

    def send(self, op: str, arrays: Mapping[str, Tensor]) -> None:
        """Send the child a question while one of its own is answered."""
        assert self._pipe is not None
        self._pipe.send(op, None, arrays)

    def receive(self) -> Frame:
        """Next frame of the child; a failure of the child is raised."""
        assert self._pipe is not None
        frame = self._pipe.receive()
        if frame.op != "failed":
            return frame
        kind, reason = _text(frame, "kind"), _text(frame, "why")
        if kind == RequestError.__name__:
            raise RequestError(f"{self.kind} {self.name}: {reason}")
        raise PipeError(f"it ended with {kind}: {reason}")

    def failure(self, reason: str | PipeError) -> ContractError:
        """End the child and return the error for its failure."""
        code = self.end()
        suffix = f" (exit code {code})" if isinstance(reason, EndedError) else ""
        return ContractError(
            f"{self.kind} {self.name}, in a process of its own, failed: {reason}{suffix}; nothing of it is recorded"
        )

    def end(self) -> int | None:
        """End the child; returns its exit code if it had ended by itself."""
        process, self._process, self._pipe = self._process, None, None
        if process is None:
            return None
        code = _exit_code(process)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that the plug-in started; it leads their group
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        return code


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Exit code of a child that ends by itself within a moment. It is not reaped, so that its number stays its own."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is not None:
            return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)


def _text(frame: Frame, field: str) -> str:
    """A text of the child on one line. Marks of options stay, and other characters that cannot be shown go."""
    text = " ".join(str(frame.fields.get(field, "")).split())[:MOST_TEXT]
    return "".join(character for character in text if character.isprintable() or character in OPTION_MARKS)
