"""Questions and answers over a pipe: JSON with arrays behind it, nothing that could run, and a deadline for every wait.

A frame is the length of its head in eight bytes, the head (JSON: `op`, `fields`, and of each array its type and shape), and the
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
    """The peer ended, was silent for too long, or sent an invalid frame; the text is a clause about it."""


class EndedError(PipeError):
    """The other side ended without an answer."""

    def __init__(self) -> None:
        super().__init__("it ended without an answer")


class Frame(NamedTuple):
    """A message from the peer."""

    op: str
    fields: dict[str, Any]
    arrays: dict[str, Tensor]


class Pipe:
    """Both directions of a conversation.

    Args:
        reader: descriptor to read from.
        writer: descriptor to write to.
        most: bytes of arrays in a frame at most.
        left: seconds that all waits for the other side may take together.
    """

    def __init__(self, reader: int, writer: int, *, most: int, seconds: float = math.inf) -> None:
        self._reader, self._writer, self.most, self.remaining = reader, writer, most, seconds
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)

    def send(self, op: str, fields: Mapping[str, Any] | None = None, arrays: Mapping[str, Tensor] | None = None) -> None:
        """Send a frame: an operation with its fields and arrays.

        Raises:
            PipeError: the other side ended, or does not listen.
        """
        arrays = arrays or {}
        values = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in arrays.items()}
        layouts = {name: [array.dtype.str, list(array.shape)] for name, array in values.items()}
        head = json.dumps({"op": op, "fields": dict(fields or {}), "arrays": layouts}).encode()
        self._write(len(head).to_bytes(8, "little") + head)
        for array in values.values():
            self._write(array.tobytes())

    def receive(self) -> Frame:
        """Receive the next frame from the peer.

        Raises:
            PipeError: the peer ended, is silent for too long, or sends an invalid frame.
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
            arrays[name] = _to_tensor(self._read(sizes[name]), kind, shape)
        return Frame(head["op"], head["fields"], arrays)

    def _read(self, count: int) -> bytearray:
        """Read exactly `count` bytes."""
        content = bytearray()
        while len(content) < count:
            self._wait(self._reader, select.POLLIN)
            part = os.read(self._reader, min(AT_ONCE, count - len(content)))
            if not part:
                raise EndedError
            content += part
        return content

    def _write(self, message: bytes) -> None:
        content = memoryview(message)
        while content:
            self._wait(self._writer, select.POLLOUT)
            try:
                content = content[os.write(self._writer, content[:AT_ONCE]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise EndedError from None

    def _wait(self, descriptor: int, event: int) -> None:
        """Wait until the other process has sent data, or reads it: the descriptor then has the event of `select.poll`."""
        began, poll = time.monotonic(), select.poll()
        poll.register(descriptor, event)
        ready = poll.poll(None if math.isinf(self.remaining) else max(0.0, 1000 * self.remaining))
        self.remaining -= time.monotonic() - began
        if not ready or self.remaining < 0:
            raise PipeError("its time is over")


def _to_tensor(content: bytearray, kind: str, shape: list[int]) -> Tensor:
    """Build an array of its bytes; raises PipeError if its bytes do not fit."""
    try:
        values = np.frombuffer(content, kind).reshape(shape)
    except ValueError:
        raise PipeError(f"it sent an array of shape {shape!s:.80}, which does not exist") from None
    if kind == "|b1" and values.size and values.view(np.uint8).max() > 1:
        raise PipeError("it sent truth values other than 0 and 1")
    return torch.from_numpy(values)


def _fault(head: Any) -> str | None:
    """Error in the form of a head, as a clause; None if the form is valid."""
    if not isinstance(head, dict):
        return "it is no table"
    for name, kind, requirement in (("op", str, "a text"), ("fields", dict, "a table"), ("arrays", dict, "a table")):
        if not isinstance(head.get(name), kind):
            return f"{name} is {head.get(name)!r:.40} and must be {requirement}"
    for array in head["arrays"].values():
        if not _is_array(array):
            return f"an array is {array!r:.40} and must be {' or '.join(KINDS)} with a shape of whole numbers of at least 0"
    return None


def _is_array(layout: Any) -> bool:
    if not isinstance(layout, list) or len(layout) != 2 or not isinstance(layout[0], str) or not isinstance(layout[1], list):
        return False
    return layout[0] in KINDS and all(type(side) is int and 0 <= side <= MOST_VALUES for side in layout[1])
