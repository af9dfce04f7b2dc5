"""Processes in which a model answers apart from whoever asks it.

One is split off before a model is asked anything, and answers once, at the end. A deep copy shares
with a model what its class, peer modules or `__deepcopy__` keep; a process does not. Split off, it
sleeps on a pipe and costs milliseconds; its memory is that of the beginning.

Another is started anew, so that the code of a model runs where nothing is judged; it answers as
long as it is asked. Nothing is pickled: arrays go over the pipe as they are, beside facts in JSON.

Processes see the same disks and machines. Python tells which files are opened, so answers that
were made with a file that is written, or was since the beginning, are known.
"""

import json
import math
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import ModelError, one_line

Facts = Mapping[str, Any]
Answer = Callable[[Facts, Tensor], tuple[dict[str, Any], Tensor]]
"""Makes facts and float32 numbers of facts and float32 numbers."""

LENGTHS = struct.Struct("<QQ")
"""The numbers of bytes of the facts and of the arrays of a message, which come before it."""
NUMBER = struct.Struct("<q")
"""The number of a process."""
MOST_BYTES = 2**34
"""Bytes of a message at most."""
TYPES = frozenset({"float32", "float64", "float16", "int64", "int32", "uint8", "bool"})
"""Types of arrays that a message holds; others become float32."""
OUTSIDE = {"sqlite3.connect": 0, "socket.connect": 1}
"""Events of Python by which a process reaches what others reach too, with the place of its name."""
IGNORED = ("/dev/null", "/dev/urandom", "/proc/", "/sys/")
"""Beginnings of files that keep nothing."""


class Pipe(NamedTuple):
    """The ends of two pipes over which messages come and go."""

    reader: int
    writer: int

    @classmethod
    def pair(cls) -> tuple["Pipe", "Pipe"]:
        """The ends of whoever asks, who never waits for more than a deadline, and those of whoever
        answers.
        """
        question_reader, question_writer = os.pipe()
        answer_reader, answer_writer = os.pipe()
        os.set_blocking(question_writer, False)
        return cls(answer_reader, question_writer), cls(question_reader, answer_writer)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self.writer)

    def send(self, facts: Facts, arrays: Sequence[Tensor], deadline: float = math.inf) -> None:
        """Send a message.

        Raises:
            OSError: the other side is gone, or does not take it by the deadline.
        """
        contents = [_content(array) for array in arrays]
        places = [[str(content.dtype), list(content.shape)] for content in contents]

        # The lengths of both parts come first, so that the reader knows when a message is complete.
        head = json.dumps({"facts": facts, "arrays": places}).encode()
        body = b"".join(content.tobytes() for content in contents)
        message = memoryview(LENGTHS.pack(len(head), len(body)) + head + body)
        while message:
            # A pipe takes what its buffer has room for: the deadline holds for each portion of it.
            if not select.select([], [self.writer], [], _seconds_to(deadline))[1]:
                raise TimeoutError("the other side does not read")
            message = message[os.write(self.writer, message[: 2**20]) :]

    def receive(self, deadline: float = math.inf) -> tuple[dict[str, Any], list[Tensor]] | None:
        """The next message; None if the other side ended, has not sent it by the deadline, or sent
        something else.
        """
        lengths = self._read(LENGTHS.size, deadline)
        # The lengths come from the other process: a damaged one must not make this one reserve
        # memory.
        if lengths is None or sum(LENGTHS.unpack(lengths)) > MOST_BYTES:
            return None
        head_length, body_length = LENGTHS.unpack(lengths)
        head = self._read(head_length, deadline)
        body = self._read(body_length, deadline)
        if head is None or body is None:
            return None

        try:
            message = json.loads(head)
            return dict(message["facts"]), list(_arrays(body, message["arrays"]))
        except (ValueError, TypeError, LookupError, RecursionError):
            return None

    def _read(self, count: int, deadline: float) -> bytes | None:
        """So many bytes; None if the other side ended, or is late."""
        content = bytearray()
        while len(content) < count:
            if not select.select([self.reader], [], [], _seconds_to(deadline))[0]:
                return None
            part = os.read(self.reader, min(count - len(content), 2**20))
            if not part:
                return None
            content += part
        return bytes(content)


def _seconds_to(deadline: float) -> float | None:
    """The seconds that are left; None without a deadline."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())


def _content(tensor: Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().cpu().contiguous()
    # NumPy lacks some types of torch, such as bfloat16: these become float32.
    is_known = str(tensor.dtype).removeprefix("torch.") in TYPES
    content: np.ndarray[Any, Any] = (tensor if is_known else tensor.float()).numpy()
    return content


def _arrays(body: bytes, places: Sequence[tuple[str, Sequence[int]]]) -> Iterator[Tensor]:
    """The arrays in a body, by their types and shapes."""
    start = 0
    for name, shape in places:
        if name not in TYPES or any(side < 0 for side in shape):
            raise ValueError(name)
        count = math.prod(shape)
        values = np.frombuffer(body, name, count, start) if count else np.empty(0, name)
        start += values.nbytes
        yield torch.from_numpy(values.copy().reshape(shape))


class FreshProcess:
    """A process that sleeps until it is asked once, or closed."""

    def __init__(self, answer: Answer) -> None:
        """Split the process off, in which `answer` runs later."""
        self._child = 0
        if not hasattr(os, "fork"):
            return

        self._pipe, peer = Pipe.pair()
        watch = Watch(time.time())
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # that the threads of this process will not be there
            warnings.simplefilter("ignore")
            self._child = os.fork()

        if not self._child:
            self._pipe.close()
            _serve(peer, answer, watch)
        peer.close()

    def ask(self, facts: Facts, x: Tensor, seconds: float) -> tuple[dict[str, Any], Tensor]:
        """What `answer` makes of these facts and numbers, within so many seconds.

        The fact "shared" is the first file, database or machine through which the process may know
        what others did; empty if none was seen.

        Raises:
            ModelError: there is no such process, or it fails, ends or is late.
        """
        if not self._child:
            raise ModelError("this system cannot split a process, or it was asked already")

        answer = _exchange(self._pipe, facts, [x], seconds)
        # One question for each process: what the first one leaves behind would change the second
        # answer.
        self.close()
        if answer is None:
            raise ModelError("the process that opens the model anew ended, or does not answer")
        if "error" in answer[0]:
            raise ModelError(f"in a new process the model fails ({answer[0]['error']})")
        return answer[0], answer[1][0]

    def close(self) -> None:
        """End the process."""
        if self._child:
            self._pipe.close()
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0


class Nursery:
    """A new interpreter that has imported a module and does nothing; processes are split from it,
    in which a model answers.

    The module gets the number of its end of a connection, and calls `nurse`.
    """

    def __init__(self, module: str) -> None:
        self._connection, peer = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(peer.fileno())],
            # A model that prints would mix its lines with those of the command, or wait for input.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[peer.fileno()],
            start_new_session=True,
        )
        # This side of the pair must close, or the end of the process would never be seen.
        peer.close()
        self._turn = tempfile.TemporaryFile()
        weakref.finalize(self, _close, self._process, self._connection, self._turn)

    def begin(self) -> tuple[int, Pipe]:
        """Split a process off; returns its number, and the pipe to ask it.

        Raises:
            ModelError: the nursery ended.
        """
        import fcntl  # Windows has none

        pipe, peer = Pipe.pair()
        fcntl.lockf(self._turn, fcntl.LOCK_EX)  # processes that were split from this one ask, too
        try:
            # 0 is the number of no process; any other would name one that is to end.
            socket.send_fds(self._connection, [NUMBER.pack(0)], peer)
            (process,) = NUMBER.unpack(self._connection.recv(NUMBER.size))
        except (OSError, struct.error):
            pipe.close()
            raise ModelError("the process that keeps models apart ended") from None
        finally:
            fcntl.lockf(self._turn, fcntl.LOCK_UN)
            peer.close()
        return process, pipe

    def end(self, process: int, pipe: Pipe) -> None:
        """End a process, and those that it started."""
        pipe.close()
        with suppress(OSError):
            self._connection.send(NUMBER.pack(process))


def _close(process: subprocess.Popen[bytes], *files: Any) -> None:
    """Let a nursery end."""
    for file in files:
        file.close()
    process.wait()


def nurse(connection: int, answer: Callable[[Pipe], object]) -> None:
    """Split a process off for each pipe that comes over a connection, until that is closed; in it
    `answer` runs.

    Nobody else waits for these processes, so that their numbers stay theirs.
    """
    children = set[int]()
    with socket.socket(fileno=connection) as line:
        while True:
            message, ends, *_ = socket.recv_fds(line, NUMBER.size, 2)
            number = NUMBER.unpack(message)[0] if message else None
            # A closed connection means that all children end, a message that names one that this
            # one does.
            for child in children & {number} if message else set(children):
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                children.remove(child)
            if number is None:
                return
            if ends:
                child = os.fork()
                if not child:
                    line.close()
                    # A session of its own, so that a signal to the group reaches what the child
                    # starts too.
                    os.setsid()
                    answer(Pipe(*ends))
                    # Not sys.exit: the child has copies of the parent's buffers and exit handlers,
                    # which would run twice.
                    os._exit(0)
                Pipe(*ends).close()
                children.add(child)
                line.send(NUMBER.pack(child))


@cache
def nursery(module: str) -> Nursery:
    """The nursery of this process in which a module is imported."""
    return Nursery(module)


class OtherProcess:
    """A process, split from a nursery, that answers until it is closed; what it prints is not
    shown.
    """

    def __init__(self, origin: Nursery) -> None:
        process, self._pipe = origin.begin()
        self.close = weakref.finalize(self, origin.end, process, self._pipe)
        """Ends the process, and those that it started."""

    def ask(
        self, facts: Facts, arrays: Sequence[Tensor], seconds: float
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """Its answer to facts and arrays, within so many seconds.

        Raises:
            ModelError: the process ended, or is late; then it is ended.
        """
        answer = None
        if self.close.alive:
            answer = _exchange(self._pipe, facts, arrays, seconds)
        # A process that is late would answer the next question with this answer: it is ended.
        if answer is None:
            self.close()
            raise ModelError(
                f"the process in which the model answers ended, or took more than {seconds:g} seconds"
            )
        return answer


def _exchange(
    pipe: Pipe, facts: Facts, arrays: Sequence[Tensor], seconds: float
) -> tuple[dict[str, Any], list[Tensor]] | None:
    """The answer of the other side; None if it ended, or is late."""
    deadline = time.monotonic() + seconds
    try:
        pipe.send(facts, arrays, deadline)
        return pipe.receive(deadline)
    except OSError:
        return None


class Watch:
    """A hook of `sys.addaudithook` that notes the first thing through which a process may know what
    others did since the time `began`.
    """

    current: "ClassVar[Watch | None]" = None
    """The one that looks at this process; None where none does."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.shared = ""

    def start(self) -> None:
        """Look at all that this process does from now on."""
        Watch.current = self
        sys.addaudithook(self)

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
            return stat.S_ISREG(facts.st_mode) and facts.st_mtime >= self.began
        return False


def _serve(pipe: Pipe, answer: Answer, watch: Watch) -> NoReturn:
    """Wait for a question, answer it, and end; without a word where the other side is gone."""
    try:
        # The handlers of the other process clean up its work, which is not this one's to do.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        if question := pipe.receive():
            torch.set_num_threads(1)  # the threads of the other process are not there
            facts, numbers = _try(answer, question[0], question[1][0], watch)
            pipe.send(facts, [numbers])
    finally:
        os._exit(0)


def _try(answer: Answer, facts: Facts, x: Tensor, watch: Watch) -> tuple[dict[str, Any], Tensor]:
    """The answer with the fact "shared", or an "error" in one line in place of both."""
    watch.start()
    try:
        outcome, numbers = answer(facts, x)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {one_line(error, 100)}"}, torch.zeros(0)
    return outcome | {"shared": watch.shared}, numbers
