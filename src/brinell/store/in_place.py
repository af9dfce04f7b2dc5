"""Rows that stay in their Parquet files: a column is read when somebody looks at it, so that a long run is never held whole."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.core.record import COLUMNS, SCHEMA_VERSION, Array, StoredRecords
from brinell.store import parquet
from brinell.store.files import checked_file

HELD = 8 << 20
"""Bytes of columns that are kept for the next look: all of a small run, a few columns of a large one."""
TEXTS = [name for name, column in COLUMNS.items() if column.kind == "string"]


class Piece(NamedTuple):
    """Rows that a reader takes at once: one group of a file."""

    path: Path
    group: int
    rows: int


class Codes(NamedTuple):
    """A column of a few different texts in many rows."""

    texts: Array
    codes: Array


def records(paths: Sequence[Path], expected: Callable[[Path], str | None] = lambda path: None) -> StoredRecords:
    """An audit's rows in several files, one after another, as `parquet.read` gives them, and read column by column.

    The files must stay where they are as long as somebody looks at the rows. Arguments and errors are those of `parquet.read`.
    """
    return StoredRecords(_Columns([piece for path in paths for piece in _pieces(path, expected(path))]))


def groups(path: Path, expected: str | None = None) -> Iterator[StoredRecords]:
    """The rows of one file, group after group; errors as of `records`."""
    for piece in _pieces(path, expected):
        yield StoredRecords(_Columns([piece]))


def _pieces(path: Path, expected: str | None) -> list[Piece]:
    with parquet.reading(path):
        length = checked_file(path, parquet.MOST_BYTES, expected)
        with pq.ParquetFile(path) as file:
            parquet.check_size(path, file.metadata, length)
            parquet.check_schema(path, file.schema_arrow, _schema())
            return [Piece(path, at, file.metadata.row_group(at).num_rows) for at in range(file.num_row_groups)]


def _schema() -> Any:
    return parquet.schema_of(COLUMNS).with_metadata({"brinell.schema": str(SCHEMA_VERSION)})


class _Columns:
    """Reads columns of some pieces, and keeps those that were looked at last."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces, self._rows = pieces, sum(piece.rows for piece in pieces)
        self._held: OrderedDict[str, Array | Codes] = OrderedDict()

    def __call__(self, name: str) -> Array:
        """(rows,) the column, a masked array where it may be null."""
        column = self._held.pop(name, None)
        if column is None:
            column = self._texts(name) if name in TEXTS else self._numbers(name)
        self._held[name] = column
        while len(self._held) > 1 and sum(map(_bytes, self._held.values())) > HELD:
            self._held.popitem(last=False)
        return column.texts[column.codes] if isinstance(column, Codes) else column

    def _read(self, name: str) -> Iterator[Any]:
        """The Arrow arrays that make up the column, in order."""
        for path, pieces in groupby(self._pieces, key=lambda piece: piece.path):
            with parquet.reading(path), pq.ParquetFile(path, read_dictionary=TEXTS) as file:
                for piece in pieces:
                    yield from file.read_row_group(piece.group, [name])[name].chunks

    def _numbers(self, name: str) -> Array:
        kind = COLUMNS[name]
        column = np.zeros(self._rows, np.dtype(kind.kind))
        null = np.zeros(self._rows, bool) if kind.null else None
        at = 0
        for chunk in self._read(name):
            here = slice(at, at := at + len(chunk))
            if null is not None:
                null[here] = chunk.is_null().to_numpy(zero_copy_only=False)
                chunk = chunk.fill_null(False if kind.kind == "bool" else 0)
            column[here] = chunk.to_numpy(zero_copy_only=False)
        pa.default_memory_pool().release_unused()
        return column if null is None else np.ma.MaskedArray(column, mask=null)

    def _texts(self, name: str) -> Codes:
        texts: dict[str, int] = {}
        codes = [np.zeros(0, np.uint8)]
        for chunk in self._read(name):
            own = [texts.setdefault(text, len(texts)) for text in chunk.dictionary.to_pylist()]
            codes.append(np.array(own, np.min_scalar_type(len(texts)))[chunk.indices.to_numpy()])
        return Codes(np.array([*texts, ""], dtype=object), np.concatenate(codes))


def _bytes(column: Array | Codes) -> int:
    if isinstance(column, Codes):
        return int(column.codes.nbytes)
    return int(np.ma.getdata(column).nbytes + (column.mask.nbytes if isinstance(column, np.ma.MaskedArray) else 0))
