"""Labels of a data set and the names of its classes."""

from collections.abc import Sequence

import numpy as np

from brinell.core.bounded import MOST_CLASSES
from brinell.core.class_names import check_unique
from brinell.core.errors import RequestError, short
from brinell.core.record import Array

MULTI_LABEL = (
    "several labels per sample (multi-label) are not supported; audit one label "
    "at a time: its column (0 or 1) as the class, and "
    "a model that answers its score alone"
)
"""What to do about samples of several classes."""
MOST_LISTED = 5
"""Number of samples that a message lists."""
Labels = np.ndarray[tuple[int], np.dtype[np.int64]]


def check_labels(y: Array, n: int, subject: str = "the array of labels") -> Labels:
    """The labels as (n,) int64."""
    # A column of labels is how tables have them.
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "biuf" and bool(np.isin(y, (0, 1)).all()):
        y = _classes_of_rows(y, subject)

    if y.ndim != 1:
        raise RequestError(
            f"{subject} has shape {y.shape}; labels are one whole number per "
            "sample (of one-hot rows, the argmax)"
        )
    if len(y) != n:
        raise RequestError(
            f"{subject} holds {len(y)} labels for {n} inputs: they must belong together one to one"
        )
    if n == 0:
        raise RequestError(f"{subject} is empty: there is nothing to audit")
    # Whole numbers may be stored as floats, as in CSV files with missing values.
    if y.dtype.kind not in "iuf" or (y.dtype.kind == "f" and not bool((y == np.floor(y)).all())):
        raise RequestError(f"{subject} has type {y.dtype}; labels are whole numbers from 0 on")

    if y.min() < 0:
        # Some sets mark samples without a label by -1.
        rows = np.flatnonzero(y < 0)
        places = ", ".join(map(str, rows[:MOST_LISTED])) + ", ..." * (len(rows) > MOST_LISTED)
        raise RequestError(
            f"{subject} holds the label {int(y.min())}; labels are counted from "
            "0: drop the samples whose label is below 0 "
            f"({len(rows)} of {n}, at {places}), or count the labels from 0"
        )
    if y.max() >= MOST_CLASSES:
        raise RequestError(
            f"{subject} holds the label {int(y.max())}; labels are below "
            f"{MOST_CLASSES}: count them from 0 on"
        )
    return y.astype(np.int64)


def _classes_of_rows(y: Array, subject: str) -> Array:
    """The classes (n,) of rows of zeros and ones, of which each must hold a single one."""
    per_sample = np.count_nonzero(y, axis=1)
    if (per_sample != 1).any():
        raise RequestError(
            f"{subject} gives {int(per_sample.max())} classes to some samples "
            f"and {int(per_sample.min())} to others: "
            f"{MULTI_LABEL}"
        )
    classes: Array = y.argmax(1)
    return classes


def encode_labels(
    labels: Array, classes: Sequence[object] | None, named: Sequence[str] = ()
) -> tuple[Array, tuple[str, ...] | None, tuple[str, ...]]:
    """The labels as numbers, the names of the classes if known, and notes on the decisions made.

    Args:
        labels: (n,) numbers or texts, or one-hot rows; -1 and 1, as estimators of two classes have
            them, become 0 and 1.
        classes: names that the user gave.
        named: names that the data have.
    """
    if unnamed := [
        name
        for name in classes or ()
        if not isinstance(name, str | int | float | bytes | np.generic)
    ]:
        raise RequestError(f"classes holds {short(unnamed[0])}: give each class a name")
    # The names that the user gives go before those of the data.
    names = _texts(classes) if classes is not None else tuple(named) or None
    if labels.dtype.kind not in "US":
        return *_encode_numbers(labels, names), ()

    texts = tuple(map(str, np.unique(labels)))
    names_in_order = names or texts
    if missing := [text for text in texts if text not in names_in_order]:
        raise RequestError(
            f"there is a label {missing[0]!r}, and the classes are "
            f"{', '.join(names_in_order[:8])}: name every class"
        )
    notes: tuple[str, ...] = ()
    if not names:
        notes = (
            "labels are texts, whose classes count in sorted order: "
            f"{', '.join(names_in_order[:8])}",
        )
    codes = np.array([names_in_order.index(str(label)) for label in labels.ravel()])
    return codes.reshape(labels.shape), names_in_order, notes


def _encode_numbers(
    labels: Array, names: tuple[str, ...] | None
) -> tuple[Array, tuple[str, ...] | None]:
    """Labels that are no texts as they count from 0, and the names of the classes if known."""
    kind = labels.dtype.kind
    # The two sides of a margin, as estimators have them.
    if kind in "if" and labels.size and set(np.unique(labels).tolist()) == {-1, 1}:
        return (labels > 0).astype(np.int64), names or ("-1", "1")
    return labels.astype(np.int64) if kind == "b" else labels, names


def class_names(
    names: Sequence[object] | None,
    labels: Array,
    subject: str = "the list of class names",
    *,
    unique: bool = True,
) -> tuple[str, ...]:
    """The names of the classes as text; without names the numbers up to the largest label.

    A name that occurs twice is refused.
    """
    classes = int(labels.max()) + 1

    if names is None:
        return tuple(map(str, range(classes)))
    if len(names) < classes:
        raise RequestError(
            f"{subject} has {len(names)} names, but the labels go up to "
            f"{classes - 1}: name every class"
        )

    texts = _texts(names)
    if unique:
        check_unique(texts, subject)
    return texts


def _texts(names: Sequence[object]) -> tuple[str, ...]:
    """Names of any type as texts."""
    return tuple(
        name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names
    )
