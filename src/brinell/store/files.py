"""Atomic writes: after a kill a file holds its old content or its new content, never a
part of it.
"""

import errno
import glob
import mmap
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from brinell.core import bounded, stored
from brinell.core.errors import RequestError, StoppedError, one_line, option
from brinell.core.record import Array

HALF = re.compile(r"\..+\.(\d{1,9})\.tmp")
"""A temporary file, which has the number of the process that writes it."""


def write_atomically(path: Path, write: Callable[[Path], object], *, durable: bool = True) -> None:
    """Let `write` fill a temporary file, flush it to disk if it is to be durable, and rename it to
    `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_halves(path)
        write(temporary)

        # The content must be on the disk before its name is, and the name before anything that
        # relies on it.
        if durable:
            _flush(temporary)
        temporary.replace(path)
        if durable:
            _flush(path.parent)
    except OSError as error:
        raise StoppedError(
            f"{path} cannot be written: {_reason(error)}, then go on with {option('resume')}"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _remove_halves(path: Path) -> None:
    """Remove what killed processes left of a file that they were writing."""
    for half in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        match = HALF.fullmatch(half.name)
        if match is not None and not _runs(int(match[1])):
            half.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """True if a process of this number runs; signal 0 asks and changes nothing."""
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # it is that of another user
    return True


def _flush(path: Path) -> None:
    """Write what the system keeps of a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room"
    reason = error.strerror or one_line(error)
    return f"{reason[:1].lower()}{reason[1:]}; make it writable"


def check_writable(folder: Path) -> None:
    """Refuse a folder, which may not exist yet, in which no file can be written; the check leaves
    nothing behind.
    """
    # Folders that are made for the check, innermost first, and taken away in this order.
    absent = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or one_line(error)
        if isinstance(error, FileExistsError):
            reason = "a file has that name"
        raise RequestError(
            f"{folder} cannot be written ({reason}): choose another {option('out')}"
        ) from None
    finally:
        for place in absent:
            with suppress(OSError):
                place.rmdir()


def check_file(path: Path) -> None:
    """Refuse a name under which no file can be written."""
    if path.is_dir():
        raise RequestError(
            f"{path} is a folder: name a file by {option('out')}, such as {path / 'NAME'}"
        )
    check_writable(path.parent)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write `text` in UTF-8, atomically; `durable` as in `write_atomically`."""
    write_atomically(
        path, lambda temporary: temporary.write_text(text, encoding="utf-8"), durable=durable
    )


def write_arrays(path: Path, arrays: Mapping[str, Array], *, durable: bool = True) -> None:
    """Write arrays by name as one safetensors file, atomically; `durable` as in
    `write_atomically`.
    """
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    write_atomically(path, lambda temporary: temporary.write_bytes(content), durable=durable)


def read_arrays(path: Path, select: Callable[[str], bool] = lambda name: True) -> dict[str, Array]:
    """Read arrays of a safetensors file by name.

    Args:
        path: the file.
        select: returns True for the names to read; by default all.
    """
    with _mapped(path) as content:
        return {
            name: stored.array(content, name, *place)
            for name, place in stored.places(content).items()
            if select(name)
        }


def names_of_arrays(path: Path) -> list[str]:
    """The names of the arrays in a safetensors file; errors as in `read_arrays`."""
    with _mapped(path) as content:
        return list(stored.places(content))


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    """Map a file of arrays into memory. Errors inside the block become one-line request errors."""
    try:
        with (
            bounded.open_regular(path) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            yield content
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, one_line(error, 200)) from None


def damaged(path: Path, reason: str) -> RequestError:
    """The error about a damaged file."""
    return RequestError(
        f"{path} is damaged or missing ({reason}): restore it from a copy of the folder"
    )


def check_safetensors_name(path: Path, description: str) -> None:
    """Refuse a file name that does not end with .safetensors; `description` names the content for
    the message.
    """
    if path.suffix != ".safetensors":
        raise RequestError(f"{path} is no name for {description}: end it with .safetensors")
