"""Questions and answers over a pipe: JSON with arrays behind it, nothing that could run, and a deadline for every wait.

A frame is the length of its head in eight bytes, the head (JSON: `op`, `told`, and of each array its type and shape), and the
bytes of the arrays one after another. A head that says anything else is refused before anything is allocated for it.
"""

import json
import math
import os
import select
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

HEAD = 1 << 22
"""Bytes of a head at most."""
KINDS = {
    "<f4": torch.float32,
    "<f8": torch.float64,
    "<i4": torch.int32,
    "<i8": torch.int64,
    "|b1": torch.bool,
    "|u1": torch.uint8,
}
"""Types of arrays that are sent, as NumPy writes them."""
MOST_VALUES = 1 << 53
"""Values along an axis of an array at most."""
AT_ONCE = 1 << 20
"""Bytes that are read at once."""


class PipeError(Exception):
    """The other side ended, was silent for too long, or said what is no frame; the text is a clause about it."""


class EndedError(PipeError):
    """The other side ended without an answer."""

    def __init__(self) -> None:
        super().__init__("it ended without an answer")


class Frame(NamedTuple):
    """What the other side said."""

    op: str
    told: dict[str, Any]
    arrays: dict[str, Tensor]


class Pipe:
    """Both directions of a conversation.

    Args:
        reader: descriptor to read from.
        writer: descriptor to write to.
        most: bytes of arrays in a frame at most.
        left: seconds that all waits for the other side may take together.
    """

    def __init__(self, reader: int, writer: int, *, most: int, left: float = math.inf) -> None:
        self._reader, self._writer, self.most, self.left = reader, writer, most, left
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)

    def send(self, op: str, told: Mapping[str, Any] | None = None, arrays: Mapping[str, Tensor] | None = None) -> None:
        """Say something.

        Raises:
            PipeError: the other side ended, or does not listen.
        """
        arrays = arrays or {}
        held = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in arrays.items()}
        said = {name: [array.dtype.str, list(array.shape)] for name, array in held.items()}
        head = json.dumps({"op": op, "told": dict(told or {}), "arrays": said}).encode()
        self._write(len(head).to_bytes(8, "little") + head)
        for array in held.values():
            self._write(array.tobytes())

    def receive(self) -> Frame:
        """What the other side says next.

        Raises:
            PipeError: it ended, is silent for too long, or says what is no frame.
        """
        size = int.from_bytes(self._read(8), "little")
        if size > HEAD:
            raise PipeError(f"it sent a head of {size} bytes")
        try:
            head = json.loads(self._read(size))
        except (ValueError, RecursionError):
            raise PipeError("it sent a head that is no JSON") from None
        if (fault := _fault(head)) is not None:
            raise PipeError(f"it sent a head in which {fault}")
        sizes = {name: np.dtype(kind).itemsize * math.prod(shape) for name, (kind, shape) in head["arrays"].items()}
        if sum(sizes.values()) > self.most:
            raise PipeError(f"it sent arrays of {sum(sizes.values())} bytes, and {self.most} are the most")
        arrays = {}
        for name, (kind, shape) in head["arrays"].items():
            content = np.frombuffer(self._read(sizes[name]), kind).reshape(shape)
            arrays[name] = torch.from_numpy(content)
        return Frame(head["op"], head["told"], arrays)

    def _read(self, count: int) -> bytearray:
        found = bytearray()
        while len(found) < count:
            self._wait(self._reader, select.POLLIN)
            part = os.read(self._reader, min(AT_ONCE, count - len(found)))
            if not part:
                raise EndedError
            found += part
        return found

    def _write(self, whole: bytes) -> None:
        content = memoryview(whole)
        while content:
            self._wait(self._writer, select.POLLOUT)
            try:
                content = content[os.write(self._writer, content[:AT_ONCE]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise EndedError from None

    def _wait(self, descriptor: int, event: int) -> None:
        """Until the other side has spoken, or listens."""
        began, poll = time.monotonic(), select.poll()
        poll.register(descriptor, event)
        ready = poll.poll(None if math.isinf(self.left) else max(0.0, 1000 * self.left))
        self.left -= time.monotonic() - began
        if not ready or self.left < 0:
            raise PipeError("its time is over")


def _fault(head: Any) -> str | None:
    """What is wrong with the form of a head; None where it has its form."""
    if not isinstance(head, dict):
        return "it is no table"
    for name, kind, wanted in (("op", str, "a text"), ("told", dict, "a table"), ("arrays", dict, "a table")):
        if not isinstance(head.get(name), kind):
            return f"{name} is {head.get(name)!r:.40} and must be {wanted}"
    for array in head["arrays"].values():
        if not _is_array(array):
            return f"an array is {array!r:.40} and must be {' or '.join(KINDS)} with a shape of whole numbers of at least 0"
    return None


def _is_array(said: Any) -> bool:
    if not isinstance(said, list) or len(said) != 2 or not isinstance(said[0], str) or not isinstance(said[1], list):
        return False
    return said[0] in KINDS and all(type(side) is int and 0 <= side <= MOST_VALUES for side in said[1])
