"""Reads and writes rows as Parquet files.

Columns are given as `RecordColumn`s by name, or as the fields of a dataclass of records.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.record import Array, RecordColumn, columns_of
from brinell.store.files import damaged, write_atomically

Rows = TypeVar("Rows")
MOST_BYTES = 1 << 34
"""Largest size of a file of rows, in bytes."""
MOST_UNPACKED = 1 << 31
"""Bytes that the rows of a small file may take in memory."""
TYPES = {
    kind: pa.type_for_alias(kind)
    for kind in ("string", "bool", "int32", "int64", "float32", "float64")
}


def schema_of(
    columns: Mapping[str, RecordColumn], kinds: Mapping[str, Any] | None = None
) -> pa.Schema:
    """The Arrow schema of columns; `kinds` maps additional kinds of a study to Arrow types."""
    types = TYPES | dict(kinds or {})
    return pa.schema(
        [
            pa.field(name, types[column.kind], nullable=column.null)
            for name, column in columns.items()
        ]
    )


def write_table(path: Path, table: Any, *, durable: bool = True, **settings: Any) -> None:
    """Write an Arrow table as one Parquet file with checksums of its pages, atomically; `durable`
    as in `write_atomically`.
    """

    def fill(temporary: Path) -> None:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True, **settings)

    write_atomically(path, fill, durable=durable)


def read_table(path: Path, columns: Sequence[str] | None = None, schema: Any = None) -> Any:
    """Read a Parquet file as an Arrow table.

    Args:
        path: the file.
        columns: the columns to read; by default all.
        schema: the schema that the file must have; None for any.
    """
    with reading(path):
        content = bounded.read(path, MOST_BYTES)
        parquet_file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        check_size(path, parquet_file.metadata, len(content))
        table = parquet_file.read(columns)

    if schema is not None:
        check_schema(path, table.schema, schema)
    return table


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the block, which reads the Parquet file `path`, into one-line
    request errors.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise damaged(path, reason) from None


def check_size(path: Path, metadata: Any, length: int) -> None:
    """Refuse a Parquet file of `length` bytes that would take far more bytes in memory, with 8 bytes
    for each value.
    """
    bounded.check_unpacked_size(
        8 * metadata.num_rows * metadata.num_columns, length, path, MOST_UNPACKED
    )


def check_schema(path: Path, actual: Any, schema: Any) -> None:
    """Refuse a file whose columns or their types differ from the expected `schema`."""
    if not actual.equals(schema, check_metadata=False):
        raise RequestError(
            f"{path} was written by another version of brinell: read it with that version"
        )


def to_table(rows: Any) -> Any:
    """The Arrow table of a dataclass of records."""
    schema = schema_of(columns_of(rows))
    arrays = [_arrow(getattr(rows, field.name), field) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _arrow(column: Array, field: Any) -> Any:
    """A column as an Arrow array.

    `pa.array` does the same and imports pandas, which takes longer than most audits write.
    """
    # Arrow's buffers: a bit for each value that is not null, or None, and then the data.
    values = np.ma.getdata(column)
    valid = None
    if field.nullable:
        valid = pa.py_buffer(np.packbits(~np.ma.getmaskarray(column), bitorder="little"))

    # A text is its bytes, behind the place where each begins.
    if field.type == pa.string():
        texts = [text.encode() for text in values]
        data = [np.cumsum([0, *map(len, texts)], dtype=np.int32), b"".join(texts)]
    elif field.type == pa.bool_():
        data = [np.packbits(values.astype(bool), bitorder="little")]
    else:
        data = [np.ascontiguousarray(values, field.type.to_pandas_dtype())]

    return pa.Array.from_buffers(field.type, len(values), [valid, *map(pa.py_buffer, data)])


def from_table(of: type[Rows], table: Any) -> Rows:
    """The dataclass of records `of` with the rows of an Arrow table."""
    return of(
        **{
            field.name: _column(table[field.name].combine_chunks(), field)
            for field in schema_of(columns_of(of))
        }
    )


def _column(column: Any, field: Any) -> Array:
    if field.type == pa.string():
        # Few distinct texts in many rows: one object per text, not per row.
        encoded = column.dictionary_encode()
        texts: Array = np.array(encoded.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[_values(encoded.indices)])

    values = _values(column)
    if not field.nullable:
        return values
    mask = _values(column.is_null())
    return np.ma.MaskedArray(np.where(mask, 0, values).astype(values.dtype), mask=mask)


def _values(array: Any) -> Array:
    """The values of an Arrow array of numbers or truth values, whatever stands where they are null.

    `to_numpy` does the same and imports pandas.
    """
    if array.type == pa.bool_():
        return _values(array.cast(pa.uint8())).astype(bool)
    # Without the bits of nulls, which numpy cannot take over.
    buffers = [None, array.buffers()[1]]
    numbers = pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)
    return np.from_dlpack(numbers)


def load_rows(of: type[Rows], path: Path) -> Rows:
    """The rows of a Parquet file as a dataclass of records; errors are those of `read_table`."""
    return from_table(of, read_table(path, schema=schema_of(columns_of(of))))
