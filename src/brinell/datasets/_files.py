"""Files of arrays and tables, for several data sets."""

import csv
import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.core.record import Array

LONGEST_LINE = 1 << 24
"""Maximum length of a table's first line in bytes."""


@contextmanager
def csv_file(file: Path) -> Iterator[IO[str]]:
    """Open a CSV file; errors on reading it become one line."""
    try:
        content = bounded.read(file, bounded.MOST_TEXT)
        with bounded.time_limit(bounded.SECONDS + len(content) / bounded.SPEED, file):
            yield io.StringIO(content.decode("utf-8-sig"), newline="")
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise read_error(file, error) from None


def first_row(file: Path) -> list[str]:
    """The cells of a CSV file's first line, whatever its length; empty for an empty file."""
    try:
        # Files of one endless line exist; a table's first line is short.
        with bounded.open_regular(file) as stream:
            line = stream.readline(LONGEST_LINE)
        # Programs of Windows put a mark in front of the text.
        cells = next(csv.reader([line.decode("utf-8-sig")], strict=True), [])
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise read_error(file, error) from None

    if len(line) == LONGEST_LINE or len(cells) > bounded.MOST_COLUMNS:
        raise RequestError(
            f"{file} has a first line of {len(line)} bytes and {len(cells)} "
            "columns: it is no table of inputs"
        )
    return cells


def read_error(subject: object, error: Exception) -> RequestError:
    """The error that states why `subject` could not be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
    if isinstance(error, PermissionError):
        return RequestError(f"{subject} may not be read ({reason}): check its permissions")
    return RequestError(f"{subject} is damaged or cut short ({reason}): fetch it again")


def array_of(
    content: bytes,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    offset: int,
    subject: object,
    order: str = "C",
) -> Array:
    """An array of some shape in the bytes of a file."""
    if min(shape, default=1) < 0 or not dtype.itemsize:
        raise RequestError(
            f"{subject} is damaged: its shape is {shape} and its type {dtype}; fetch it again"
        )
    if 0 in shape:
        raise RequestError(
            f"{subject} has shape {shape} and holds nothing: there is nothing to audit"
        )

    # A length that lies is refused before the array is made.
    count = math.prod(shape)
    if len(content) < offset + dtype.itemsize * count:
        need = offset + dtype.itemsize * count
        raise RequestError(
            f"{subject} is cut short: {len(content)} bytes where {need} are needed; fetch it again"
        )
    return np.frombuffer(content, dtype, count, offset).reshape(
        shape, order="F" if order == "F" else "C"
    )


def npz_array(archive: zipfile.ZipFile, name: str, file: Path) -> Array:
    """An array of a NumPy archive; refuses damage, pickled objects, and undue growth."""
    subject = f"array {name} of {file}"
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        entry = archive.getinfo(name + ".npy")
        bounded.check_unpacked_size(entry.file_size, entry.compress_size, subject, bounded.ON_DISK)
        content = archive.read(entry)
        stream = io.BytesIO(content)
        version = np.lib.format.read_magic(stream)
        if version not in readers:
            raise ValueError(f"format version {version}")
        shape, fortran, dtype = readers[version](stream)
    except RequestError:
        raise
    except Exception as error:
        # The header is Python that NumPy reads, and it raises whatever comes its way.
        raise read_error(subject, error) from None

    if dtype.hasobject:
        raise RequestError(
            f"{subject} holds Python objects (a pickle), which are never loaded: "
            "save it as an array of plain numbers"
        )
    if not shape:
        raise RequestError(f"{subject} is a single value, not an array")
    return array_of(content, dtype, shape, stream.tell(), subject, "F" if fortran else "C")
