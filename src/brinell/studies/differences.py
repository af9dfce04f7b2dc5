"""Compares a folder with a repetition of it: files, manifests, rows and arrays, except what the
folder may claim.

Two honest runs of a request on different machines differ by rounding, and a sample near a decision
boundary may come out differently. So numbers are compared with a tolerance, and a few rows of a
large table may differ if their values occur in the repetition, too. These rows are counted.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.record import Array, Columns, columns_of
from brinell.manifest import TIMES, Manifest, abbreviate, claims_in, is_claimed
from brinell.store import parquet
from brinell.store.files import HALF, read_arrays
from brinell.store.folder import LOCK, MANIFEST, REQUEST, SIGNATURE, read_json
from brinell.store.inventory import FILES
from brinell.store.trust import without_mark

RTOL, ATOL = 1e-4, 1e-6
"""Tolerance of numbers, relative, and absolute for data of the size 1: what rounding on another
machine changes."""
BOUNDARY_SHARE = 0.002
"""Share of the rows of a table, or of the arrays of a file, that may come out differently,
rounded down to a number."""
DATA = (".parquet", ".safetensors", ".npz", ".jsonl", MANIFEST)
"""Ends of the names of files that hold data. All other files are texts that follow from them."""
DERIVED = (
    "the request file, the tables and the page are those that the manifest and the records produce"
)
TOLERANCE = 1e-3
"""Difference that rounding explains in a column that declares what it is measured against, as a
share of that, or of the value where it is larger."""
NUMBER = re.compile(r"-\d+\.(?=[a-z]+$)")
"""The number of a model at the end of the name of its file."""
MOST_SAMPLES = 5
MISSING = object()
"""The value of a key that is not there."""


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


Place = tuple[str | int, ...]
"""Where a value of JSON stands: keys of tables, numbers in lists."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The parts of a folder that a repetition does not recompute, each as it is declared: a field
    of a manifest, a column of rows, a file, a folder that is verified by itself.
    """

    manifest: type[Manifest] = Manifest
    """The type of the manifest, whose fields say which are claimed."""
    columns: frozenset[str] = frozenset()
    """Columns of rows."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths of files in the folder, N for a number at the end, with the reasons."""
    folders: frozenset[str] = frozenset()
    """Names of folders in it that are verified by themselves."""
    keys: Mapping[tuple[str | None, ...], str] = field(default_factory=dict)
    """Places in the manifest, with all below them, which no type declares; None stands for each
    number in a list. With the reasons."""
    types: Callable[[str], type[Manifest]] = lambda verb: Manifest
    """The type of the manifest that a verb writes, for manifests of folders in it."""

    def cover_file(self, file: str) -> bool:
        """True if a whole file is claimed, by its path in the folder."""
        numbered = NUMBER.sub("-N.", file)
        return numbered in self.files or file.partition("/")[0] in self.folders

    def cover_value(self, manifest: type[Manifest], place: Place) -> bool:
        """True if a value of a manifest of this type is claimed."""
        declared = any(
            len(key) <= len(place) and all(map(_is_step, key, place)) for key in self.keys
        )
        return declared or is_claimed(manifest, place)

    def listing(self) -> Iterator[tuple[str, str]]:
        """The reasons, each with what it is about: a file, a column, or a key of the manifest."""
        for name, mark in claims_in(self.manifest):
            yield mark.reason, f"{MANIFEST}:{name}"
        for place, reason in self.keys.items():
            steps = ("*" if step is None else str(step) for step in place)
            yield reason, f"{MANIFEST}:{'.'.join(steps)}"
        for column in sorted(self.columns):
            yield TIMES.reason, f"*.parquet:{column}"
        for file, reason in self.files.items():
            yield reason, file


def _is_step(declared: str | None, step: str | int) -> bool:
    return isinstance(step, int) if declared is None else declared == step


@dataclass
class FolderComparison:
    """The outcome of comparing a folder with its repetition, except for what the folder
    may claim.
    """

    claims: Claims
    """What is not compared."""
    count: int | None = None
    """Samples of each model to compute again, for a study that draws some; None for its default."""
    scale: float = 1.0
    """The size of the data, at most 1, by which the absolute tolerance is multiplied."""
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
        self.differences.append(
            Difference(
                location=location, description=description, samples=first, count=len(samples)
            )
        )

    def allow(
        self,
        location: str,
        subject: str,
        differing: Sequence[int],
        total: int,
        is_plausible: bool = True,
    ) -> None:
        """Count rows or arrays that differ as boundary if they are few and plausible, otherwise add
        a difference.
        """
        # Other processors round differently, which moves a few samples that lie on a boundary.
        if len(differing) <= int(BOUNDARY_SHARE * total) and is_plausible:
            self.boundary += len(differing)
        elif differing:
            self.note(
                location,
                f"{subject} comes out differently in {len(differing)} of {total}",
                differing,
            )


@dataclass(frozen=True, kw_only=True)
class Statements:
    """Statements of a repetition about a folder."""

    verified: Sequence[str]
    """Statements that were recomputed and hold, a sentence each."""
    unverified: Sequence[str] = ()
    """Statements that were left open, a sentence each."""
    refusal: str = ""
    """Why nothing was repeated; empty if it was."""
    replayed: int = 0
    """Rows that were computed again from the start."""
    samples: int = 0
    """Samples of an audit whose rows were computed again from the start."""
    attacked: int = 0
    """Samples that the audit attacked."""
    coverage: str = ""
    """The part that was repeated, and the chance to miss what is false."""
    undecided: str = ""
    """The reason for which the repetition decides nothing; else empty."""


class Repetition(Protocol):
    """A study that is carried out again, to compare what comes out."""

    def carry_out(self, folder: Path) -> object:
        """Write into an empty folder what the recorded one should hold; what is seen to be false on
        the way is noted in the comparison, and may end the repetition by a BrinellError.
        """

    def statements(self) -> Statements:
        """The statements of the repetition, once the folders are compared."""


def size_of_data(manifest: Mapping[str, Any]) -> float:
    """The smallest distance between the bounds of the data of a folder, at most 1."""
    data = manifest.get("data")
    domain = data.get("domain") if isinstance(data, Mapping) else None
    if not isinstance(domain, Mapping):
        return 1.0
    widths = np.asarray(domain["high"], float) - np.asarray(domain["low"], float)
    return float(min(1.0, widths.min()))


def list_files(folder: Path) -> list[str]:
    """Paths of all files in a folder, relative to it, without lock, signature and what a killed
    process was writing; links count as files.
    """
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    unrelated = (LOCK, SIGNATURE)
    return sorted(
        path.relative_to(folder).as_posix()
        for path in paths
        if not (path.name in unrelated or HALF.fullmatch(path.name)) or path.is_symlink()
    )


def compare_folders(folder: Path, repetition: Path, comparison: FolderComparison) -> None:
    """Compare the files with data of a folder with a repetition of its request."""
    comparison.rows = 0
    names = {name for name in list_files(folder) if name.endswith(DATA)}
    expected = {name for name in list_files(repetition) if name.endswith(DATA)}
    claims = comparison.claims
    for name in sorted(name for name in names ^ expected if not claims.cover_file(name)):
        comparison.note(
            name, "the file is missing" if name in expected else "the request makes no such file"
        )

    for name in sorted(name for name in names & expected if not claims.cover_file(name)):
        recorded = folder / name
        repeated = repetition / name
        if recorded.name == MANIFEST:
            _compare_manifests(name, recorded, repeated, comparison, repetition)
        elif recorded.suffix == ".parquet":
            _compare_tables(
                name, parquet.read_table(recorded), parquet.read_table(repeated), comparison
            )
        elif recorded.suffix == ".safetensors":
            _compare_arrays(name, read_arrays(recorded), read_arrays(repeated), comparison)
        elif content_of(recorded) != content_of(repeated):
            comparison.note(name, "the file comes out differently")
    if len(comparison.origins) > 1:
        comparison.note(
            MANIFEST,
            f"the folder names several places as its own, such as {min(comparison.origins)}",
        )


def _compare_manifests(
    name: str, recorded: Path, repeated: Path, comparison: FolderComparison, repetition: Path
) -> None:
    """Compare two manifests, without their lists of files: the files are compared themselves."""
    first = {key: value for key, value in read_json(recorded).items() if key != FILES}
    second = {key: value for key, value in read_json(repeated).items() if key != FILES}
    claims = comparison.claims
    # A manifest deeper in the folder is that of another study, whose type says what it may claim.
    claiming_type = claims.manifest if name == MANIFEST else claims.types(second["verb"])
    compare_json(name, first, second, comparison, claiming_type, folder=str(repetition))


def compare_texts(folder: Path, anew: Path, comparison: FolderComparison) -> None:
    """Compare the texts in a folder with those that were written anew from its data."""
    names = {name for name in list_files(folder) if not name.endswith(DATA)}
    expected = {name for name in list_files(anew) if not name.endswith(DATA)}
    claimed = comparison.claims.cover_file

    for name in sorted(name for name in names | expected if not claimed(name)):
        if name not in expected:
            comparison.note(name, "the records produce no such file")
        elif name not in names:
            comparison.note(name, "the file is missing")
        else:
            texts = {content_of(path / name) for path in (folder, anew)}
            if len({without_mark(text) for text in texts} if name.endswith(REQUEST) else texts) > 1:
                comparison.note(name, "the file differs from the one that the records produce")


def content_of(path: Path) -> bytes:
    """The bytes of a regular file, not of a link."""
    if path.is_symlink():
        raise RequestError(f"{path} is a link: put the file in its place")
    return bounded.read(path, parquet.MOST_BYTES)


def compare_json(
    name: str,
    recorded: Any,
    repeated: Any,
    comparison: FolderComparison,
    manifest: type[Manifest],
    place: Place = (),
    folder: str = "\0",
) -> None:
    """Compare two JSON values that stand at a place of a manifest of a type; for the `folder` of
    the repetition the recorded value may name another one. The default is in no text.
    """
    if isinstance(recorded, list) and isinstance(repeated, list) and len(recorded) == len(repeated):
        recorded = dict(enumerate(recorded))
        repeated = dict(enumerate(repeated))

    if isinstance(recorded, dict) and isinstance(repeated, dict):
        for part in dict.fromkeys((*repeated, *recorded)):
            values = recorded.get(part, MISSING), repeated.get(part, MISSING)
            compare_json(name, *values, comparison, manifest, (*place, part), folder)
    elif (
        isinstance(recorded, str)
        and isinstance(repeated, str)
        and (origin := _origin(recorded, repeated, folder))
    ):
        comparison.origins.add(origin)
    elif not _is_same(recorded, repeated, comparison.scale) and not comparison.claims.cover_value(
        manifest, place
    ):
        first = "missing" if recorded is MISSING else abbreviate(recorded)
        second = "missing" if repeated is MISSING else abbreviate(repeated)
        key = ".".join(map(str, place))
        comparison.note(name, f"{key} is {first}, and comes out as {second}")


def _origin(recorded: str, repeated: str, folder: str) -> str:
    """The part of a recorded text that stands where the repeated one names a folder; empty where
    both differ in more than that.
    """
    start, found, end = repeated.partition(folder)
    match = re.fullmatch(f"{re.escape(start)}(.+){re.escape(end)}", recorded) if found else None
    return match[1] if match else ""


def _compare_tables(
    name: str, recorded: pa.Table, repeated: pa.Table, comparison: FolderComparison
) -> None:
    if recorded.schema.remove_metadata() != repeated.schema.remove_metadata():
        comparison.note(name, "the rows have other columns than those that the request makes")
        return
    if len(recorded) != len(repeated):
        comparison.note(
            name, f"there are {len(recorded)} rows, and the request makes {len(repeated)}"
        )
        return

    comparison.rows += len(recorded)
    samples = (
        recorded["sample_id"].to_pylist()
        if "sample_id" in recorded.column_names
        else range(len(recorded))
    )
    for column in recorded.column_names:
        if column not in comparison.claims.columns:
            first = recorded[column].to_pylist()
            second = repeated[column].to_pylist()
            rows = [
                row
                for row, pair in enumerate(zip(first, second, strict=True))
                if not _is_same(*pair, comparison.scale)
            ]
            is_plausible = bool(rows) and _are_among([first[row] for row in rows], second)
            comparison.allow(
                name,
                f"column {column}",
                [samples[row] for row in rows],
                len(recorded),
                is_plausible,
            )


def _is_same(recorded: Any, repeated: Any, scale: float) -> bool:
    """True if two values of JSON or of a row are equal, floats within the tolerance."""
    if isinstance(recorded, float) and isinstance(repeated, float):
        both_nan = math.isnan(recorded) and math.isnan(repeated)
        return both_nan or math.isclose(recorded, repeated, rel_tol=RTOL, abs_tol=ATOL * scale)
    return type(recorded) is type(repeated) and bool(recorded == repeated)


def _are_among(values: Sequence[Any], column: Sequence[Any]) -> bool:
    """True if each value is one of a column, or a number within its range."""
    numbers = [value for value in column if isinstance(value, float) and math.isfinite(value)] or [
        math.nan
    ]
    low, high = min(numbers), max(numbers)
    return all(
        value in column or (isinstance(value, float) and low <= value <= high) for value in values
    )


def _compare_arrays(
    name: str,
    recorded: Mapping[str, Array],
    repeated: Mapping[str, Array],
    comparison: FolderComparison,
) -> None:
    if missing := sorted(recorded.keys() ^ repeated.keys()):
        comparison.note(
            name,
            "the arrays are other ones than those that the request makes, such "
            f"as {missing[0][:60]}",
        )
        return

    differing = []
    for number, key in enumerate(sorted(repeated)):
        first = recorded[key]
        second = repeated[key]
        comparison.arrays += 1
        if first.shape != second.shape or first.dtype != second.dtype:
            comparison.note(name, f"array {key[:60]} has another shape or type")
        elif not are_close(first, second, comparison.scale):
            # Names end with the sample, where an array is of one.
            sample = key.rpartition("/")[2]
            differing.append(int(sample) if sample.isdecimal() else number)

    comparison.allow(name, "the stored array", differing, len(repeated))


def differing(
    recorded: Columns, repeated: Columns, name: str, scales: Mapping[str, Array | float]
) -> Array:
    """(rows,) bool: rows with another value in a column, or that have one in only one of both.

    `scales` are the sizes against which differences by rounding are measured, by the words with
    which columns declare them (`core.record.RecordColumn.measure`); others come out equal.
    """
    entry = getattr(recorded, name)
    counterpart = getattr(repeated, name)
    missing = np.ma.getmaskarray(entry)
    missing_again = np.ma.getmaskarray(counterpart)
    first = np.ma.getdata(entry)
    second = np.ma.getdata(counterpart)

    measure = columns_of(recorded)[name].measure
    if measure in scales:
        scale = np.maximum(np.abs(second), scales[measure])
        differs = np.abs(first.astype(float) - second) > TOLERANCE * scale
    else:
        differs = first != second
    return np.asarray((missing != missing_again) | (~missing & differs))


def are_close(first: Array, second: Array, scale: float = 1.0) -> bool:
    """True if two arrays have a shape and are equal, floats of data of this size within the
    tolerance.
    """
    if first.dtype.kind != "f":
        return np.array_equal(first, second)
    return first.shape == second.shape and np.allclose(
        first, second, rtol=RTOL, atol=ATOL * scale, equal_nan=True
    )
