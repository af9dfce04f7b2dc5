"""Safetensors files of others: the text in their header, and their arrays, each no larger than the
file.
"""

import json
import math
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core import bounded
from brinell.core.record import Array

Places = dict[str, tuple[int, Mapping[str, Any]]]
"""Of each array: where the numbers of the file begin, and what its header says of the array."""
KINDS = {
    "BOOL": "?",
    **{f"{name}{8 * size}": f"<{name.lower()}{size}" for name in "IU" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
}
"""Types of numbers as safetensors and NumPy call them."""
METADATA = "__metadata__"


def read(
    path: Path, most: int = bounded.MOST_TEXT
) -> tuple[dict[str, str], dict[str, Array], bytes]:
    """The texts of a file by name, its arrays by name, and its bytes.

    Args:
        path: the file.
        most: the largest size allowed, in bytes.

    Raises:
        RequestError: the file is larger, or is not a regular file.
        OSError: the file does not exist or is not readable.
        ValueError: the content is not in safetensors format.
    """
    content = bounded.read(path, most)

    try:
        texts = _header(content)[1].get(METADATA) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("what its header says beside arrays is no text")
        arrays = {name: array(content, name, *place) for name, place in places(content).items()}
    # The header is from a stranger: whatever is wrong with it must end in one line.
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header is damaged ({type(error).__name__})") from None

    return texts, arrays, content


def places(content: Any) -> Places:
    """Positions of the arrays in a file (bytes, or mapped).

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: the content is not in
            safetensors format.
    """
    start, header = _header(content)
    return {name: (start, place) for name, place in header.items() if name != METADATA}


def _header(content: Any) -> tuple[int, dict[str, Any]]:
    """The place where the numbers of a file begin, and its header."""
    start = 8 + int.from_bytes(content[:8], "little")
    if not 8 < start <= min(len(content), bounded.MOST_JSON):
        raise ValueError(f"a header of {start - 8} bytes in a file of {len(content)}")
    header: dict[str, Any] = json.loads(content[8:start])
    return start, header


def array(content: Any, name: str, start: int, place: Mapping[str, Any]) -> Array:
    """One array of a file; for arguments and errors see `places`."""
    kind = np.dtype(KINDS[place["dtype"]])
    shape = tuple(map(operator.index, place["shape"]))
    first, last = map(operator.index, place["data_offsets"])
    begin = start + first
    end = start + last

    fits = end - begin == kind.itemsize * math.prod(shape)
    if min(shape, default=0) < 0 or not start <= begin <= end <= len(content) or not fits:
        raise ValueError(f"{name[:60]!r} of shape {shape} does not lie in the file")
    # A copy, so that the array outlives the bytes of the file.
    return np.frombuffer(content[begin:end], kind).reshape(shape).copy()
