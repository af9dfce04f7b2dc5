"""A process that is split off before a model is asked anything, and answers once, at the end.

A deep copy shares with a model what its class, other modules or `__deepcopy__` keep; a process does
not. Split off, it sleeps on a pipe and costs milliseconds; its memory is that of the beginning.
Nothing is pickled: numbers go over the pipe as they are, beside facts in JSON.

Both processes see the same disks and machines. Python tells which files are opened, so an answer
that was made with a file that is written, or was since the beginning, is told from others.
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
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import ModelError, one_line

Facts = Mapping[str, Any]
Answer = Callable[[Facts, Tensor], tuple[dict[str, Any], Tensor]]
"""Makes facts and float32 numbers of facts and float32 numbers."""

LENGTHS = struct.Struct("<QQ")
"""The numbers of bytes of the facts and of the numbers of a message, which come before it."""
OUTSIDE = {"sqlite3.connect": 0, "socket.connect": 1}
"""Events of Python by which a process reaches what others reach too, with the place of its name."""
IGNORED = ("/dev/null", "/dev/urandom", "/proc/", "/sys/")
"""Beginnings of files that keep nothing."""


class FreshProcess:
    """A process that sleeps until it is asked once, or closed."""

    def __init__(self, answer: Answer) -> None:
        """Split the process off, in which `answer` runs later."""
        self._child = 0
        if not hasattr(os, "fork"):
            return

        to_child, self._writer = os.pipe()
        self._reader, from_child = os.pipe()
        watch = Watch(time.time())
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # that the threads of this process will not be there
            warnings.simplefilter("ignore")
            self._child = os.fork()

        if not self._child:
            os.close(self._writer)
            os.close(self._reader)
            _serve(to_child, from_child, answer, watch)
        os.close(to_child)
        os.close(from_child)

    def ask(self, facts: Facts, x: Tensor, seconds: float) -> tuple[dict[str, Any], Tensor]:
        """What `answer` makes of these facts and numbers, within so many seconds.

        The fact "shared" is the first file, database or machine through which the process may know
        what others did; empty if none was seen.

        Raises:
            ModelError: there is no such process, or it fails, ends or is late.
        """
        if not self._child:
            raise ModelError("this system cannot split a process, or it was asked already")

        try:
            _send(self._writer, facts, x)
            answer = _receive(self._reader, time.monotonic() + seconds)
        except OSError:
            answer = None
        self.close()

        if answer is None:
            raise ModelError("the process that opens the model anew ended, or does not answer")
        if "error" in answer[0]:
            raise ModelError(f"in a new process the model fails ({answer[0]['error']})")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._child:
            os.close(self._writer)
            os.close(self._reader)
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0


class Watch:
    """A hook of `sys.addaudithook` that notes the first thing through which a process may know what
    others did since the time `began`.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self.shared = ""

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at one event of Python."""
        if self.shared:
            return
        if event in OUTSIDE:
            self.shared = str(args[OUTSIDE[event]])
        elif event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            path = os.fsdecode(args[0])
            if not path.startswith(IGNORED) and self._is_shared(path, *args[1:]):
                self.shared = path

    def _is_shared(self, path: str, mode: str | None, flags: int) -> bool:
        """True for a file that is opened to be written, or was written since the beginning."""
        if set(mode or "") & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR):
            return True
        with suppress(OSError):
            facts = os.stat(path)
            return stat.S_ISREG(facts.st_mode) and facts.st_mtime >= self._began
        return False


def _serve(reader: int, writer: int, answer: Answer, watch: Watch) -> NoReturn:
    """Wait for a question, answer it, and end; without a word where the other side is gone."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        if question := _receive(reader, math.inf):
            torch.set_num_threads(1)  # the threads of the other process are not there
            _send(writer, *_try(answer, question, watch))
    finally:
        os._exit(0)


def _try(
    answer: Answer, question: tuple[Facts, Tensor], watch: Watch
) -> tuple[dict[str, Any], Tensor]:
    sys.addaudithook(watch)
    try:
        facts, numbers = answer(*question)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {one_line(error, 100)}"}, torch.zeros(0)
    return facts | {"shared": watch.shared}, numbers


def _send(descriptor: int, facts: Facts, numbers: Tensor) -> None:
    head = json.dumps({"facts": facts, "shape": list(numbers.shape)}).encode()
    body = numbers.detach().cpu().float().contiguous().numpy().tobytes()
    message = memoryview(LENGTHS.pack(len(head), len(body)) + head + body)
    while message:
        message = message[os.write(descriptor, message) :]


def _receive(descriptor: int, deadline: float) -> tuple[dict[str, Any], Tensor] | None:
    """What `_send` sent; None if the other side ended, or has not sent it by the deadline."""
    lengths = _read(descriptor, LENGTHS.size, deadline)
    if lengths is None:
        return None
    head_length, body_length = LENGTHS.unpack(lengths)
    head = _read(descriptor, head_length, deadline)
    body = _read(descriptor, body_length, deadline)
    if head is None or body is None:
        return None
    message = json.loads(head)
    numbers = np.frombuffer(body, np.float32).copy().reshape(message["shape"])
    return message["facts"], torch.from_numpy(numbers)


def _read(descriptor: int, count: int, deadline: float) -> bytes | None:
    content = bytearray()
    while len(content) < count:
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], left)[0]:
            return None
        part = os.read(descriptor, min(count - len(content), 2**20))
        if not part:
            return None
        content += part
    return bytes(content)
