"""Answers of several parts (tuples, dicts, data classes): which part holds the logits.

A part is named by its path, such as `logits`, `0` or `heads.1`. Without a name it is `logits` where
a part has that name, or the only part with a row of scores for each input, of as many columns as
the data have classes where that decides between several. A network that answers no rows but maps is
read likewise; of its maps the one named `out` is read first, as in torchvision.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from torch import Tensor

from brinell.core.errors import RequestError

Output = str | int | None
"""Path of the part that holds the logits; None to find it."""
DEPTH = 4
"""Largest depth to which an answer is searched."""
ARRAYS = (Tensor, np.ndarray)


def has_parts(answer: Any) -> bool:
    """True if an answer has parts with names or places; a list of plain rows has none."""
    if (
        isinstance(answer, (*ARRAYS, str, bytes, int, float))
        or answer is None
        or isinstance(answer, type)
    ):
        return False

    if isinstance(answer, list):
        # A list of lists is a batch of rows, a list of matrices an answer in parts.
        return any(
            isinstance(part, ARRAYS)
            and part.ndim > 1
            or (not isinstance(part, list) and has_parts(part))
            for part in answer
        )

    if isinstance(answer, tuple):
        return any(isinstance(part, ARRAYS) or has_parts(part) for part in answer)
    # Objects of other libraries, such as those of transformers, hold arrays as attributes.
    return (
        isinstance(answer, Mapping)
        or is_dataclass(answer)
        or any(isinstance(part, ARRAYS) for part in getattr(answer, "__dict__", {}).values())
    )


def parts_of(answer: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The arrays in an answer, each with its path."""
    if isinstance(answer, ARRAYS):
        yield path, answer
        return
    if depth > DEPTH or not has_parts(answer):
        return
    for key, part in _named(answer):
        yield from parts_of(part, f"{path}.{key}" if path else str(key), depth + 1)


def _named(answer: Any) -> list[tuple[Any, Any]]:
    """Names or places of the direct parts of an answer."""
    if isinstance(answer, Mapping):
        return list(answer.items())
    if isinstance(answer, tuple | list):
        names = getattr(answer, "_fields", range(len(answer)))
        return list(zip(names, answer, strict=True))
    if is_dataclass(answer):
        return [(field.name, getattr(answer, field.name)) for field in fields(answer)]
    return list(vars(answer).items())


def pick(answer: Any, path: str) -> Any:
    """The part of an answer at a path; None if it has none there."""
    if path == "" or answer is None:
        return answer
    values = {str(key): part for key, part in _named(answer)} if has_parts(answer) else {}
    # Also by place, where the parts have names.
    if isinstance(answer, tuple | list):
        values = {str(place): part for place, part in enumerate(answer)} | values
    for key, part in values.items():
        if path == key or path.startswith(f"{key}."):
            return pick(part, path[len(key) + 1 :])

    # A property is no part that an object lists.
    return None if "." in path or isinstance(answer, ARRAYS) else getattr(answer, path, None)


def find_output(answer: Any, output: Output, n: int, classes: int | None, name: str) -> str:
    """The path of the logits in an answer to `n` inputs; empty for the answer itself."""
    parts = dict(parts_of(answer))
    if output is not None:
        if isinstance(pick(answer, str(output)), ARRAYS):
            return str(output)
        raise RequestError(
            f"{name} answers no part {output!r}; {_listing(parts)}: take one of "
            "these by output=PART"
        )
    if not has_parts(answer):
        return ""
    if isinstance(pick(answer, "logits"), ARRAYS):
        return "logits"

    # Without a name the shapes decide, as long as one part alone fits.
    candidates = _candidates(parts, n, classes)
    if len(candidates) == 1:
        return candidates[0]
    hint = "several may be the logits: say which by output=PART"
    remedy = (
        hint
        if candidates
        else "none has a row or a map of scores for each input: wrap the model so that one has"
    )
    raise RequestError(
        f"{name} answers with a {type(answer).__name__}, {_listing(parts)}; {remedy}"
    )


def _candidates(parts: Mapping[str, Any], n: int, classes: int | None) -> list[str]:
    """Paths of the parts that may be logits of `n` inputs: rows before single numbers before maps.

    Of several those with a column for each class, if there are any.
    """

    def of_axes(count: int) -> list[str]:
        """Paths of the parts of so many axes with an entry for each input."""
        return [path for path, part in parts.items() if part.ndim == count and len(part) == n]

    maps = of_axes(4)
    # Networks for segmentation of torchvision answer beside "out" an auxiliary map.
    candidates = of_axes(2) or of_axes(1) or [path for path in maps if path == "out"] or maps
    fitting = [
        path for path in candidates if parts[path].ndim > 1 and parts[path].shape[1] == classes
    ]
    return fitting or candidates


def _listing(parts: Mapping[str, Any]) -> str:
    """A clause that lists the parts of an answer with their shapes."""
    texts = [f"{path} {tuple(part.shape)}" for path, part in parts.items()]
    return f"its parts are {', '.join(texts)}" if parts else "it has no parts that are arrays"


def note_of(path: str, output: Output, name: str) -> tuple[str, ...]:
    """Note of a run on an output that was chosen automatically."""
    if path in ("", "logits") or output is not None:
        return ()
    return (f"{name} answers several parts, of which {path} is read: its shape is that of logits",)
