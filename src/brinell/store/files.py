"""Writing files so that a kill leaves the old one or the new one, never half of one."""

import errno
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from brinell.core import bounded, stored
from brinell.core.errors import RequestError, StoppedError, one_line, option
from brinell.core.record import Array
from brinell.store import seal

LAST = ("records", "samples")
"""Folders whose file of a part is written last, so that without it the part is made again."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a temporary file beside `path`, then put it there in one step, on disk before it is seen.

    Raises:
        StoppedError: the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error.strerror or error).lower()
        raise StoppedError(f"{path} cannot be written: {reason}; make room, then go on with {option('resume')}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as one sealed safetensors file, atomically."""
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = seal.sealed(save(tensors, {seal.KEY: seal.BLANK}))
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def read_arrays(path: Path, wanted: Callable[[str], bool] = lambda name: True, expected: str | None = None) -> dict[str, Array]:
    """The arrays of a safetensors file whose names are wanted.

    Args:
        path: the file.
        wanted: which names; all of them by default.
        expected: the hash that the file must have (`digest`), where that is known.

    Raises:
        RequestError: the file is damaged, changed or missing.
    """
    with _mapped(path, expected) as content:
        return {name: stored.array(content, name, *where) for name, where in stored.places(content).items() if wanted(name)}


def names_of_arrays(path: Path, expected: str | None = None) -> list[str]:
    """The names in a safetensors file; `expected` and errors as of `read_arrays`."""
    with _mapped(path, expected) as content:
        return list(stored.places(content))


@contextmanager
def _mapped(path: Path, expected: str | None) -> Iterator[mmap.mmap]:
    """A file of arrays, mapped and found to be as it was written; what is wrong with it meanwhile is said in one line."""
    try:
        with bounded.opened(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            check(path, content, expected)
            yield content
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, one_line(error, 200)) from None


def check(path: Path, content: Any, expected: str | None = None) -> None:
    """Refuse the content of a file, bytes or mapped, that is not as it was written: its seal does not hold, or another hash."""
    if seal.holds(content) is False:
        raise _damaged(path, "the digest that it holds is not its own")
    if expected is not None and hashlib.blake2b(content, digest_size=16).hexdigest() != expected:
        raise _damaged(path, "it was changed after the run ended")


def checked_file(path: Path, most: int, expected: str | None = None) -> int:
    """Refuse a file that is not as it was written, without taking it into memory. Returns its bytes.

    Args:
        path: where it lies.
        most: bytes that it may have.
        expected: the hash that it must have, as for `check`.

    Raises:
        RequestError: as of `check`, or it is larger, or no regular file.
        OSError: it is not there, or may not be read.
    """
    with bounded.opened(path) as file:
        length = os.fstat(file.fileno()).st_size
        if length > most:
            raise RequestError(
                f"{path} has more than {bounded.size(most)}, the most that is read of such a file: see what is in it"
            )
        if length:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                check(path, content, expected)
        return length


def _damaged(path: Path, why: str) -> RequestError:
    """The line that says what to do: to delete the file and the rows that go with it, so that they are made again."""
    rows = [one for name in LAST for one in path.parent.parent.glob(f"{name}/*.parquet") if path.stem.startswith(one.stem)]
    along = "" if path.parent.name in LAST else "".join(f" and {one.parent.name}/{one.name}" for one in rows)
    return RequestError(f"{path} is damaged or missing ({why}): delete it{along} and go on with {option('resume')}")


def named_safetensors(path: Path, what: str) -> None:
    """Refuse a file name that does not end with .safetensors; `what` is what the file would hold."""
    if path.suffix != ".safetensors":
        raise RequestError(f"{path} is no name for {what}: end it with .safetensors")


def digest(path: Path) -> str:
    """Hash of a file's bytes (BLAKE2b, 128 bits, hex)."""
    with bounded.opened(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
