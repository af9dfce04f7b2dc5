"""Rows in memory: dataclasses of columns, whose fields `core.record.column` declares."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from brinell.core.record import Array, columns_of

Rows = TypeVar("Rows")


def build(of: type[Rows], n: int, **columns: Any) -> Rows:
    """Build `n` rows of the dataclass `of` from scalars and (n,) arrays.

    Columns that are not given are null or zero if they are declared so. A nullable column may be a
    masked array.

    Raises:
        TypeError: a required column is missing.
    """
    filled: dict[str, Array] = {}

    for name, column in columns_of(of).items():
        dtype = np.dtype(object) if column.kind == "string" else np.dtype(column.kind)
        if name in columns and column.null:
            array = np.ma.asarray(columns[name], dtype)
            values = np.broadcast_to(array, (n,)).copy()
            filled[name] = np.ma.MaskedArray(values, np.ma.getmaskarray(array))
        elif name in columns:
            # A scalar stands for all rows without being copied.
            filled[name] = np.broadcast_to(np.asarray(columns[name], dtype), (n,))
        elif column.null:
            filled[name] = np.ma.MaskedArray(np.zeros(n, dtype), mask=True)
        elif column.zero:
            filled[name] = np.full(n, "" if column.kind == "string" else 0, dtype)
        else:
            raise TypeError(f"rows need the column {name}")

    return of(**filled)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """The rows of all `parts` in order; there must be at least one part."""
    joined = {
        name: (np.ma if column.null else np).concatenate([getattr(part, name) for part in parts])
        for name, column in columns_of(parts[0]).items()
    }
    return type(parts[0])(**joined)


def take(rows: Rows, selection: Array | slice) -> Rows:
    """The rows that `selection` (bool, indices or a slice) selects."""
    return type(rows)(**{name: getattr(rows, name)[selection] for name in columns_of(rows)})
