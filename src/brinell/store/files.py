"""Writing files so that a kill leaves the old one or the new one, never half of one."""

import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import save

from brinell.core.errors import RequestError, StoppedError
from brinell.core.record import Array


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
        raise StoppedError(f"{path} cannot be written: {reason}; make room, then go on with --resume") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as one safetensors file, atomically."""
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_atomically(path, lambda temporary: temporary.write_bytes(save(tensors)))


def read_arrays(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Array]:
    """The arrays of a safetensors file whose names are wanted; all of them by default.

    Raises:
        RequestError: the file is damaged or missing.
    """
    try:
        with safetensors.safe_open(path, "np") as file:
            return {name: file.get_tensor(name) for name in file.keys() if wanted(name)}
    except (OSError, safetensors.SafetensorError) as error:
        raise RequestError(f"{path} is damaged or missing ({error}): the arrays that it should hold cannot be read") from None


def names_of_arrays(path: Path) -> list[str]:
    """The names in a safetensors file.

    Raises:
        RequestError: the file is damaged or missing.
    """
    try:
        with safetensors.safe_open(path, "np") as file:
            return list(file.keys())
    except (OSError, safetensors.SafetensorError) as error:
        raise RequestError(f"{path} is damaged or missing ({error}): the arrays that it should hold cannot be read") from None


def named_safetensors(path: Path, what: str) -> None:
    """Refuse a file name that does not end with .safetensors; `what` is what the file would hold.

    Raises:
        RequestError: another ending.
    """
    if path.suffix != ".safetensors":
        raise RequestError(f"{path} is no name for {what}: end it with .safetensors")


def digest(path: Path) -> str:
    """Hash of a file's bytes (BLAKE2b, 128 bits, hex)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
