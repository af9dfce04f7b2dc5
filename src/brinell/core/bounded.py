"""Limits for untrusted files: which files are opened, how many bytes are read, and how large they
may become when unpacked.

Every limit is a constant in this module. The declared size of a file is compared with its limit
before memory is allocated. For files that declare no size or a wrong one, the address space of the
process is limited while a decoder runs.
"""

import hashlib
import json
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from brinell.core.errors import BrinellError, RequestError, one_line

MOST_CLASSES = 100_000
"""Largest number of classes."""
MOST_PIXELS = 1 << 26
"""Largest number of pixels of an image, or of a video frame."""
MOST_SIDE = 8192
"""Largest side, in pixels, to which images and videos are resized."""
MOST_TEXT = 1 << 28
"""Largest size of a text file, in bytes, such as a list of files."""
MOST_JSON = 1 << 25
"""Largest size of a file of JSON, in bytes: what it becomes in memory is up to 30 times as
large."""
MOST_KEYS = 100_000
"""Largest number of keys of a table in a file of JSON."""
MOST_SETTINGS = 1 << 20
"""Largest size of a file of settings, in bytes."""
MOST_COLUMNS = 200_000
"""Largest number of columns of a table; a flattened colour image of 224 x 224 pixels has
150,528."""
IN_MEMORY = 1 << 28
"""Bytes that any packed file may take in memory after unpacking."""
ON_DISK = 1 << 31
"""Bytes that any archive of arrays may take after unpacking."""
RATIO = 20
"""Largest ratio of unpacked size to packed size, for files above these limits."""
SPARE = 5 << 28
"""Bytes of address space that a decoder may use in addition to RATIO times the size of its file."""
SECONDS = 20.0
"""Seconds that a decoder may take."""
SPEED = 1 << 23
"""Bytes of its file for each of which it may take a further second."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; devices and pipes are refused.

    Raises:
        RequestError: the path is not a regular file.
        OSError: the file does not exist or is not readable.
    """
    # Non-blocking, so that opening a pipe without a writer does not wait for one.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RequestError(
            f"{path} is no regular file but a folder, a device or a pipe: name a file"
        )

    return os.fdopen(descriptor, "rb")


def read(path: Path, most: int) -> bytes:
    """Read all bytes of a regular file.

    Raises:
        RequestError: the file has more than `most` bytes, or is not a regular file.
        OSError: the file does not exist or is not readable.
    """
    with open_regular(path) as file:
        # A buffer of `most` bytes would be 16 GiB for rows: read what the file says, and one byte
        # more.
        length = os.fstat(file.fileno()).st_size
        content = b"" if length > most else file.read(length + 1)
        # Longer than it says: a file that grows, or one of /proc, which all say 0 bytes.
        if len(content) > length:
            content += file.read(most + 1 - len(content))

        # Nothing was read although there are bytes: the stated size alone is above the limit.
        if len(content) > most or not content and os.fstat(file.fileno()).st_size:
            raise RequestError(
                f"{path} is larger than {size(most)}, the limit for such a file: check its content"
            )
    return content


def text(path: Path) -> str:
    """Read a UTF-8 text of at most MOST_TEXT bytes.

    Raises:
        RequestError: as `read`.
        OSError: as `read`.
        UnicodeDecodeError: the file is not in UTF-8.
    """
    return read(path, MOST_TEXT).decode("utf-8")


def json_of(path: Path) -> Any:
    """The JSON in a file of at most MOST_JSON bytes; errors are those of `read` and `decoding`.

    A key that stands twice in a table is refused: readers would not agree on its value.
    """
    content = read(path, MOST_JSON)
    with decoding(path, len(content), "no JSON"):
        return json.loads(content, object_pairs_hook=_table)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table of JSON; raises ValueError for too many keys, and for one that stands twice."""
    if len(pairs) > MOST_KEYS:
        raise ValueError(f"a table has more than {MOST_KEYS:,} keys")
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key stands twice in a table")
    return table


def digest(path: Path) -> str:
    """The hash of a regular file's bytes (BLAKE2b, 128 bits, hexadecimal)."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def path_inside(folder: Path, name: str, origin: object, *, links: bool = False) -> Path:
    """Resolve a path that untrusted content names, and check that it stays inside a folder.

    Args:
        folder: the folder that must contain the file.
        name: the path relative to `folder`.
        origin: the source of the name, for the message.
        links: True if symbolic links inside the folder may lead out of it.
    """
    try:
        # Links are followed by `resolve` and kept by `abspath`.
        path = Path(os.path.abspath(folder / name)) if links else (folder / name).resolve()
        below = Path(os.path.abspath(folder)) if links else folder.resolve()
        # A name that no file system takes, too long or with a null byte, raises here.
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise RequestError(
            f"{origin} names {name[:80]!r}, which is no path ({one_line(error, 80)}): correct it"
        ) from None

    if "\0" in name or not path.is_relative_to(below):
        raise RequestError(
            f"{origin} names {name[:80]!r}, which leads out of {folder}: files "
            "outside are not read; copy the file into it"
        )
    return path


def check_unpacked_size(declared: int, packed: int, file: object, floor: int | None = None) -> None:
    """Refuse a file whose declared unpacked size is far above its packed size.

    Args:
        declared: bytes after unpacking, as the file declares them.
        packed: bytes of the file.
        file: the file, for the message.
        floor: unpacked bytes that are allowed for every file; by default IN_MEMORY.
    """
    least = IN_MEMORY if floor is None else floor
    most = max(least, RATIO * packed)

    # The unpacked size is declared by the file itself, so it is refused before memory is allocated.
    if declared > most:
        raise RequestError(
            f"{file} has {size(packed)} and would become {size(declared)}, more "
            f"than the {size(most)} that such a file may: "
            "if you trust it, store it without compression"
        )


def size(count: int) -> str:
    """Format a number of bytes with a decimal unit."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count} bytes"


@contextmanager
def decoding(file: object, packed: int, alternative: str = "cut short") -> Iterator[None]:
    """Limit memory and time of a decoder in the block, and turn its exceptions into request errors.

    Args:
        file: the file, for messages.
        packed: the size of the file in bytes.
        alternative: another cause of a failure than damage, for the message.
    """
    try:
        with _address_space(SPARE + RATIO * packed), time_limit(SECONDS + packed / SPEED, file):
            yield
    except BrinellError:
        # A message of ours already.
        raise

    except MemoryError:
        raise RequestError(
            f"{file} has {size(packed)} and asks for far more memory than that: "
            "see where it comes from"
        ) from None
    except RecursionError:
        raise RequestError(
            f"{file} is nested deeper than any file of its kind: see where it comes from"
        ) from None
    except Exception as error:
        # Decoders in C report a failed allocation by an error of their own.
        if "alloc" in str(error).lower() or "memory" in str(error).lower():
            raise RequestError(
                f"{file} asks for more memory than a file of its size may ({one_line(error, 120)})"
            ) from None
        raise RequestError(
            f"{file} is damaged or {alternative} ({one_line(error, 200)}): fetch it again"
        ) from None


@contextmanager
def time_limit(seconds: float, file: object) -> Iterator[None]:
    """Interrupt the block after `seconds`: a library may loop forever on a damaged file.

    Only the main thread, which opens data, can be interrupted; other threads have no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise RequestError(f"{file} was not read within {seconds:g} s: it is damaged; remove it")

    previous, start = signal.signal(signal.SIGALRM, stop), time.monotonic()
    remaining, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    # The limit of a block around this one may come first: then it stays in force.
    if 0 < remaining < seconds:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, remaining)

    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        # The timer around this one goes on; it never gets 0, which would switch it off.
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, remaining - time.monotonic() + start))


@contextmanager
def _address_space(extra: int) -> Iterator[None]:
    """Limit the growth of the address space to `extra` bytes, on systems that have such limits."""
    try:
        import resource

        # What the process holds already counts in the limit, so it is added to what may come.
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError, ValueError):
        yield
        return
    limit = min(bound for bound in (used + extra, soft, hard) if bound != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    # Torch and its libraries reserve addresses that they never use: only the growth is limited.
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
