"""Rows in memory: dataclasses of columns, whose fields `core.record.column` declares."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from brinell.core.record import Array, columns_of

Rows = TypeVar("Rows")


def build(of: type[Rows], n: int, **columns: Any) -> Rows:
    """`n` rows of the kind `of` from scalars and (n,) arrays; columns left out are null or zero, if they are declared so.

    A nullable column may also be given as a masked array.
    """
    filled: dict[str, Array] = {}
    for name, column in columns_of(of).items():
        dtype = np.dtype(object) if column.kind == "string" else np.dtype(column.kind)
        if name in columns and column.null:
            array = np.ma.asarray(columns[name], dtype)
            filled[name] = np.ma.MaskedArray(np.broadcast_to(array, (n,)).copy(), np.ma.getmaskarray(array))
        elif name in columns:
            filled[name] = np.broadcast_to(np.asarray(columns[name], dtype), (n,))
        elif column.null:
            filled[name] = np.ma.MaskedArray(np.zeros(n, dtype), mask=True)
        elif column.zero:
            filled[name] = np.zeros(n, dtype)
        else:
            raise TypeError(f"rows need the column {name}")
    return of(**filled)


def _kind(rows: Rows) -> type[Rows]:
    """The dataclass of records that some rows are of, where these may stay in their files."""
    return next(one for one in type(rows).__mro__ if "__dataclass_fields__" in vars(one))


def concatenate(parts: Sequence[Rows]) -> Rows:
    """The rows of all `parts`, of which there is at least one, in order."""
    filled = {}
    for name, column in columns_of(parts[0]).items():
        values = [getattr(part, name) for part in parts]
        filled[name] = np.concatenate([np.ma.getdata(one) for one in values])
        if column.null:
            filled[name] = np.ma.MaskedArray(filled[name], np.concatenate([np.ma.getmaskarray(one) for one in values]))
    return _kind(parts[0])(**filled)


def take(rows: Rows, chosen: Array) -> Rows:
    """The chosen rows (bool or indices)."""
    return _kind(rows)(**{name: getattr(rows, name)[chosen] for name in columns_of(rows)})
