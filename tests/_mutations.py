"""Manifests with a value that somebody else might have written: of another type, out of range, missing."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError

WRONG = ("text", -1, 10**12, 0.5, True, None, [], ["text"], {}, {"text": 1}, "\u001b[2J" * 30, float("nan"))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a manifest says something: each key, and the first entry of each list."""
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, one in inner:
        if at != ("request",) or isinstance(value, list):
            yield (*at, key)
            yield from places(one, (*at, key))


def mutated(manifest: dict[str, Any], at: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The manifest with another value at a place; KeyError stands for none at all."""
    made = copy.deepcopy(manifest)
    held = made
    for key in at[:-1]:
        held = held[key]
    if value is KeyError:
        del held[at[-1]]
    else:
        held[at[-1]] = value
    return made


def mutations(manifest: dict[str, Any], count: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place with every wrong value, or `count` of them drawn with a fixed seed."""
    every = [(at, value) for at in places(manifest) for value in (*WRONG, KeyError)]
    if count is not None:
        every = [every[one] for one in np.random.default_rng(0).permutation(len(every))[:count]]
    for at, value in every:
        yield f"{at} = {value!r}", mutated(manifest, at, value)


def unsealed(file: Path) -> dict[str, Any]:
    """A manifest without its seal."""
    return {key: value for key, value in json.loads(file.read_text()).items() if key != "seal"}


def written(file: Path, manifest: dict[str, Any]) -> None:
    """Without its seal, as a person would write it."""
    file.write_text(json.dumps(manifest))


def each(count: int | None, file: Path, read: Callable[[], object]) -> int:
    """How many mutations are refused; a RequestError of one line is all that may be raised."""
    kept, refused = file.read_bytes(), 0
    for told, wrong in mutations(unsealed(file), count):
        written(file, wrong)
        try:
            read()
        except RequestError as error:
            assert "\n" not in str(error) and len(str(error)) < 600, told
            refused += 1
        except Exception as error:
            raise AssertionError(told) from error
    file.write_bytes(kept)
    return refused
