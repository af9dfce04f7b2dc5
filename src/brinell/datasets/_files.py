"""Files of arrays, mapped into memory in place of read: what the data sets share."""

import errno
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from brinell.core.errors import RequestError
from brinell.core.record import Array


def existing_file(path: str, spec: str) -> Path:
    """The file that a data set was asked to read."""
    return _existing(path, spec, "file", Path.is_file)


def existing_folder(path: str, spec: str) -> Path:
    """The folder that a data set was asked to read."""
    return _existing(path, spec, "folder", Path.is_dir)


def _existing(path: str, spec: str, what: str, is_there: Callable[[Path], bool]) -> Path:
    if not path:
        raise RequestError(f"no {what} was named: write {spec}")
    found = Path(path).expanduser()
    if not is_there(found):
        raise RequestError(f"there is no {what} {found}: check the path in {spec}")
    return found


def unread(what: object, error: Exception) -> RequestError:
    """The line that says why `what` could not be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RequestError(f"no space left to unpack {what} in {tempfile.gettempdir()}: free some, or set TMPDIR")
    if isinstance(error, PermissionError):
        return RequestError(f"{what} may not be read ({reason}): check its permissions")
    return RequestError(f"{what} is damaged or cut short ({reason}): fetch it again")


def spill(stream: IO[bytes], what: object) -> IO[bytes]:
    """The bytes of a stream in a temporary file that has no name and goes away with its last user."""
    with ExitStack() as undo:
        try:
            file = undo.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, file, 1 << 20)
            file.seek(0)
        except (OSError, EOFError, zlib.error, ValueError, RuntimeError, zipfile.BadZipFile) as error:
            raise unread(what, error) from None
        undo.pop_all()
    return file


def mapped(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, what: object, order: str = "C") -> Array:
    """An array over the bytes of a file, none of them read yet."""
    if 0 in shape:
        raise RequestError(f"{what} has shape {shape} and holds nothing: there is nothing to audit")
    end = file.seek(0, 2)
    need = offset + dtype.itemsize * int(np.prod(shape, dtype=object))
    if end < need:
        raise RequestError(f"{what} is cut short: {end} bytes where {need} are needed; fetch it again")
    return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if order == "F" else "C")


def map_npy(file: IO[bytes], what: object) -> Array:
    """The array of a `.npy` file. A pickle is never loaded."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        if version not in readers:
            raise ValueError(f"format version {version}")
        shape, fortran, dtype = readers[version](file)
    except (ValueError, EOFError, OSError, SyntaxError) as error:
        raise unread(what, error) from None
    if dtype.hasobject:
        raise RequestError(
            f"{what} holds Python objects (a pickle), which are never loaded: save it as an array of plain numbers"
        )
    if not shape:
        raise RequestError(f"{what} is a single value, not an array")
    return mapped(file, dtype, shape, file.tell(), what, "F" if fortran else "C")
