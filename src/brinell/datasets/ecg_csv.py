"""`ecg-csv:FILE`: a table of heartbeats, one per row.

Without a header, or with column numbers as header, the last column holds the label, as in the
widely used tables made of MIT-BIH and PTB (187 values at 125 Hz between 0 and 1, then 0 to 4). With
column names, the label's column is label, class, target or y, unless label= names another. All
other columns are values, in their order, except those of groups= and leave=. Labels are whole
numbers, or names. Such tables are often sorted by class: classes (or groups) take turns, so that
the first samples contain all of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from brinell.core import bounded
from brinell.core.checks import ROWS_LEFT_OUT
from brinell.core.data import DataInfo, Dataset, Remark
from brinell.core.domain import Sampling
from brinell.core.errors import RequestError
from brinell.core.settings import Checked, NotNegative
from brinell.core.splits import turns
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Array, StoredArrays, arrange, domain_of
from brinell.datasets._columns import complete_rows
from brinell.datasets._files import first_row
from brinell.datasets._labels import check_labels, class_names, encode_labels

LABELS = ("label", "class", "target", "y")


@dataclass(frozen=True, kw_only=True)
class EcgCsv(Checked):
    """Heartbeats from a CSV file, one in each row."""

    path: str = ""
    """The file."""
    label: str = ""
    """Column of the label; by default label, class, target or y, or without a header the last
    column."""
    groups: str = ""
    """Column of each beat's group, such as its patient; then groups take turns instead of
    classes."""
    leave: tuple[str, ...] = ()
    """Columns that hold no values and are ignored, joined by +."""
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of their numbers, joined by +: N+S+V+F+Q."""
    rate: NotNegative = 125.0
    """Values per second; 0 if unknown."""
    unit: str = ""
    """Unit of the values, such as mV."""
    low: float = 0.0
    """Smallest value allowed."""
    high: float = 1.0
    """Largest value allowed."""
    missing: Literal["refuse", "skip"] = "refuse"
    """Treatment of a row with a missing value: refuse the file, or skip the row and report the
    number of such rows."""

    def __call__(self) -> Dataset:
        """Read the file."""
        file = existing_path(self.path, "file", "ecg-csv:FILE")
        table = _read(file)
        label, values = self._columns(table, file)
        names = [*values, label, *([self.groups] if self.groups else [])]

        empty = {
            name: table.cells.column(name).is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
            for name in names
        }
        rows, skipped = complete_rows(empty, self.missing, file, int(table.header))
        x = np.stack([_values(table, name, file)[rows] for name in values], 1)

        column = table.cells.column(label).to_numpy(zero_copy_only=False)[rows]
        texts = column if column.dtype.kind in "iuf" else column.astype(str)
        codes, named, _ = encode_labels(texts, self.classes or None)
        labels = check_labels(codes, len(codes), f"the column of labels of {file}")
        classes = class_names(named, labels, "the option classes=")

        # Without groups the classes take turns, so that the first samples contain all of them.
        groups = (
            table.cells.column(self.groups).to_numpy(zero_copy_only=False)[rows].astype(str)
            if self.groups
            else labels
        )
        order = turns(groups)
        arrangement = arrange(x.shape, kind="signal")
        domain, _ = domain_of(x, arrangement, low=self.low, high=self.high, subject=str(file))

        return StoredArrays(
            name=file.stem,
            x=x[order],
            y=labels[order],
            groups=groups[order] if self.groups else None,
            arrangement=arrangement,
            domain=domain,
            classes=classes,
            info=DataInfo(
                sampling=Sampling(rate=self.rate, unit=self.unit) if self.rate else None,
                remarks=(Remark(ROWS_LEFT_OUT, skipped),) * bool(skipped),
            ),
        )

    def _columns(self, table: "_Table", file: Path) -> tuple[str, list[str]]:
        """The column of the label, and those of the values."""
        names = table.cells.column_names
        required = [name for name in (self.label, self.groups, *self.leave) if name]
        if absent := [name for name in required if name not in names]:
            raise RequestError(
                f"{file} has no column {absent[0]!r}; it has "
                f"{', '.join(names[:8])}, ... {names[-1]}"
            )

        # A file with a header has a column of a usual name; without one the label comes last, as in
        # MIT-BIH's tables.
        usual = next((name for name in LABELS if name in names), "")
        label = self.label or (usual if table.named else names[-1])
        if not label:
            raise RequestError(
                f"{file} has no column called {' or '.join(LABELS)}: name the label's by label="
            )
        values = [name for name in names if name not in (label, self.groups, *self.leave)]
        if not values:
            raise RequestError(
                f"{file} has no column of values beside its label: one row holds one beat"
            )
        return label, values


class _Table(NamedTuple):
    """The cells of a file, and what its first line is."""

    cells: Any
    """A pyarrow table."""
    header: bool
    """True if the first line holds column names."""
    named: bool
    """True if the names are more than column numbers."""


def _read(file: Path) -> _Table:
    """All cells; columns of a file without header are called 1, 2, ..."""
    first = first_row(file)
    if not first:
        raise RequestError(f"{file} is empty: one row holds one beat")
    # Tools that write a table without names number its columns, from 0 or from 1.
    is_numbered = first in (
        [str(number + start) for number in range(len(first))] for start in (0, 1)
    )
    # The last cell may be a text in every row: that of the class.
    header = is_numbered or not all(_is_number(cell) for cell in first[:-1] or first)
    names = first if header else [str(number + 1) for number in range(len(first))]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise RequestError(f"{file} has two columns of one name ({repeated[0]!r}): rename one")

    with bounded.decoding(file, file.stat().st_size):
        cells = pa.csv.read_csv(
            file,
            read_options=pa.csv.ReadOptions(column_names=names, skip_rows=int(header)),
            convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
        )
    if not len(cells):
        raise RequestError(f"{file} has a header and no row: there is nothing to audit")
    return _Table(cells, header, header and not is_numbered)


def _is_number(cell: str) -> bool:
    """True if a cell holds a number, or nothing."""
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _values(table: _Table, name: str, file: Path) -> Array:
    """(rows,) float32; missing values are NaN."""
    column = table.cells.column(name)
    # Texts among the values show a column of names, or damage.
    if not (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_null(column.type)
    ):
        cells = [str(cell) for cell in column.to_pylist() if cell is not None]
        text = next((cell for cell in cells if not _is_number(cell)), cells[0])
        raise RequestError(
            f"{file} holds {text!r} in column {name}, among the values: mend it, "
            "or name the column in label=, groups= or leave="
        )

    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float32)
