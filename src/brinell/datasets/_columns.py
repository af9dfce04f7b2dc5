"""Columns of tables and data frames as vectors: numbers in their units, and categories, which no
attack changes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from brinell.core.domain import Column, Domain
from brinell.core.errors import RequestError
from brinell.datasets._arrays import Array, make_domain

MOST_NAMES = 8
"""Maximum number of columns that a message names."""


def vectors_of(
    columns: Mapping[str, Array],
    bounds: Mapping[str, tuple[float, float]],
    fixed: Collection[str],
    subject: object,
    missing: Mapping[str, Array],
) -> tuple[Array, Domain, tuple[str, ...]]:
    """Vectors (n, d) float32 of these columns, their domain, and notes on the decisions made.

    Numbers are scaled from their bounds to [0, 1], so that a budget is a share of a column's range.
    Texts and truth values become codes into their sorted values. Categories, constant columns and
    those in `fixed` keep their units; no attack changes them.

    Args:
        columns: (n,) numbers, texts or truth values of each column, none missing.
        bounds: range of a column; by default its smallest and largest value.
        fixed: names of columns that no attack may change.
        missing: (n,) bool for each column: rows without a value, where another one stands in
            `columns`. Further columns mark them, by which the model gets NaN; no attack changes
            them.
    """
    encoded: list[_Encoded] = []
    for name, column in columns.items():
        if column.dtype.kind in "iuf":
            encoded.append(_scale_numbers(name, column, bounds, name in fixed, subject))
            continue
        if name in bounds:
            raise RequestError(
                f"bounds name {name!r} of {subject}, which holds categories: they have none"
            )
        encoded.append(_encode_categories(name, column))

    holes = {name: empty for name, empty in missing.items() if empty.any()}
    # A column that marks missing values tells the model NaN from the number that stands there.
    for name, empty in holes.items():
        mark = Column(f"{name} is missing", fixed=True, marks=name)
        encoded.append(_Encoded(empty, mark, (0.0, 1.0)))
    parts = tuple(entry.column for entry in encoded)
    low_ends, high_ends = zip(*(entry.ends for entry in encoded), strict=True)
    domain = make_domain(
        subject, kind="vector", shape=(len(parts),), low=low_ends, high=high_ends, columns=parts
    )
    # In single precision, as every model gets them.
    values = np.stack([entry.values for entry in encoded], 1)
    return values.astype(np.float32), domain, _notes_on(parts, bounds, holes)


class _Encoded(NamedTuple):
    """A column as a model is given it."""

    values: Array
    column: Column
    ends: tuple[float, float]
    """The smallest and the largest value."""


def _encode_categories(name: str, column: Array) -> _Encoded:
    """Texts or truth values as codes into their sorted values, which no attack changes."""
    is_bool = column.dtype.kind == "b"
    categories, codes = np.unique(column.astype(bool if is_bool else str), return_inverse=True)
    values = () if is_bool else tuple(map(str, categories))
    # The one code of a constant column needs a range, too.
    ends = (0.0, float(max(1, len(categories) - 1)))
    return _Encoded(codes.reshape(-1), Column(name, fixed=True, values=values), ends)


def _scale_numbers(
    name: str,
    column: Array,
    bounds: Mapping[str, tuple[float, float]],
    is_named: bool,
    subject: object,
) -> _Encoded:
    """Numbers scaled from their bounds to [0, 1]; in their units if no attack may change them."""
    x = column.astype(np.float64)
    if not np.isfinite(x).all():
        raise RequestError(
            f"column {name} of {subject} holds NaN or infinity: fill those rows or leave them out"
        )
    low, high = bounds.get(name, (float(x.min()), float(x.max())))
    if len(outside := np.flatnonzero((x < low) | (x > high))):
        row = int(outside[0])
        raise RequestError(
            f"column {name} of {subject} holds {x[row]:g} in row {row + 1}, "
            f"outside its bounds {low:g} to {high:g}: widen "
            "them"
        )

    # A constant column has no range that a budget could be a share of; its domain needs one still.
    if low == high or is_named:
        return _Encoded(x, Column(name, fixed=True), (low, high if low < high else low + 1))
    return _Encoded((x - low) / (high - low), Column(name, low, high), (0.0, 1.0))


def _notes_on(
    parts: Sequence[Column], bounds: Mapping[str, Any], holes: Mapping[str, Array]
) -> tuple[str, ...]:
    """Notes on the decisions about the columns: bounds from the data, fixed ones,
    missing values.
    """
    notes: list[str] = []
    scaled = [part.name for part in parts if not part.fixed and part.name not in bounds]
    if scaled:
        notes.append(
            f"bounds are the least and the largest value in the data for {first_names(scaled)}"
        )
    if closed := [part.name for part in parts if part.fixed]:
        notes.append(f"no attack changes {first_names(closed)}")
    if holes:
        is_empty = np.any(list(holes.values()), axis=0)
        notes.append(
            f"{int(is_empty.sum())} of {len(is_empty)} rows miss values: the model gets them "
            "as NaN, and no attack changes them"
        )
    return tuple(notes)


def first_names(names: list[str]) -> str:
    """The first names of a list, and the number of the others."""
    return ", ".join(names[:MOST_NAMES]) + (
        f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    )


def fill(column: Array, empty: Array, subject: object) -> Array:
    """A column with its first value in the place of those that are missing."""
    if empty.all():
        raise RequestError(f"{subject} has no value in any row: leave it out")
    filled = np.where(empty, column[~empty][0], column) if empty.any() else column
    return filled.astype(bool) if filled.dtype == object and isinstance(filled[0], bool) else filled


def complete_rows(
    missing: Mapping[str, Array], choice: str, subject: object, header: int = 1, keep: str = ""
) -> tuple[Array, str]:
    """Positions of the rows without a missing value, and a text about the others, empty for none.

    Args:
        missing: (n,) bool of each column: the rows without a value.
        choice: skip such rows, or refuse them.
        subject: the file, for messages.
        header: number of lines before the first row.
        keep: a further remedy.
    """
    holes = np.any(list(missing.values()), axis=0)
    if not holes.any():
        return np.arange(len(holes)), ""

    # The first line is named, as an editor counts it.
    row = int(holes.argmax())
    name = next(name for name in missing if missing[name][row])
    problem = (
        f"column {name} of {subject} has no value in line {row + 1 + header} "
        f"({int(holes.sum())} of {len(holes)} rows)"
    )
    if choice != "skip":
        raise RequestError(
            f"{problem}: fill it, leave those rows out by missing=skip, or leave "
            f"out the column{keep}"
        )
    if holes.all():
        raise RequestError(f"{problem}, and no row is complete: there is nothing to audit")
    return np.flatnonzero(
        ~holes
    ), f"{int(holes.sum())} of {len(holes)} rows of {subject} have missing values: skipped"


def text_of(value: Any) -> str:
    """A class as text: whole numbers without a point, whatever type the file has."""
    return f"{value:.12g}" if isinstance(value, float | np.floating) else str(value)
