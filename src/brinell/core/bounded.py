"""Files that others wrote: which are opened, how much of them is read, and what they may unpack to.

Every limit is a number here. What a file says of its own size is held against them before anything is allocated; for what says
nothing, or lies, the address space of the process is bounded while a decoder works.
"""

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from brinell.core.errors import BrinellError, RequestError, one_line

MOST_CLASSES = 100_000
"""Classes that labels may speak of: lists are kept of them."""
MOST_PIXELS = 1 << 26
"""Pixels of one picture, or of one frame of a video."""
MOST_SIDE = 8192
"""Pixels of a side to which pictures and videos are brought."""
MOST_TEXT = 1 << 28
"""Bytes of a text that is read at once: a list of files, JSON, TOML."""
MOST_COLUMNS = 200_000
"""Columns of a table; a picture of 224 x 224 in colour, flattened, has 150,528."""
IN_MEMORY = 1 << 28
"""Bytes that a packed file may become in memory, however small it is."""
ON_DISK = 1 << 31
"""Bytes that a packed file may become in a temporary file, however small it is."""
RATIO = 20
"""How many times its own size a packed file may become beyond that."""
SPARE = 5 << 28
"""Bytes of address space that a decoder may take beside RATIO times the size of its file."""


def opened(path: Path) -> BufferedReader:
    """A regular file to read; a device or a pipe is never opened for good.

    Raises:
        RequestError: it is something else than a regular file.
        OSError: it is not there, or may not be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RequestError(f"{path} is no regular file but a folder, a device or a pipe: name a file")
    return os.fdopen(descriptor, "rb")


def read(path: Path, most: int) -> bytes:
    """All bytes of a regular file, in one go.

    Raises:
        RequestError: more than `most` bytes, or no regular file.
        OSError: it is not there, or may not be read.
    """
    with opened(path) as file:
        length = os.fstat(file.fileno()).st_size
        # No more than there is, since a buffer is made for all that is asked for, 16 GiB for rows.
        found = b"" if length > most else file.read(length + 1)
        if len(found) > length:  # it has become longer meanwhile
            found += file.read(most + 1 - len(found))
        if len(found) > most or not found and os.fstat(file.fileno()).st_size:
            raise RequestError(f"{path} has more than {size(most)}, the most that is read of such a file: see what is in it")
    return found


def text(path: Path) -> str:
    """A text in UTF-8 of at most MOST_TEXT bytes; errors as of `read`, and UnicodeDecodeError."""
    return read(path, MOST_TEXT).decode("utf-8")


def inside(folder: Path, name: str, listed: object, *, links: bool = False) -> Path:
    """The path of a file that something in a folder names.

    Args:
        folder: where it must be.
        name: the path from there, as it was named.
        listed: what names it, for the message.
        links: whether links that somebody laid into the folder may lead out of it.

    Raises:
        RequestError: it leads out of the folder.
    """
    try:
        found = Path(os.path.abspath(folder / name)) if links else (folder / name).resolve()
        below = Path(os.path.abspath(folder)) if links else folder.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise RequestError(f"{listed} names {name[:80]!r}, which is no path ({one_line(error, 80)}): correct it") from None
    if "\0" in name or not found.is_relative_to(below):
        raise RequestError(
            f"{listed} names {name[:80]!r}, which leads out of {folder}: nothing outside is read; copy the file in"
        )
    return found


def unpacked(declared: int, packed: int, what: object, floor: int | None = None) -> None:
    """Refuse a file that says it becomes far more than it is.

    Args:
        declared: bytes after unpacking, as the file says.
        packed: bytes of the file.
        what: the file, for the message.
        floor: bytes that any file may become; IN_MEMORY unless others are given.

    Raises:
        RequestError: more than the floor and more than RATIO times its size.
    """
    if declared > (most := max(IN_MEMORY if floor is None else floor, RATIO * packed)):
        raise RequestError(
            f"{what} has {size(packed)} and would become {size(declared)}, more than the {size(most)} that such a file may: "
            "where you trust it, store it without compression"
        )


def size(count: int) -> str:
    """A number of bytes as people read it."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count} bytes"


@contextmanager
def decoding(what: object, packed: int, otherwise: str = "cut short") -> Iterator[None]:
    """A decoder works on a file of `packed` bytes: whatever it raises becomes one line, and what it may allocate is bounded.

    Args:
        what: the file, for messages.
        packed: its bytes.
        otherwise: what else than damaged a file may be that does not decode.

    Raises:
        RequestError: it raised anything but an error of ours, or wanted more memory.
    """
    try:
        with _address_space(SPARE + RATIO * packed):
            yield
    except BrinellError:
        raise
    except MemoryError:
        raise RequestError(f"{what} has {size(packed)} and asks for far more memory than that: see where it comes from") from None
    except RecursionError:
        raise RequestError(f"{what} is nested deeper than any file of its kind: see where it comes from") from None
    except Exception as error:
        if "alloc" in str(error).lower() or "memory" in str(error).lower():
            raise RequestError(f"{what} asks for more memory than a file of its size may ({one_line(error, 120)})") from None
        raise RequestError(f"{what} is damaged or {otherwise} ({one_line(error, 200)}): fetch it again") from None


@contextmanager
def within(seconds: float, what: object) -> Iterator[None]:
    """A library of Python works on a file that it may loop over for ever: it is stopped after so many seconds.

    Only the main thread can be stopped, which is the one that opens data; in another nothing is bounded.

    Raises:
        RequestError: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise RequestError(f"{what} is not read within {seconds:g} s: it is damaged; take it out")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _address_space(more: int) -> Iterator[None]:
    """At most so many bytes more than the process has now; nothing where the system does not tell or hold it."""
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError, ValueError):
        yield
        return
    limit = min(bound for bound in (now + more, soft, hard) if bound != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
