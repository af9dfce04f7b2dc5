"""Building records column by column."""

from typing import Any

import numpy as np

from brinell.core.record import COLUMNS, Records

_COSTS = ("forwards", "backwards", "judge_forwards", "seconds")


def build(n: int, **columns: Any) -> Records:
    """`n` rows from scalars and (n,) arrays; nullable columns left out are null, costs left out are 0.

    A nullable column may also be given as a masked array.
    """
    filled = {}
    for name, column in COLUMNS.items():
        dtype = np.dtype(object) if column["kind"] == "string" else np.dtype(column["kind"])
        if name in columns:
            filled[name] = _fill(columns[name], n, dtype, null=column["null"])
        elif column["null"]:
            filled[name] = np.ma.MaskedArray(np.zeros(n, dtype), mask=True)
        elif name in _COSTS:
            filled[name] = np.zeros(n, dtype)
        else:
            raise TypeError(f"rows need the column {name}")
    return Records(**filled)


def _fill(value: Any, n: int, dtype: np.dtype[Any], *, null: bool) -> np.ndarray[Any, Any]:
    array = np.ma.asarray(value, dtype) if null else np.asarray(value, dtype)
    return (
        np.ma.MaskedArray(np.broadcast_to(array, (n,)).copy(), np.ma.getmaskarray(array))
        if null
        else np.broadcast_to(array, (n,))
    )
