"""`table:FILE?label=COLUMN`: feature vectors from a CSV or Parquet file, one per row.

Numbers are scaled from their bounds to [0, 1], so a budget is a share of a column's range, and one eps means the same in every
column. A model gets the columns in their original units (`Domain.in_units`). Bounds are given by the user; by default they are
the smallest and the largest value in the file. Columns of text or of truth values are categories: ordinal coding numbers the
sorted values from 0, one-hot coding makes a column of 0 and 1 for each value. No attack changes a category, a column named by
`fixed`, or a constant column; such columns keep their units. Numbers that code categories (`categorical`) stay unchanged under
ordinal coding.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from brinell.core import bounded
from brinell.core.class_names import check_unique
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Column
from brinell.core.errors import RequestError
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Array, Part, StoredArrays, join_columns, scaled
from brinell.datasets._files import first_row
from brinell.datasets._labels import Labels

__all__ = ["Table"]

LABELS = ("label", "target", "class", "y")
SPEC = "table:FILE?label=COLUMN"
MOST_NAMES = 8
"""Maximum number of columns that a note names."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Feature vectors from a CSV or Parquet file."""

    path: str = ""
    """The file: .csv, .tsv or .parquet, the names of the columns in the first line of text."""
    label: str = ""
    """Column of the classes; by default label, target, class or y."""
    classes: tuple[str, ...] = ()
    """Classes in the order in which the model answers, joined by +; by default those of the file, sorted."""
    drop: tuple[str, ...] = ()
    """Columns to leave out, joined by +, such as row numbers or names."""
    fixed: tuple[str, ...] = ()
    """Columns that no attack may change, in addition to the categories."""
    categorical: tuple[str, ...] = ()
    """Columns of numbers that code categories."""
    free: tuple[str, ...] = ()
    """Categories that an attack may change anyway, as numbers between the codes."""
    encode: Literal["ordinal", "one-hot"] = "ordinal"
    """Encoding of categories: one column of codes, or one of 0 and 1 for each value."""
    bounds: tuple[str, ...] = ()
    """COLUMN:LOW:HIGH, joined by +: range of a column; by default its range in the file."""

    def __call__(self) -> Dataset:
        """Read the file."""
        file = existing_path(self.path, "file", SPEC)
        table = _read(file)
        label = self._label(table, file)
        others = [name for name in table.column_names if name != label]
        features = [name for name in others if name not in self.drop]
        bounds = dict(map(_parse_bounds, self.bounds))
        options = {"drop": self.drop, "fixed": self.fixed, "categorical": self.categorical, "free": self.free, "bounds": bounds}
        for option, names in options.items():
            columns_of_file = others if option == "drop" else features
            if unknown := [name for name in names if name not in columns_of_file]:
                raise RequestError(
                    f"{file} has no column {unknown[0]!r}, which {option}= names; it has {_first_names(columns_of_file)}"
                )
        if not features:
            raise RequestError(f"{file} has no column beside {label!r}: there is nothing to classify by")
        y, classes = self._labels(_values(table, label, file), label, file)
        parts = [part for name in features for part in self._column(name, _values(table, name, file), bounds, file)]
        x, domain = join_columns(parts, file)
        notes = {
            "bounds are the least and the largest value in the file for": [
                part for part in parts if not part.column.fixed and part.column.name not in (*bounds, *self.free)
            ],
            "no attack changes": [part for part in parts if part.column.fixed],
        }
        return StoredArrays(
            name=file.stem,
            x=x,
            y=y,
            domain=domain,
            classes=classes,
            info=DataInfo(
                notes=tuple(f"{text} {_first_names([part.column.name for part in of])}" for text, of in notes.items() if of)
            ),
        )

    def _label(self, table: pa.Table, file: Path) -> str:
        names = table.column_names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise RequestError(f"{file} has two columns {repeated[0]!r}: give each a name of its own")
        for name in (self.label,) if self.label else LABELS:
            if name in names:
                return name
        expected = repr(self.label) if self.label else " or ".join(LABELS)
        raise RequestError(f"{file} has no column {expected}; it has {_first_names(names)}: name that of the classes, {SPEC}")

    def _labels(self, values: Array, label: str, file: Path) -> tuple[Labels, tuple[str, ...]]:
        classes, y = np.unique(values, return_inverse=True)
        names = [_text(value) for value in classes]
        if not self.classes:
            return y.astype(np.int64).reshape(-1), tuple(names)
        check_unique(self.classes, "the option classes=")
        if missing := [name for name in names if name not in self.classes]:
            raise RequestError(f"{file} has the class {missing[0]!r} in {label}, which classes= does not list")
        return np.array([self.classes.index(name) for name in names], dtype=np.int64)[y.reshape(-1)], self.classes

    def _column(self, name: str, values: Array, bounds: dict[str, tuple[float, float]], file: Path) -> list[Part]:
        category = values.dtype.kind not in "iuf" or name in self.categorical
        if category and (values.dtype.kind not in "iuf" or self.encode == "one-hot"):
            if name in bounds:
                raise RequestError(f"bounds= names {name!r} of {file}, which holds categories: they have none")
            return self._category(name, values)
        if not np.isfinite(values.astype(np.float64)).all():
            raise RequestError(f"column {name} of {file} holds NaN or infinity: fill those rows or leave them out")
        x = values.astype(np.float64)
        low, high = bounds.get(name, (float(x.min()), float(x.max())))
        if x.min() < low or x.max() > high:
            row = int(np.flatnonzero((x < low) | (x > high))[0])
            raise RequestError(
                f"column {name} of {file} holds {x[row]:g} in row {row + 1}, outside its bounds {low:g} to {high:g}: widen them"
            )
        if low < high and (name in self.fixed or (category and name not in self.free)):
            return [Part(x, Column(name, fixed=True), (low, high))]
        return [scaled(x, name, low, high)]

    def _category(self, name: str, values: Array) -> list[Part]:
        """Codes of texts and truth values, or a column for each value."""
        categories, codes = np.unique(values, return_inverse=True)
        codes, texts = codes.reshape(-1), tuple(_text(value) for value in categories)
        fixed = name not in self.free
        if self.encode == "one-hot":
            return [
                Part((codes == code) * 1.0, Column(f"{name}={text}", fixed=fixed), (0.0, 1.0)) for code, text in enumerate(texts)
            ]
        largest_code, category_names = float(max(1, len(texts) - 1)), () if values.dtype == bool else texts
        if fixed:
            return [Part(codes * 1.0, Column(name, fixed=True, values=category_names), (0.0, largest_code))]
        return [Part(codes / largest_code, Column(name, 0.0, largest_code, values=category_names), (0.0, 1.0))]


def _read(file: Path) -> pa.Table:
    kind = file.suffix.lower()
    with bounded.decoding(file, file.stat().st_size):
        if kind == ".parquet":
            table = _parquet(file)
        elif kind in (".csv", ".tsv", ".txt"):
            first_row(file)
            options = pa.csv.ParseOptions(delimiter="\t" if kind == ".tsv" else ",")
            table = pa.csv.read_csv(file, parse_options=options)
        else:
            raise RequestError(f"{file} is no table: name a .csv, .tsv or .parquet file")
    if not len(table):
        raise RequestError(f"{file} has no rows: there is nothing to audit")
    return table


def _parquet(file: Path) -> pa.Table:
    """The content of a Parquet file after a check of its size; texts stay codes into a dictionary."""
    packed = file.stat().st_size
    with bounded.open_regular(file) as stream:
        kinds = pa.parquet.read_schema(stream)
        texts = [field.name for field in kinds if _is_text(field.type)]
        parquet = pa.parquet.ParquetFile(stream, read_dictionary=texts)
        metadata = parquet.metadata
        groups = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        bounded.check_unpacked_size(max(groups, 8 * metadata.num_rows * metadata.num_columns), packed, file)
        table = parquet.read()
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            text_bytes = (
                pa.compute.sum(pa.compute.binary_length(chunk.dictionary).take(chunk.indices)).as_py() for chunk in column.chunks
            )
            bounded.check_unpacked_size(sum(length or 0 for length in text_bytes), packed, file)
    return table


def _values(table: pa.Table, name: str, file: Path) -> Array:
    """(n,) numbers, truth values or texts of a column, none missing."""
    column = table[name].combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
        kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind)):
        raise RequestError(f"column {name} of {file} holds {kind}, neither numbers nor text: convert it, or drop={name}")
    empty = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if _is_text(kind):
        empty |= np.array([text is not None and not text.strip() for text in column.to_pylist()])
    if empty.any():
        rows = np.flatnonzero(empty)
        raise RequestError(
            f"column {name} of {file} has no value in row {rows[0] + 1} ({len(rows)} of {len(empty)} rows): fill it, leave those "
            f"rows out, or drop={name}"
        )
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _parse_bounds(text: str) -> tuple[str, tuple[float, float]]:
    try:
        name, low, high = text.rsplit(":", 2)
        bounds = float(low), float(high)
        if bounds[0] < bounds[1] and all(map(math.isfinite, bounds)):
            return name, bounds
    except ValueError:
        pass
    raise RequestError(f"bounds={text}: write COLUMN:LOW:HIGH, the lower bound first, and + between columns")


def _text(value: Any) -> str:
    """A class or category as text: whole numbers without a point, whatever type the file has."""
    if isinstance(value, float | np.floating):
        return f"{value:.12g}"
    return str(value)


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
