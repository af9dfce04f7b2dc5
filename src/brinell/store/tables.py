"""Records to and from Parquet, with the schema of `core.record` and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.core.errors import RequestError
from brinell.core.record import COLUMNS, SCHEMA_VERSION, Records

_TYPES = {"string": pa.string(), "bool": pa.bool_()} | {
    kind: pa.type_for_alias(kind) for kind in ("int32", "int64", "float32", "float64")
}
SCHEMA = pa.schema([pa.field(name, _TYPES[column["kind"]], nullable=column["null"]) for name, column in COLUMNS.items()])


def write(path: Path, records: Records, cell: str) -> None:
    """Write `records` as one Parquet file that names its cell."""
    arrays = [
        pa.array(_values(getattr(records, field.name)), field.type, mask=_mask(getattr(records, field.name))) for field in SCHEMA
    ]
    metadata = {"brinell.schema": str(SCHEMA_VERSION), "brinell.cell": cell}
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA.with_metadata(metadata)), path, compression="zstd")


def _values(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(np.ma.getdata(column))


def _mask(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    return np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else None


def read(paths: list[Path]) -> Records:
    """The rows of several files, one after another.

    Raises:
        RequestError: a file is damaged or has another schema.
    """
    tables = []
    for path in paths:
        try:
            table = pq.read_table(path, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise RequestError(f"{path} is damaged ({_first_line(error)}): delete it and go on with --resume") from error
        version = (table.schema.metadata or {}).get(b"brinell.schema", b"none").decode()
        if version != str(SCHEMA_VERSION) or table.schema.names != SCHEMA.names:
            raise RequestError(f"{path} was written by another version of brinell (schema {version}): read it with that one")
        tables.append(table.replace_schema_metadata(None))
    table = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    return Records(**{field.name: _column(table[field.name].combine_chunks(), field) for field in SCHEMA})


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _column(column: Any, field: Any) -> np.ndarray[Any, Any]:
    if field.type == pa.string():  # a few different texts in many rows: each is one object, not one a row
        encoded = column.dictionary_encode()
        texts: np.ndarray[Any, Any] = np.array(encoded.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[encoded.indices.to_numpy()])
    if not field.nullable:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    mask = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    filled = column.fill_null(False if field.type == pa.bool_() else 0)
    return np.ma.MaskedArray(np.asarray(filled.to_numpy(zero_copy_only=False)), mask=mask)


def concatenate(parts: list[Records]) -> Records:
    """The rows of all `parts`, in order."""
    return Records(
        **{name: _chain([getattr(part, name) for part in parts], null=column["null"]) for name, column in COLUMNS.items()}
    )


def _chain(columns: list[np.ndarray[Any, Any]], *, null: bool) -> np.ndarray[Any, Any]:
    values = np.concatenate([_values(column) for column in columns])
    return np.ma.MaskedArray(values, np.concatenate([np.ma.getmaskarray(column) for column in columns])) if null else values


def take(records: Records, rows: np.ndarray[Any, Any]) -> Records:
    """The chosen rows (bool or indices)."""
    return Records(**{name: getattr(records, name)[rows] for name in COLUMNS})
