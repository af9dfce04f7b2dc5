"""Workers on the ranks of a job, over torch's TCPStore.

Every rank offers itself to rank 0 and answers its tasks, one after another; rank 0 does so in a
thread of the driver's process. Tasks and answers are data: values of JSON, arrays and bytes, of which
none is run. Each message carries a code that holders of the job's token alone can make. A rank
that stops counting is lost, and its task goes to another; one that comes late is welcome.
"""

import hashlib
import hmac
import itertools
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save

from brinell.core import errors
from brinell.core.errors import (
    BrinellError,
    MemoryShortError,
    RequestError,
    StoppedError,
    one_line,
    option,
    short,
)
from brinell.core.memory import is_memory_short
from brinell.core.version import VERSION
from brinell.engine.executor import Channel, Pool, Worker, WorkerDiedError
from brinell.engine.ranks import RANKS, Place

BEAT = 1.0
"""Seconds between two signs of life of a rank."""
LOST_AFTER = 30.0
"""Seconds without a sign after which a rank is lost; clocks of machines are not compared."""
MEETING_TIME = 300.0
"""Seconds that a rank waits for rank 0, and for its token."""
LINGER = 30.0
"""Seconds that rank 0 waits at the end for ranks to take their leave."""
POLL = 0.02
"""Seconds between two looks for messages."""
CHUNK = 4 * 2**20
"""Bytes that the store takes at once; it refuses more than twice as many."""
BLOB = "\0blob"
"""The key of an array or bytes among the values of a message."""
TOKEN = ".token"
"""The file of the token in the folder of a run, which is hidden and no part of the result."""
TO_DRIVER = "driver"
"""The queue that rank 0 reads."""
CODE_BYTES = 32
"""Bytes of the code before each message."""
LEAST_TOKEN = 32
"""Bytes of the shortest token, which are twice as many in the folder of a run."""


def pack(value: Any) -> bytes:
    """Values of JSON, with arrays and bytes anywhere among them, as the bytes of safetensors."""
    blobs: dict[str, np.ndarray[Any, Any]] = {}

    def lay_aside(item: Any) -> dict[str, Any]:
        name = str(len(blobs))
        is_bytes = isinstance(item, bytes)
        array = np.frombuffer(item, dtype=np.uint8) if is_bytes else np.asarray(item)
        # numpy gives an array without axes one, which is taken away again.
        blobs[name] = np.ascontiguousarray(array).reshape(array.shape)
        return {BLOB: name, "bytes": is_bytes}

    # JSON asks for a substitute of what it cannot write: a reference to the array laid aside.
    text = json.dumps(value, default=lay_aside)
    return save({"values": np.frombuffer(text.encode(), dtype=np.uint8), **blobs})


def unpack(content: bytes) -> Any:
    """What `pack` packed."""
    blobs = load(content)

    def put_back(item: dict[str, Any]) -> Any:
        if BLOB not in item:
            return item
        array = blobs[item[BLOB]]
        return array.tobytes() if item["bytes"] else array

    return json.loads(blobs["values"].tobytes(), object_hook=put_back)


@dataclass(frozen=True)
class Message:
    """A message that was taken from a queue."""

    values: Mapping[str, Any]
    content: bytes
    is_authentic: bool
    """True if its sender has the token; else nothing in it may be relied on."""


class Mail:
    """Queues of messages in the store of a job."""

    def __init__(self, place: Place, token: bytes, *, hosts: bool = False) -> None:
        self._store = _open_store(place, hosts=hosts)
        self._token = token
        self._prefix = f"brinell/{place.attempt}"

    def send(self, queue: str, content: bytes = b"", **values: Any) -> None:
        """Put a message at the end of a queue, its content first."""
        name = secrets.token_hex(8)
        chunks = range(0, len(content), CHUNK)
        for start in chunks:
            self._store.set(f"{self._prefix}/{name}/{start}", content[start : start + CHUNK])

        digest = hashlib.sha256(content).hexdigest()
        envelope = {**values, "content": name, "size": len(content), "digest": digest}
        text = json.dumps(envelope).encode()
        self._store.queue_push(f"{self._prefix}/{queue}", self._code(queue, text) + text)

    def take(self, queue: str) -> Message | None:
        """The next message of a queue, which one process alone reads; None without one."""
        key = f"{self._prefix}/{queue}"
        if not self._store.queue_len(key):
            return None
        packet = self._store.queue_pop(key, block=False)
        code, text = packet[:CODE_BYTES], packet[CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(queue, text)):
            # Nothing is read of it but whom to refuse.
            session = re.search(rb'"session": "([0-9a-f-]+)"', text)
            values = {"session": session[1].decode()} if session else {}
            return Message(values, content=b"", is_authentic=False)
        values = json.loads(text)

        keys = [
            f"{self._prefix}/{values['content']}/{start}"
            for start in range(0, values["size"], CHUNK)
        ]
        content = b"".join(self._store.get(key) for key in keys)
        for key in keys:
            self._store.delete_key(key)
        return Message(values, content, hashlib.sha256(content).hexdigest() == values["digest"])

    def beat(self, session: str, by: int = 1) -> int:
        """Count a session on; returns its count, by which others see that it lives.

        With `by` 0 the count is read and stays.
        """
        return int(self._store.add(f"{self._prefix}/beat/{session}", by))

    def _code(self, queue: str, text: bytes) -> bytes:
        return hmac.digest(self._token, f"{self._prefix}/{queue}:".encode() + text, "sha256")


def _open_store(place: Place, *, hosts: bool) -> Any:
    """The store of a job: opened here, on the address of the launcher alone, or reached."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it so

    settings: dict[str, Any] = {"wait_for_workers": False}
    if hosts:
        settings |= {"is_master": True, "master_listen_fd": _listen(place)}
    try:
        return TCPStore(
            place.address, place.port, timeout=timedelta(seconds=MEETING_TIME), **settings
        )
    except RuntimeError:
        raise StoppedError(
            f"rank 0 did not answer at {place.address}:{place.port} within {MEETING_TIME:g} s: "
            "see what it says, or correct MASTER_ADDR and MASTER_PORT"
        ) from None


def _listen(place: Place) -> int:
    """A socket that listens on the launcher's address alone, as its descriptor."""
    try:
        place_in_net = socket.getaddrinfo(place.address, place.port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(place_in_net[4][:2], family=place_in_net[0], backlog=1024)
    except OSError as error:
        raise RequestError(
            f"rank 0 cannot listen on {place.address}:{place.port} ({one_line(error, 100)}): name "
            "an address of its machine by MASTER_ADDR and a free port by MASTER_PORT"
        ) from None
    return listener.detach()


def read_token(place: Place, folder: Path | None) -> bytes:
    """The token of a job: of the file that the user named, else of the folder of the run, where
    rank 0 makes it and others wait for it.
    """
    file = place.token_file or (folder and folder / TOKEN)
    if file is None:
        raise RequestError(
            f"ranks find each other by the folder of the run: name it by {option('out')}, or a "
            f"file with a token by {option('on', f'{RANKS}:FILE')}"
        )
    if place.token_file is None and not place.rank and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, secrets.token_bytes(LEAST_TOKEN).hex().encode())
        os.close(descriptor)

    end = time.monotonic() + (MEETING_TIME if place.token_file is None else 0)
    while not file.exists() or len(token := file.read_bytes().strip()) < LEAST_TOKEN:
        if time.monotonic() > end:
            raise RequestError(
                f"there is no token of {LEAST_TOKEN} bytes or more in {file}: if this machine does "
                f"not see the folder, name a file by {option('on', f'{RANKS}:FILE')}"
            )
        time.sleep(POLL)
    return token


class Session:
    """A rank that offers itself to rank 0 and answers its tasks until it is dismissed.

    Args:
        place: the rank.
        token: the token of the job.
        command: tells the command of this process from others.
        make_command: `values -> command`, the command of a worker for a call of the driver.
    """

    def __init__(
        self,
        place: Place,
        token: bytes,
        command: str,
        make_command: Callable[[Mapping[str, Any]], Callable[[Channel], object]],
    ) -> None:
        self._place, self._make_command = place, make_command
        self._mail = Mail(place, token)
        self._name = f"{place.rank}-{secrets.token_hex(8)}"
        self._worker: Worker | None = None
        self._opened = 0
        """The number of the pool that the worker is of."""
        self._ended = Event()
        self._facts: dict[str, Any] = {
            "command": command,
            "brinell": VERSION,
            "torch": torch.__version__,
        }

    def serve(self) -> None:
        """Answer tasks until rank 0 needs no more; an interruption gives the task back."""
        beats = Thread(target=self._beat, daemon=True)
        try:
            self._mail.send(
                TO_DRIVER, kind="hello", session=self._name, rank=self._place.rank, **self._facts
            )
            beats.start()
            while self._follow(self._next_message()):
                pass
        except RuntimeError as error:
            raise StoppedError(
                f"rank 0 is gone ({one_line(error, 80)}): start the command again with "
                f"{option('resume')}"
            ) from None
        finally:
            self._ended.set()
            if self._worker is not None:
                self._worker.close()
            with suppress(RuntimeError):
                self._mail.send(TO_DRIVER, kind="bye", session=self._name)

    def _beat(self) -> None:
        with suppress(RuntimeError):
            while not self._ended.wait(BEAT):
                self._mail.beat(self._name)

    def _next_message(self) -> Message:
        """The next message of rank 0; refuses one that another token made."""
        while (message := self._mail.take(f"to/{self._name}")) is None:
            time.sleep(POLL)
        if not message.is_authentic:
            raise RequestError(
                f"rank {self._place.rank} has another token than rank 0: start all ranks with one "
                f"{option('out')} or one {option('on', f'{RANKS}:FILE')}"
            )
        return message

    def _follow(self, message: Message) -> bool:
        """Do what a message says; returns False for the last one."""
        kind = message.values["kind"]
        if kind == "refuse":
            raise RequestError(message.values["text"])

        if kind == "open" and message.values["pool"] != self._opened:
            if self._worker is not None:
                self._worker.close()
            call = unpack(message.content)
            self._opened = message.values["pool"]
            self._worker = Worker(self._make_command(call["values"]), call["shared"])
        if kind == "task" and self._worker is not None:
            content = _answer(self._worker, message.content)
            values = {"session": self._name, "number": message.values["number"]}
            self._mail.send(TO_DRIVER, content, kind="answer", **values)
        return bool(kind != "end")


def _answer(worker: Worker, content: bytes) -> bytes:
    """The answer of a worker to a task, or its error as its class and its text."""
    try:
        return pack({"answer": worker.answer(unpack(content))})
    except Exception as error:
        kind = MemoryShortError if is_memory_short(error) else type(error)
        return pack({"error": kind.__name__, "text": one_line(error)})


def _error_of(answer: Mapping[str, Any], rank: str) -> Exception:
    """The error of a worker: of our class where it is ours, with the rank that met it."""
    kind = getattr(errors, answer["error"], None)
    text = f"rank {rank}: {answer['text']}"
    if isinstance(kind, type) and issubclass(kind, BrinellError):
        return kind(text)
    return RuntimeError(f"{text} ({answer['error']})")


class Crew:
    """The ranks of a job, as rank 0 knows them; rank 0 is one of them.

    Args:
        place, token, command, make_command: as for a `Session`.
        warn: told of ranks that are refused.
    """

    def __init__(
        self,
        place: Place,
        token: bytes,
        command: str,
        make_command: Callable[[Mapping[str, Any]], Callable[[Channel], object]],
        warn: Callable[[str], object],
    ) -> None:
        self.mail = Mail(place, token, hosts=not place.has_store)
        self.answers: dict[int, Message] = {}
        """By the number of the task."""
        self.left: set[str] = set()
        """Sessions that took their leave."""
        self.numbers = itertools.count(1)
        """Of pools and tasks."""
        self._size, self._command, self._warn = place.size, command, warn
        self._beats: dict[str, tuple[int, float]] = {}
        """By session its count, and the time at which that was new."""
        self._last_look = -BEAT
        self._refused: set[str] = set()
        """Sessions that run something else, or whose messages have another token."""
        member = Session(place, token, command, make_command)
        self._thread = Thread(target=self._serve, args=(member,), daemon=True)
        self._thread.start()

    @staticmethod
    def _serve(member: Session) -> None:
        with suppress(BrinellError):  # the store ends before it
            member.serve()

    def collect(self) -> None:
        """Take in all messages, and look which ranks live."""
        while (message := self.mail.take(TO_DRIVER)) is not None:
            session = message.values.get("session", "")
            kind = message.values.get("kind")
            if not message.is_authentic:
                if session not in self._refused:
                    self._warn("a rank with another token is refused")
                self._refused.add(session)
                self.mail.send(f"to/{session}", kind="refuse", text="")
            elif kind == "hello":
                self._welcome(session, message.values)
            elif kind == "bye":
                self.left.add(session)
            else:
                self.answers[message.values["number"]] = message
                # It lives, whatever it counts: no count is -1, so the next look sees a new one.
                self._beats[session] = (-1, time.monotonic())

        now = time.monotonic()
        if now - self._last_look >= BEAT:
            self._last_look = now
            for session, (count, _) in self._beats.items():
                if (current := self.mail.beat(session, 0)) != count:
                    self._beats[session] = (current, now)

    def _welcome(self, session: str, facts: Mapping[str, Any]) -> None:
        """Take a rank in, unless it runs something else."""
        facts_of_driver = {"command": self._command, "brinell": VERSION, "torch": torch.__version__}
        texts = [
            f"its {name} is {short(facts[name])}, and that of rank 0 is {short(value)}"
            for name, value in facts_of_driver.items()
            if facts[name] != value
        ]
        if not texts:
            self._beats[session] = (0, time.monotonic())
            return
        advice = "start one command in one environment on all ranks"
        text = f"rank {facts['rank']} is refused: {'; '.join(texts)}: {advice}"
        self._warn(text)
        self._refused.add(session)
        self.mail.send(f"to/{session}", kind="refuse", text=text)

    def present(self) -> list[str]:
        """The sessions that live."""
        return [session for session in self._beats if not self.is_lost(session)]

    def is_lost(self, session: str) -> bool:
        """True for a session that took its leave or shows no sign of life any more."""
        _, last_time = self._beats[session]
        return session in self.left or time.monotonic() - last_time > LOST_AFTER

    def close(self, *, linger: float = LINGER) -> None:
        """Dismiss the ranks, also those that come within `linger` seconds."""
        dismissed: set[str] = set()
        # All ranks have come if as many are known as the launcher started.
        end = time.monotonic() + linger
        with suppress(RuntimeError):
            while time.monotonic() < end:
                self.collect()
                for session in set(self.present()) - dismissed:
                    self.mail.send(f"to/{session}", kind="end")
                    dismissed.add(session)
                is_full = len(self._beats) + len(self._refused) >= self._size
                if is_full and not self.present():
                    break
                time.sleep(POLL)


def _rank_of(session: str) -> str:
    """The rank of a session, with which its name begins: `3` of `3-9f86d081`."""
    return session.partition("-")[0]


class RankPool(Pool):
    """The ranks of a crew as the workers of one call.

    Args:
        crew: the ranks.
        values: the call as data, from which each rank makes the command of its worker.
    """

    def __init__(self, crew: Crew, values: Mapping[str, Any]) -> None:
        super().__init__()
        self._crew, self._values = crew, values
        self._number = next(crew.numbers)
        self._members: set[str] = set()
        """The sessions that this pool opened and did not lose."""
        self._sessions: dict[int, str] = {}
        """By the number of a task, who works at it."""

    def open_workers(self, shared: Mapping[str, Any]) -> Sequence[str]:
        """Tell the ranks that came what to serve."""
        self._content = pack({"values": self._values, "shared": shared})
        return self.more_workers()

    def more_workers(self) -> Sequence[str]:
        """Take in the ranks that came; waits for one where none is at work."""
        while True:
            self._crew.collect()
            new = [session for session in self._crew.present() if session not in self._members]
            if new or self._sessions:
                break
            time.sleep(POLL)

        for session in new:
            self._crew.mail.send(f"to/{session}", self._content, kind="open", pool=self._number)
        self._members.update(new)
        return new

    def successors(self, worker: str) -> Sequence[str]:
        """None: a rank that is started again comes by itself."""
        self._members.discard(worker)  # if it lives after all, it comes again
        return ()

    def send(self, worker: str, task: Any) -> int:
        """Send a task; returns its number."""
        number = next(self._crew.numbers)
        self._crew.mail.send(f"to/{worker}", pack(task), kind="task", number=number)
        self._sessions[number] = worker
        return number

    def wait(self, handles: Sequence[int]) -> int:
        """Wait for an answer, or for the loss of a rank."""
        while True:
            self._crew.collect()
            for number in handles:
                if number in self._crew.answers or self._crew.is_lost(self._sessions[number]):
                    return number
            time.sleep(POLL)

    def result(self, handle: int) -> Any:
        """The answer; raises WorkerDiedError for a lost rank, or the error of the rank."""
        session = self._sessions.pop(handle)
        rank = _rank_of(session)
        message = self._crew.answers.pop(handle, None)
        if message is None:
            error = WorkerDiedError(f"rank {rank} is gone")
            # A rank that gave its place back is no death.
            error.gave_back = session in self._crew.left
            raise error

        answer = unpack(message.content)
        if "error" in answer:
            raise _error_of(answer, rank)
        return answer["answer"]
