"""Rows that stay in their Parquet files: each column is read on first use, so a long run never has to fit into memory."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.core.record import COLUMNS, SCHEMA_VERSION, Array, Records, StoredRecords
from brinell.store import parquet
from brinell.store.files import checked_file

CACHE_BYTES = 8 << 20
"""Bytes of columns to cache: a few columns of a large run."""
SMALL = 50_000
"""Rows that are read at once, since opening a file for each column takes longer than to read all of them."""
TEXTS = [name for name, column in COLUMNS.items() if column.kind == "string"]


class Piece(NamedTuple):
    """A row group of a Parquet file, which is read at once."""

    path: Path
    group: int
    rows: int


class Codes(NamedTuple):
    """A column of texts, dictionary-encoded: few distinct texts in many rows."""

    texts: Array
    codes: Array


def records(paths: Sequence[Path], expected: Callable[[Path], str | None] = lambda path: None) -> Records:
    """An audit's rows from several files, concatenated; of a long run, columns are read on first use.

    The files must stay unchanged while the rows are in use. Arguments and errors are those of `parquet.read`.
    """
    pieces = [piece for path in paths for piece in _pieces(path, expected(path))]
    return parquet.read(paths) if sum(piece.rows for piece in pieces) <= SMALL else StoredRecords(_Columns(pieces))


def groups(path: Path, expected: str | None = None) -> Iterator[StoredRecords]:
    """The rows of one file, one row group at a time; errors are those of `records`."""
    for piece in _pieces(path, expected):
        yield StoredRecords(_Columns([piece]))


def _pieces(path: Path, expected: str | None) -> list[Piece]:
    """Row groups of a file."""
    with parquet.reading(path):
        length = checked_file(path, parquet.MOST_BYTES, expected)
        with pq.ParquetFile(path) as file:
            parquet.check_size(path, file.metadata, length)
            parquet.check_schema(path, file.schema_arrow, _schema())
            return [Piece(path, index, file.metadata.row_group(index).num_rows) for index in range(file.num_row_groups)]


def _schema() -> Any:
    return parquet.schema_of(COLUMNS).with_metadata({"brinell.schema": str(SCHEMA_VERSION)})


class _Columns:
    """Reads columns of row groups, and caches the most recently used columns."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces, self._rows = pieces, sum(piece.rows for piece in pieces)
        self._cache: OrderedDict[str, Array | Codes] = OrderedDict()

    def __call__(self, name: str) -> Array:
        """The column, (rows,); a masked array if the column is nullable."""
        column = self._cache.pop(name, None)
        if column is None:
            column = self._texts(name) if name in TEXTS else self._numbers(name)
        self._cache[name] = column
        while len(self._cache) > 1 and sum(map(_bytes, self._cache.values())) > CACHE_BYTES:
            self._cache.popitem(last=False)
        return column.texts[column.codes] if isinstance(column, Codes) else column

    def _read(self, name: str) -> Iterator[Any]:
        """The Arrow arrays of the column, in order."""
        for path, pieces in groupby(self._pieces, key=lambda piece: piece.path):
            with parquet.reading(path), pq.ParquetFile(path, read_dictionary=TEXTS) as file:
                for piece in pieces:
                    yield from file.read_row_group(piece.group, [name])[name].chunks

    def _numbers(self, name: str) -> Array:
        kind = COLUMNS[name]
        column = np.zeros(self._rows, np.dtype(kind.kind))
        null = np.zeros(self._rows, bool) if kind.null else None
        start = 0
        for chunk in self._read(name):
            span = slice(start, start := start + len(chunk))
            if null is not None:
                null[span] = chunk.is_null().to_numpy(zero_copy_only=False)
                chunk = chunk.fill_null(False if kind.kind == "bool" else 0)
            column[span] = chunk.to_numpy(zero_copy_only=False)
        pa.default_memory_pool().release_unused()
        return column if null is None else np.ma.MaskedArray(column, mask=null)

    def _texts(self, name: str) -> Codes:
        texts: dict[str, int] = {}
        codes = [np.zeros(0, np.uint8)]
        for chunk in self._read(name):
            numbers = [texts.setdefault(text, len(texts)) for text in chunk.dictionary.to_pylist()]
            codes.append(np.array(numbers, np.min_scalar_type(len(texts)))[chunk.indices.to_numpy()])
        return Codes(np.array([*texts, ""], dtype=object), np.concatenate(codes))


def _bytes(column: Array | Codes) -> int:
    if isinstance(column, Codes):
        return int(column.codes.nbytes)
    return int(np.ma.getdata(column).nbytes + (column.mask.nbytes if isinstance(column, np.ma.MaskedArray) else 0))
