"""A process that keeps a model as it was before its first question, and answers for it at the end.

A deep copy shares with the model what its class, other modules or `__deepcopy__` keep. A process
does not: it is split off this one before the first question, sleeps while the run goes on, opens
the model anew by its spec, or takes the object as it was in memory, and answers. So a start costs
milliseconds, nothing is pickled, and inputs and answers go over a pipe in safetensors format.

Both processes see the same disks and machines. Python tells which files are opened, so answers that
were made with a file that is written, or was since the beginning, are named instead of trusted.
"""

import json
import math
import os
import select
import signal
import stat
import struct
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, NoReturn

import torch
from safetensors.torch import load, save
from torch import Tensor

from brinell.core.errors import one_line
from brinell.core.model import Model
from brinell.engine.context import NotMadeError
from brinell.engine.group_attack import predict
from brinell.models._answers import LogitModel

PATIENCE = 60.0
"""Seconds that a process has for its answer, beside `SLOWER` times what the audited model took."""
SLOWER = 30.0
LENGTH = struct.Struct("<Q")
"""The number of bytes of a message, which comes before it."""
OUTSIDE = {"sqlite3.connect": 0, "socket.connect": 1}
"""Events of Python by which a model reaches what processes share, with the place of its name."""
IGNORED = ("/dev/null", "/dev/urandom", "/proc/", "/sys/")
"""Beginnings of files that keep nothing of a model."""


class FreshAnswers(NamedTuple):
    """What a process answers that has answered nothing else."""

    logits: Tensor
    """(n, classes)."""
    digest: str
    """The identity of the model as it was opened there."""
    shared: str
    """A file, database or machine through which it may know what others were asked; empty if none
    was seen."""


class FreshProcess:
    """A process that sleeps until it is asked once, or closed."""

    def __init__(self, open_model: Callable[[], Model], reason: str = "") -> None:
        """Split the process off; `open_model` runs there. With a `reason`, none is made."""
        if not hasattr(os, "fork"):
            reason = "this system cannot split a process"
        self._reason, self._child = reason, 0
        if not self._reason:
            self._split(open_model)

    def _split(self, open_model: Callable[[], Model]) -> None:
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        began = time.time()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # that threads of this process are not there
            warnings.simplefilter("ignore")
            self._child = os.fork()
        if not self._child:
            os.close(from_parent)
            os.close(to_parent)
            _serve(to_child, from_child, open_model, began)
        os.close(to_child)
        os.close(from_child)
        self._writer, self._reader = from_parent, to_parent

    def ask(self, x: Tensor, kind: str | None, batch_size: int, seconds: float) -> FreshAnswers:
        """Answers to inputs (n, *shape), converted to logits if they are of a `kind`.

        The audited model took `seconds` for as many.

        Raises:
            NotMadeError: there is no such process, or it fails or does not answer.
        """
        if self._reason:
            raise NotMadeError(self._reason)
        settings = {"kind": kind or "", "batch_size": batch_size}
        try:
            _send(self._writer, settings, x)
            answer = _receive(self._reader, time.monotonic() + PATIENCE + SLOWER * seconds)
        except OSError:
            answer = None
        if answer is None:
            raise NotMadeError("the process that opens the model anew ended, or does not answer")
        facts, logits = answer
        if facts["error"]:
            raise NotMadeError(f"in a new process the model fails ({facts['error']})")
        return FreshAnswers(logits.to(x.device), facts["digest"], facts["shared"])

    def close(self) -> None:
        """End the process."""
        if self._child:
            os.close(self._writer)
            os.close(self._reader)
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0
            self._reason = "its process is closed"


def _serve(reader: int, writer: int, open_model: Callable[[], Model], began: float) -> NoReturn:
    """Wait for inputs, answer them, and end; without a word where the other side is gone."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silence, number)
        if request := _receive(reader, math.inf):
            torch.set_num_threads(1)  # threads of the other process are not there
            _send(writer, *_answer(*request, open_model, Watch(began)))
    finally:
        os._exit(0)


def _answer(
    settings: Mapping[str, Any], x: Tensor, open_model: Callable[[], Model], watch: "Watch"
) -> tuple[dict[str, Any], Tensor]:
    facts, logits = {"error": "", "digest": "", "shared": ""}, torch.zeros(0)
    try:
        with ExitStack() as stack:
            model = open_model()
            stack.enter_context(model.info.session(torch.device("cpu")))
            if settings["kind"] and model.info.answers is None:
                model = LogitModel(model, settings["kind"])
            facts["digest"] = model.digest()
            sys.addaudithook(watch)
            logits = predict(model, x, settings["batch_size"])
            facts["shared"] = watch.shared
    except Exception as error:
        facts["error"] = f"{type(error).__name__}: {one_line(error, 100)}"
    return facts, logits


class Watch:
    """Notes the first file, database or machine through which a process may know what others did."""

    def __init__(self, began: float) -> None:
        self._began = began
        self.shared = ""

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """The hook of `sys.addaudithook`."""
        if self.shared:
            return
        if event in OUTSIDE:
            self.shared = one_line(args[OUTSIDE[event]], 100)
        elif event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            path = os.fspath(args[0])
            text = path if isinstance(path, str) else os.fsdecode(path)
            if not text.startswith(IGNORED) and self._is_shared(text, args[1], args[2]):
                self.shared = text

    def _is_shared(self, path: str, mode: str | None, flags: int) -> bool:
        """True for a file that is opened to be written, or was written since the beginning."""
        if set(mode or "") & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR):
            return True
        with suppress(OSError):
            facts = os.stat(path)
            return stat.S_ISREG(facts.st_mode) and facts.st_mtime >= self._began
        return False


def _send(descriptor: int, facts: Mapping[str, Any], tensor: Tensor) -> None:
    for part in (json.dumps(facts).encode(), save({"x": tensor.cpu().contiguous()})):
        message = memoryview(LENGTH.pack(len(part)) + part)
        while message:
            message = message[os.write(descriptor, message) :]


def _receive(descriptor: int, deadline: float) -> tuple[dict[str, Any], Tensor] | None:
    """What `_send` sent; None if the other side ended, or has not sent it by the deadline."""
    parts = []
    for _ in range(2):
        head = _read(descriptor, LENGTH.size, deadline)
        part = _read(descriptor, LENGTH.unpack(head)[0], deadline) if head else b""
        if not part:
            return None
        parts.append(part)
    return json.loads(parts[0]), load(parts[1])["x"]


def _read(descriptor: int, count: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while count:
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], left)[0]:
            return b""
        part = os.read(descriptor, min(count, 2**20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
