"""Rows to and from Parquet files. The columns are an argument: `Column`s by name, or the fields of a dataclass of records."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.core import bounded
from brinell.core.errors import RequestError, option
from brinell.core.record import SCHEMA_VERSION, Array, Column, Records, columns_of
from brinell.store import seal
from brinell.store.files import check, write_atomically

Rows = TypeVar("Rows")
MOST_BYTES = 1 << 34
"""Bytes of a file of rows at most."""
MOST_UNPACKED = 1 << 31
"""Bytes that the rows of a small file may become."""
GROUP_ROWS = 1 << 16
"""Rows that a reader who takes a file group by group has in memory at once."""
TYPES = {kind: pa.type_for_alias(kind) for kind in ("string", "bool", "int32", "int64", "float32", "float64")}


def schema_of(columns: Mapping[str, Column], kinds: Mapping[str, Any] | None = None) -> pa.Schema:
    """Columns as Arrow writes them; `kinds` says what the kinds of a study's own are."""
    types = TYPES | dict(kinds or {})
    return pa.schema([pa.field(name, types[column.kind], nullable=column.null) for name, column in columns.items()])


def write_table(path: Path, table: Any, **settings: Any) -> None:
    """Write an Arrow table as one sealed Parquet file, atomically."""
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), seal.KEY: seal.BLANK})
    held = pa.BufferOutputStream()
    pq.write_table(table, held, compression="zstd", **settings)
    content = seal.sealed(held.getvalue().to_pybytes())
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_parts(path: Path, parts: Iterable[Records], cell: str) -> None:
    """Write an audit's rows as one Parquet file that names its cell, part after part, of which one is in memory at a time."""

    def fill(temporary: Path) -> None:
        schema = schema_of(columns_of(Records)).with_metadata({"brinell.schema": str(SCHEMA_VERSION), "brinell.cell": cell})
        schema = schema.with_metadata({**schema.metadata, seal.KEY: seal.BLANK})
        left = schema.empty_table()
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for part in parts:
                left = pa.concat_tables([left, to_table(part).replace_schema_metadata(schema.metadata)])
                while len(left) >= GROUP_ROWS:
                    writer.write_table(left[:GROUP_ROWS])
                    left = left[GROUP_ROWS:]
            if len(left):
                writer.write_table(left)
        seal.seal(temporary)

    write_atomically(path, fill)


def read_table(path: Path, columns: Sequence[str] | None = None, schema: Any = None, expected: str | None = None) -> Any:
    """A Parquet file as an Arrow table.

    Args:
        path: the file.
        columns: the columns that are read; all of them by default.
        schema: what the file must have been written with.
        expected: the hash that the file must have (`files.digest`), where that is known.

    Raises:
        RequestError: it is damaged or missing, or has other columns or another version than `schema`.
    """
    with reading(path):
        content = bounded.read(path, MOST_BYTES)
        check(path, content, expected)
        held = pq.ParquetFile(pa.BufferReader(content))
        check_size(path, held.metadata, len(content))
        table = held.read(columns)
    if schema is not None:
        check_schema(path, table.schema, schema)
    return table


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in one line what is wrong with a Parquet file that is read meanwhile."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(f"{path} is damaged or missing ({reason}): delete it and go on with {option('resume')}") from None


def check_size(path: Path, metadata: Any, length: int) -> None:
    """Refuse a Parquet file of `length` bytes that would become far more in memory."""
    bounded.unpacked(8 * metadata.num_rows * metadata.num_columns, length, path, MOST_UNPACKED)


def check_schema(path: Path, found: Any, schema: Any) -> None:
    """Refuse a file with other columns, or of another version, than it must have been written with."""
    if found.names != schema.names or _version(found) != _version(schema):
        raise RequestError(f"{path} was written by another version of brinell (schema {_version(found)}): read it with that one")


def _version(schema: Any) -> str:
    return (schema.metadata or {}).get(b"brinell.schema", b"none").decode()  # type: ignore[no-any-return]


def to_table(rows: Any, metadata: Mapping[str, str] | None = None) -> Any:
    """A dataclass of records as an Arrow table."""
    schema = schema_of(columns_of(rows))
    columns = [getattr(rows, name) for name in schema.names]
    arrays = [
        pa.array(np.asarray(np.ma.getdata(column)), field.type, mask=np.ma.getmaskarray(column) if field.nullable else None)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata(metadata))


def from_table(of: type[Rows], table: Any) -> Rows:
    """An Arrow table as a dataclass of records."""
    return of(**{field.name: _column(table[field.name].combine_chunks(), field) for field in schema_of(columns_of(of))})


def _column(column: Any, field: Any) -> Array:
    if field.type == pa.string():  # a few different texts in many rows: each is one object, not one a row
        encoded = column.dictionary_encode()
        texts: Array = np.array(encoded.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[encoded.indices.to_numpy()])
    if not field.nullable:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    mask = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    filled = column.fill_null(False if field.type == pa.bool_() else 0)
    return np.ma.MaskedArray(np.asarray(filled.to_numpy(zero_copy_only=False)), mask=mask)


def write(path: Path, records: Records, cell: str) -> None:
    """Write an audit's rows as one Parquet file that names its cell."""
    write_table(path, to_table(records, {"brinell.schema": str(SCHEMA_VERSION), "brinell.cell": cell}), row_group_size=GROUP_ROWS)


def read(paths: Sequence[Path], expected: Callable[[Path], str | None] = lambda path: None) -> Records:
    """An audit's rows in several files, one after another.

    Args:
        paths: the files.
        expected: the hash that each must have, where that is known.

    Raises:
        RequestError: a file is damaged, changed or has another schema.
    """
    schema = schema_of(columns_of(Records)).with_metadata({"brinell.schema": str(SCHEMA_VERSION)})
    parts = [read_table(path, schema=schema, expected=expected(path)).replace_schema_metadata(None) for path in paths]
    return from_table(Records, pa.concat_tables(parts) if parts else schema.empty_table())


def load_rows(of: type[Rows], path: Path) -> Rows:
    """The rows of a Parquet file as a dataclass of records; errors as of `read_table`."""
    return from_table(of, read_table(path, schema=schema_of(columns_of(of))))
