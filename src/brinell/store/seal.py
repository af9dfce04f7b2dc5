"""Files that tell whether they are as they were written: each holds the hash of its own bytes.

The seal is a text, `brinell:sealed brinell:digest:` and 32 hexadecimal digits, in whatever place a format has for such: the
metadata of Parquet and safetensors, a key of JSON. The digits are the hash of the file with zeros in their place (BLAKE2b,
128 bits). A flipped bit anywhere breaks it; so does one in the seal, of which the rest still shows that there was one. It proves
nothing against whoever seals anew: that is what `brinell verify` is for.
"""

import hashlib
import mmap
import re
from pathlib import Path
from typing import Any

BLANK = "brinell:sealed brinell:digest:" + "0" * 32
"""What is written where the seal will stand."""
KEY = "brinell.seal"
_SEAL = re.compile(rb"brinell:digest:([0-9a-f]{32})")
_MARKS = (b"brinell:sealed", b"brinell:digest:")
_MOST = 16
"""Places that are tried at most; a file has one, and texts in it may look like others."""


def sealed(content: bytes) -> bytes:
    """A file with the hash in place of the zeros of its last BLANK, which it must have."""
    places = [match.span(1) for match in _SEAL.finditer(content) if match[1] == b"0" * 32]
    if not places:
        raise ValueError("the file has no place for a seal")
    return content[: places[-1][0]] + _digest(content, *places[-1]).encode() + content[places[-1][1] :]


def seal(path: Path) -> None:
    """`sealed` in a file, with no more of it in memory than a piece at a time."""
    with path.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.rfind(BLANK.encode())
        if at < 0:
            raise ValueError("the file has no place for a seal")
        digest = hashlib.file_digest(
            file, lambda: hashlib.blake2b(digest_size=16)
        ).hexdigest()  # with the zeros, as `_digest` has them
        file.seek(at + len(BLANK) - len(digest))
        file.write(digest.encode())


def holds(content: Any) -> bool | None:
    """Whether a file (bytes, or mapped) is as it was sealed; None where it never was."""
    places = [match.span(1) for _, match in zip(range(_MOST), _SEAL.finditer(content), strict=False)]
    if any(_digest(content, start, end) == bytes(content[start:end]).decode() for start, end in places):
        return True
    return False if any(content.find(mark) >= 0 for mark in _MARKS) else None


def _digest(content: Any, start: int, end: int) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    with memoryview(content) as view, view[:start] as before, view[end:] as after:
        hashed.update(before)
        hashed.update(b"0" * (end - start))
        hashed.update(after)
    return hashed.hexdigest()
