"""Compares a folder with a repetition of it: files, manifests, rows and arrays, except what the folder may claim.

Two honest runs of a request on different machines differ by rounding, and a sample near a decision boundary may come out
differently. So numbers are compared with a tolerance, and a few rows of a large table may differ if their values occur in the
repetition, too. These rows are counted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.manifest import abbreviate
from brinell.store import parquet
from brinell.store.files import read_arrays
from brinell.store.folder import LOCK, MANIFEST, REQUEST, SIGNATURE, read_json
from brinell.store.inventory import FILES
from brinell.store.trust import without_mark

RTOL, ATOL = 1e-4, 1e-6
"""Tolerance of numbers, relative and absolute: what rounding on another machine changes."""
BOUNDARY_SHARE = 0.002
"""Share of the rows of a table, or of the arrays of a file, that may come out differently, rounded down to a number."""
DATA = (".parquet", ".safetensors", ".npz", ".jsonl", MANIFEST)
"""Ends of the names of files that hold data. All other files are texts that follow from them."""
MOST_SAMPLES = 5


class Difference(BaseModel):
    """A statement of a folder that is false."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    location: str
    """The file, or the model and stage."""
    description: str
    """The difference in one sentence."""
    samples: tuple[int, ...] = ()
    """The first five of the samples or rows that differ; empty if it concerns a whole file."""
    count: int = 0
    """Number of samples or rows that differ."""


@dataclass(frozen=True)
class Claims:
    """The parts of a folder that a repetition does not recompute, as patterns with the reason.

    A pattern is `FILE:KEY`: a file relative to the folder or by its name, and a column of rows or a key of a manifest with dots
    between its parts. `*` stands for any text. A pattern without a colon claims a whole file; a key claims all below it.
    """

    patterns: Mapping[str, str]

    def covers(self, file: str, key: str = "") -> bool:
        """True if a key or column of a file, or with an empty key the whole file, is claimed."""
        names = (file, file.rpartition("/")[2])
        steps = key.split(".") if key else []
        targets = [*names, *(f"{name}:{'.'.join(steps[:end])}" for name in names for end in range(1, len(steps) + 1))]
        return any(fnmatchcase(target, pattern) for target in targets for pattern in self.patterns)


@dataclass
class Comparison:
    """The outcome of comparing a folder with its repetition."""

    rows: int = 0
    """Rows that were compared."""
    arrays: int = 0
    """Arrays that were compared."""
    boundary: int = 0
    """Rows and arrays that differ by no more than rounding on another machine may change."""
    differences: list[Difference] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)
    """Folders that the recorded folder names as its own place, before it was moved."""

    def note(self, location: str, description: str, samples: Sequence[int] = ()) -> None:
        """Add a difference."""
        first = tuple(int(sample) for sample in samples[:MOST_SAMPLES])
        self.differences.append(Difference(location=location, description=description, samples=first, count=len(samples)))

    def allow(self, location: str, subject: str, differing: Sequence[int], total: int, plausible: Callable[[], bool]) -> None:
        """Count rows or arrays that differ as boundary if they are few and plausible, otherwise add a difference."""
        if len(differing) <= int(BOUNDARY_SHARE * total) and plausible():
            self.boundary += len(differing)
        elif differing:
            self.note(location, f"{subject} comes out differently in {len(differing)} of {total}", differing)


def list_files(folder: Path) -> list[str]:
    """Paths of all files in a folder, relative to it, without lock and signature; links count as files."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    unrelated = (LOCK, SIGNATURE)
    return sorted(path.relative_to(folder).as_posix() for path in paths if path.name not in unrelated or path.is_symlink())


def compare_folders(folder: Path, repetition: Path, claims: Claims, comparison: Comparison) -> None:
    """Compare the files with data of a folder with a repetition of its request."""
    comparison.rows = 0
    names, expected = ({name for name in list_files(place) if name.endswith(DATA)} for place in (folder, repetition))
    for name in sorted(name for name in names ^ expected if not claims.covers(name)):
        comparison.note(name, "the file is missing" if name in expected else "the request makes no such file")
    for name in sorted(name for name in names & expected if not claims.covers(name)):
        recorded, repeated = folder / name, repetition / name
        if recorded.name == MANIFEST:
            first, second = ({k: v for k, v in read_json(path).items() if k != FILES} for path in (recorded, repeated))
            compare_json(name, first, second, claims, comparison, str(repetition))
        elif recorded.suffix == ".parquet":
            _compare_tables(name, parquet.read_table(recorded), parquet.read_table(repeated), claims, comparison)
        elif recorded.suffix == ".safetensors":
            _compare_arrays(name, read_arrays(recorded), read_arrays(repeated), claims, comparison)
        elif content_of(recorded) != content_of(repeated):
            comparison.note(name, "the file comes out differently")
    if len(comparison.origins) > 1:
        comparison.note(MANIFEST, f"the folder names several places as its own, such as {min(comparison.origins)}")


def compare_texts(folder: Path, anew: Path, claims: Claims, comparison: Comparison) -> None:
    """Compare the texts in a folder with those that were written anew from its data."""
    names, expected = ({name for name in list_files(path) if not name.endswith(DATA)} for path in (folder, anew))
    for name in sorted(name for name in names | expected if not claims.covers(name)):
        if name not in expected:
            comparison.note(name, "the records produce no such file")
        elif name not in names:
            comparison.note(name, "the file is missing")
        elif _text_of(folder / name) != _text_of(anew / name):
            comparison.note(name, "the file differs from the one that the records produce")


def _text_of(path: Path) -> bytes:
    return without_mark(content_of(path)) if path.name == REQUEST else content_of(path)


def content_of(path: Path) -> bytes:
    """The bytes of a regular file, not of a link."""
    if path.is_symlink():
        raise RequestError(f"{path} is a link: put the file in its place")
    return bounded.read(path, parquet.MOST_BYTES)


def compare_json(name: str, recorded: Any, repeated: Any, claims: Claims, comparison: Comparison, place: str = "\0") -> None:
    """Compare two JSON values of a file; `place` is the path of the repetition, in place of which a folder names its own."""
    for key, value, repetition in _json_differences(recorded, repeated, partial(_same_value, place, comparison.origins)):
        if not claims.covers(name, key):
            comparison.note(name, f"{key} is {value}, and comes out as {repetition}")


def _json_differences(
    recorded: Any, repeated: Any, equality: Callable[[Any, Any], bool], key: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Keys under which two JSON values differ, and both values as short texts; a key that is not there is `missing`.

    `same` compares values that are neither both lists nor both tables.
    """
    if isinstance(recorded, list) and isinstance(repeated, list) and len(recorded) == len(repeated):
        recorded, repeated = dict(enumerate(recorded)), dict(enumerate(repeated))
    if isinstance(recorded, dict) and isinstance(repeated, dict):
        for name in dict.fromkeys((*repeated, *recorded)):
            place = f"{key}.{name}" if key else str(name)
            if name in recorded and name in repeated:
                yield from _json_differences(recorded[name], repeated[name], equality, place)
            else:
                values = [abbreviate(side[name]) if name in side else "missing" for side in (recorded, repeated)]
                yield place, values[0], values[1]
    elif not equality(recorded, repeated):
        yield key, abbreviate(recorded), abbreviate(repeated)


def _same_value(place: str, origins: set[str], recorded: Any, repeated: Any) -> bool:
    """True if two JSON values are equal, floats within the tolerance, and texts except for the place of the folder."""
    if isinstance(recorded, str) and isinstance(repeated, str) and place in repeated:
        start, _, end = repeated.partition(place)
        if not recorded.startswith(start) or not recorded.endswith(end) or len(recorded) < len(start) + len(end):
            return False
        origins.add(recorded[len(start) : len(recorded) - len(end)])
        return True
    if isinstance(recorded, float) and isinstance(repeated, float):
        return bool(np.isclose(recorded, repeated, rtol=RTOL, atol=ATOL, equal_nan=True))
    return type(recorded) is type(repeated) and bool(recorded == repeated)


def _compare_tables(name: str, recorded: pa.Table, repeated: pa.Table, claims: Claims, comparison: Comparison) -> None:
    if recorded.schema.remove_metadata() != repeated.schema.remove_metadata():
        comparison.note(name, "the rows have other columns than those that the request makes")
        return
    if len(recorded) != len(repeated):
        comparison.note(name, f"there are {len(recorded)} rows, and the request makes {len(repeated)}")
        return
    comparison.rows += len(recorded)
    samples = recorded["sample_id"].to_pylist() if "sample_id" in recorded.column_names else range(len(recorded))
    for column in recorded.column_names:
        if not claims.covers(name, column):
            first, second = recorded[column].to_pylist(), repeated[column].to_pylist()
            is_float = pa.types.is_floating(repeated[column].type)
            equality = _same_number if is_float else lambda one, other: one == other
            rows = [row for row, pair in enumerate(zip(first, second, strict=True)) if not equality(*pair)]
            plausible = partial(_are_among, [first[row] for row in rows], second, is_float=is_float)
            comparison.allow(name, f"column {column}", [samples[row] for row in rows], len(recorded), plausible)


def _same_number(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return first == second or (first != first and second != second) or abs(first - second) <= ATOL + RTOL * abs(second)


def _are_among(values: Sequence[Any], column: Sequence[Any], *, is_float: bool) -> bool:
    """True if all values lie among those of a column: within its range for floats, equal to one of them otherwise."""
    if not is_float:
        return all(value in column for value in values)
    finite = [value for value in column if value is not None and np.isfinite(value)]
    return all(value is not None and bool(finite) and min(finite) <= value <= max(finite) for value in values)


def _compare_arrays(
    name: str, recorded: Mapping[str, Array], repeated: Mapping[str, Array], claims: Claims, comparison: Comparison
) -> None:
    if missing := sorted(recorded.keys() ^ repeated.keys()):
        comparison.note(name, f"the arrays are other ones than those that the request makes, such as {missing[0][:60]}")
        return
    differing = []
    for number, key in enumerate(sorted(key for key in repeated if not claims.covers(name, key))):
        first, second = recorded[key], repeated[key]
        comparison.arrays += 1
        if first.shape != second.shape or first.dtype != second.dtype:
            comparison.note(name, f"array {key[:60]} has another shape or type")
        elif not are_close(first, second):
            sample = key.rpartition("/")[2]
            differing.append(int(sample) if sample.isdecimal() else number)
    comparison.allow(name, "the stored array", differing, len(repeated), lambda: True)


def are_close(first: Array, second: Array) -> bool:
    """True if two arrays have a shape and are equal, floats within the tolerance."""
    if first.shape != second.shape:
        return False
    if first.dtype.kind == "f":
        return bool(np.allclose(first, second, rtol=RTOL, atol=ATOL, equal_nan=True))
    return bool((first == second).all())
