"""Seals: each file holds the hash of its bytes, which detects accidental changes.

A seal is the text `brinell:sealed brinell:digest:` and 32 hexadecimal digits. It stands in the metadata of Parquet and
safetensors files, or under a key of JSON. The digits are the hash (BLAKE2b, 128 bits) of the file with zeros for these digits.
A flipped bit anywhere breaks the seal, also a bit in the seal itself. A seal does not protect against forgery, because anybody
can seal a file again: use `brinell verify` for that.
"""

import hashlib
import mmap
import re
from pathlib import Path
from typing import Any

BLANK = "brinell:sealed brinell:digest:" + "0" * 32
"""The placeholder of a seal, in a file that is not sealed yet."""
KEY = "brinell.seal"
_SEAL = re.compile(rb"brinell:digest:([0-9a-f]{32})")
_MARKS = (b"brinell:sealed", b"brinell:digest:", KEY.encode())
_MOST = 16
"""The most candidates to try: a file has one seal, but its texts may look like seals."""


def sealed(content: bytes) -> bytes:
    """The content with the hash in its last BLANK.

    Raises:
        ValueError: the content has no BLANK.
    """
    places = [match.span(1) for match in _SEAL.finditer(content) if match[1] == b"0" * 32]
    if not places:
        raise ValueError("the file has no place for a seal")
    return content[: places[-1][0]] + _digest(content, *places[-1]).encode() + content[places[-1][1] :]


def seal(path: Path) -> None:
    """Seal a file on disk like `sealed`, without reading it into memory at once."""
    with path.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            position = content.rfind(BLANK.encode())
        if position < 0:
            raise ValueError("the file has no place for a seal")
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        file.seek(position + len(BLANK) - len(digest))
        file.write(digest.encode())


def holds(content: Any) -> bool | None:
    """True if the seal of a file (bytes or a memory map) matches its content, False if not, None without a seal."""
    places = [match.span(1) for _, match in zip(range(_MOST), _SEAL.finditer(content), strict=False)]
    if any(_digest(content, start, end) == bytes(content[start:end]).decode() for start, end in places):
        return True
    return False if any(content.find(mark) >= 0 for mark in _MARKS) else None


def _digest(content: Any, start: int, end: int) -> str:
    """Hash of a content with zeros in place of the seal."""
    hashed = hashlib.blake2b(digest_size=16)
    with memoryview(content) as view, view[:start] as before, view[end:] as after:
        hashed.update(before)
        hashed.update(b"0" * (end - start))
        hashed.update(after)
    return hashed.hexdigest()
