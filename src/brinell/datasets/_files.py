"""Files of arrays, mapped into memory in place of read: what the data sets share."""

import csv
import errno
import io
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.record import Array

LONGEST_LINE = 1 << 24
"""Bytes of the first line of a table at most."""


def existing(path: str, what: Literal["file", "folder"], spec: str) -> Path:
    """The file or folder that a data set was asked to read."""
    if not path:
        raise RequestError(f"no {what} was named: write {spec}")
    found = Path(path).expanduser()
    if not (found.is_file() if what == "file" else found.is_dir()):
        raise RequestError(f"there is no {what} {found}: check the path in {spec}")
    return found


def no_originals(folder: Path, name: str, packed: str) -> RequestError:
    """The line for a folder without the original files of a data set, of which `name` is one; archives in it are pointed out."""
    archives = sorted(folder.glob("*.npz"))
    hint = f"; for {archives[0].name} write npz:{archives[0]}" if archives else ""
    return RequestError(f"{folder} has no {name} (or {packed}): name the folder of the original files{hint}")


@contextmanager
def csv_file(file: Path) -> Iterator[IO[str]]:
    """A CSV file to read from; what goes wrong with it meanwhile is said in one line."""
    try:
        yield io.StringIO(bounded.read(file, bounded.MOST_TEXT).decode("utf-8-sig"), newline="")
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise unread(file, error) from None


def first_row(file: Path) -> list[str]:
    """The cells of the first line of a CSV file of any length; none where it is empty."""
    try:
        with bounded.opened(file) as stream:
            line = stream.readline(LONGEST_LINE)
        cells = next(csv.reader([line.decode("utf-8-sig")], strict=True), [])
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise unread(file, error) from None
    if len(line) == LONGEST_LINE or len(cells) > bounded.MOST_COLUMNS:
        raise RequestError(f"{file} has a first line of {len(line)} bytes and {len(cells)} columns: it is no table of inputs")
    return cells


def unread(what: object, error: Exception) -> RequestError:
    """The line that says why `what` could not be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RequestError(f"no space left to unpack {what} in {tempfile.gettempdir()}: free some, or set TMPDIR")
    if isinstance(error, PermissionError):
        return RequestError(f"{what} may not be read ({reason}): check its permissions")
    return RequestError(f"{what} is damaged or cut short ({reason}): fetch it again")


def spill(stream: IO[bytes], what: object, packed: int) -> IO[bytes]:
    """The bytes of a stream in a temporary file that has no name and goes away with its last user.

    The `packed` bytes bound those that it unpacks to; `what` names the file in messages.
    """
    with ExitStack() as undo:
        try:
            file, found = undo.enter_context(tempfile.TemporaryFile()), 0
            while part := stream.read(1 << 20):
                found += len(part)
                bounded.unpacked(found, packed, what, bounded.ON_DISK)
                file.write(part)
            file.seek(0)
        except RequestError:
            raise
        except Exception as error:  # decoders raise whatever comes their way on damaged bytes
            raise unread(what, error) from None
        undo.pop_all()
    return file


def mapped(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, what: object, order: str = "C") -> Array:
    """An array over the bytes of a file, none of them read yet."""
    if min(shape, default=1) < 0 or not dtype.itemsize:
        raise RequestError(f"{what} is damaged: its shape is {shape} and its type {dtype}; fetch it again")
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
    except Exception as error:  # the header is Python that numpy reads, and it raises whatever comes its way
        raise unread(what, error) from None
    if dtype.hasobject:
        raise RequestError(
            f"{what} holds Python objects (a pickle), which are never loaded: save it as an array of plain numbers"
        )
    if not shape:
        raise RequestError(f"{what} is a single value, not an array")
    return mapped(file, dtype, shape, file.tell(), what, "F" if fortran else "C")


def npz_array(archive: zipfile.ZipFile, name: str, file: Path) -> Array:
    """An array of a NumPy archive, unpacked into a temporary file and mapped; refuses damage, objects, and undue growth."""
    what = f"array {name} of {file}"
    try:
        told = archive.getinfo(name + ".npy")
        bounded.unpacked(told.file_size, told.compress_size, what, bounded.ON_DISK)
        with archive.open(told) as member, spill(member, what, told.compress_size) as unpacked:
            return map_npy(unpacked, what)
    except RequestError:
        raise
    except Exception as error:
        raise unread(what, error) from None
