"""`table:FILE?label=COLUMN`: feature vectors from a CSV or Parquet file, one per row.

Numbers are scaled from their bounds to [0, 1], so a budget is a share of a column's range, and one
eps means the same in every column. A model gets the columns in their original units
(`Domain.in_units`), and an estimator that was fitted on a data frame the texts of its categories.
Bounds are given by the user; by default they are the smallest and the largest value in the file.
Columns of text or of truth values are categories, coded by their sorted values from 0. No attack
changes a category, a column named by `fixed`, or a constant column; such columns keep their units.
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
from brinell.core.checks import ROWS_LEFT_OUT
from brinell.core.class_names import check_unique
from brinell.core.data import DataInfo, Dataset, Remark
from brinell.core.errors import RequestError
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Array, StoredArrays
from brinell.datasets._columns import complete_rows, fill, first_names, text_of, vectors_of
from brinell.datasets._files import first_row
from brinell.datasets._labels import Labels

LABELS = ("label", "target", "class", "y")
SPEC = "table:FILE?label=COLUMN"


@dataclass(frozen=True, kw_only=True)
class TabularFile:
    """Feature vectors from a CSV or Parquet file."""

    path: str = ""
    """The file: .csv, .tsv or .parquet, the names of the columns in the first line of text."""
    label: str = ""
    """Column of the classes; by default label, target, class or y."""
    classes: tuple[str, ...] = ()
    """Classes in the order in which the model answers, joined by +; by default those of the
    file, sorted."""
    drop: tuple[str, ...] = ()
    """Columns to leave out, joined by +, such as row numbers or names."""
    fixed: tuple[str, ...] = ()
    """Columns that no attack may change, in addition to the categories."""
    bounds: tuple[str, ...] = ()
    """COLUMN:LOW:HIGH, joined by +: range of a column; by default its range in the file."""
    missing: Literal["refuse", "skip", "keep"] = "refuse"
    """Treatment of a row with a missing value: refuse the file, skip the row and report the
    number of such rows, or keep it: the model gets NaN, and no attack changes it."""

    def __call__(self) -> Dataset:
        """Read the file."""
        file = existing_path(self.path, "file", SPEC)
        table = _read(file)
        label = self._label(table, file)
        other_columns = [name for name in table.column_names if name != label]
        features = [name for name in other_columns if name not in self.drop]
        bounds = dict(map(_parse_bounds, self.bounds))
        # A column that was dropped can be neither fixed nor bounded.
        for option, names in {"drop": self.drop, "fixed": self.fixed, "bounds": bounds}.items():
            columns_of_file = other_columns if option == "drop" else features
            if unknown := [name for name in names if name not in columns_of_file]:
                raise RequestError(
                    f"{file} has no column {unknown[0]!r}, which {option}= names; "
                    f"it has {first_names(columns_of_file)}"
                )
        if not features:
            raise RequestError(
                f"{file} has no column beside {label!r}: there is nothing to classify by"
            )

        columns = {name: _column(table, name, file) for name in [*features, label]}
        empty = {name: holes for name, (_, holes) in columns.items()}
        checked = {label: empty[label]} if self.missing == "keep" else empty
        keep = "" if self.missing == "keep" else "; missing=keep gives the model NaN"
        rows, skipped = complete_rows(checked, self.missing, file, keep=keep)
        values = {
            name: fill(
                column.take(rows).to_numpy(zero_copy_only=False),
                empty[name][rows],
                f"column {name} of {file}",
            )
            for name, (column, _) in columns.items()
        }

        y, classes = self._labels(values.pop(label), label, file)
        x, domain, notes = vectors_of(
            values, bounds, self.fixed, file, {name: empty[name][rows] for name in values}
        )
        remarks = (Remark(ROWS_LEFT_OUT, skipped),) if skipped else ()
        info = DataInfo(notes=notes, remarks=remarks)
        return StoredArrays(name=file.stem, x=x, y=y, domain=domain, classes=classes, info=info)

    def _label(self, table: pa.Table, file: Path) -> str:
        """The column of the classes: the one that is named, or that has a usual name."""
        names = table.column_names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise RequestError(
                f"{file} has two columns {repeated[0]!r}: give each a name of its own"
            )

        for name in (self.label,) if self.label else LABELS:
            if name in names:
                return name
        expected = repr(self.label) if self.label else " or ".join(LABELS)
        raise RequestError(
            f"{file} has no column {expected}; it has {first_names(names)}: name "
            f"that of the classes, {SPEC}"
        )

    def _labels(self, values: Array, label: str, file: Path) -> tuple[Labels, tuple[str, ...]]:
        """The numbers of the classes, in the order of the option or sorted, and their names."""
        classes, y = np.unique(values, return_inverse=True)
        names = [text_of(value) for value in classes]
        if not self.classes:
            return y.astype(np.int64).reshape(-1), tuple(names)

        check_unique(self.classes, "the option classes=")
        if missing := [name for name in names if name not in self.classes]:
            raise RequestError(
                f"{file} has the class {missing[0]!r} in {label}, which classes= does not list"
            )
        return np.array([self.classes.index(name) for name in names], dtype=np.int64)[
            y.reshape(-1)
        ], self.classes


def _read(file: Path) -> pa.Table:
    """The content of a file, as its ending says."""
    kind = file.suffix.lower()
    with bounded.decoding(file, file.stat().st_size):
        if kind == ".parquet":
            table = _parquet(file)
        elif kind in (".csv", ".tsv", ".txt"):
            # Refuses a first line of any length before the whole file is read.
            first_row(file)
            options = pa.csv.ParseOptions(delimiter="\t" if kind == ".tsv" else ",")
            table = pa.csv.read_csv(file, parse_options=options)
        else:
            raise RequestError(f"{file} is no table: name a .csv, .tsv or .parquet file")

    if not len(table):
        raise RequestError(f"{file} has no rows: there is nothing to audit")
    return table


def _parquet(file: Path) -> pa.Table:
    """The content of a Parquet file after a check of its size; texts stay codes into a
    dictionary.
    """
    packed = file.stat().st_size
    with bounded.open_regular(file) as stream:
        kinds = pa.parquet.read_schema(stream)
        texts = [field.name for field in kinds if _is_text(field.type)]
        parquet = pa.parquet.ParquetFile(stream, read_dictionary=texts)
        metadata = parquet.metadata
        groups = sum(
            metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)
        )

        # A column of one repeated value takes few bytes in the file, and 8 for each row in memory.
        bounded.check_unpacked_size(
            max(groups, 8 * metadata.num_rows * metadata.num_columns), packed, file
        )
        table = parquet.read()

    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            # Codes are small, and the texts that they stand for may not be.
            text_bytes = (
                pa.compute.sum(
                    pa.compute.binary_length(chunk.dictionary).take(chunk.indices)
                ).as_py()
                for chunk in column.chunks
            )
            bounded.check_unpacked_size(sum(length or 0 for length in text_bytes), packed, file)
    return table


def _column(table: pa.Table, name: str, file: Path) -> tuple[Any, Array]:
    """A column of numbers, truth values or texts, and which rows (n,) bool have no value."""
    column = table[name].combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
        kind = column.type

    if not (
        pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or _is_text(kind)
    ):
        raise RequestError(
            f"column {name} of {file} holds {kind}, neither numbers nor text: "
            f"convert it, or drop={name}"
        )

    # Empty texts are missing values too.
    empty = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if _is_text(kind):
        empty |= np.array([text is not None and not text.strip() for text in column.to_pylist()])
    return column, empty


def _is_text(kind: pa.DataType) -> bool:
    """True if a column holds texts."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _parse_bounds(text: str) -> tuple[str, tuple[float, float]]:
    """The name of a column and its bounds, from COLUMN:LOW:HIGH."""
    try:
        name, low, high = text.rsplit(":", 2)
        bounds = float(low), float(high)
        if bounds[0] < bounds[1] and all(map(math.isfinite, bounds)):
            return name, bounds
    except ValueError:
        pass
    raise RequestError(
        f"bounds={text}: write COLUMN:LOW:HIGH, the lower bound first, and + between columns"
    )
