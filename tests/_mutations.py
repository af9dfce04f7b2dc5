"""Manifests with a value that somebody else might have written: of another type, out of range,
missing.
"""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError

WRONG = (
    "text",
    -1,
    10**12,
    0.5,
    True,
    None,
    [],
    ["text"],
    {},
    {"text": 1},
    "\u001b[2J" * 30,
    float("nan"),
)


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values in a manifest: each key, and the first entry of each list."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else list(enumerate(value))[:1]
        if isinstance(value, list)
        else ()
    )
    for key, entry in inner:
        if prefix != ("request",) or isinstance(value, list):
            yield (*prefix, key)
            yield from paths(entry, (*prefix, key))


def mutate(manifest: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The manifest with another value at a place; KeyError stands for none at all."""
    changed = copy.deepcopy(manifest)
    container = changed
    for key in path[:-1]:
        container = container[key]
    if value is KeyError:
        del container[path[-1]]
    else:
        container[path[-1]] = value
    return changed


def mutations(manifest: dict[str, Any], count: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place with every wrong value, or `count` of them drawn with a fixed seed."""
    pairs = [(path, value) for path in paths(manifest) for value in (*WRONG, KeyError)]
    if count is not None:
        pairs = [pairs[index] for index in np.random.default_rng(0).permutation(len(pairs))[:count]]
    for path, value in pairs:
        yield f"{path} = {value!r}", mutate(manifest, path, value)


def read_unsealed(file: Path) -> dict[str, Any]:
    """A manifest as it stands in its file."""
    return dict(json.loads(file.read_text()))


def write_unsealed(file: Path, manifest: dict[str, Any]) -> None:
    """As a person would write it."""
    file.write_text(json.dumps(manifest))


def count_refused(count: int | None, file: Path, read: Callable[[], object]) -> int:
    """How many mutations are refused; a RequestError of one line is all that may be raised."""
    content, refusals = file.read_bytes(), 0
    for description, wrong in mutations(read_unsealed(file), count):
        write_unsealed(file, wrong)
        try:
            read()
        except RequestError as error:
            assert "\n" not in str(error) and len(str(error)) < 600, description
            refusals += 1
        except Exception as error:
            raise AssertionError(description) from error
    file.write_bytes(content)
    return refusals
