"""Labels of a data set and the names of its classes."""

from collections.abc import Sequence

import numpy as np

from brinell.core.bounded import MOST_CLASSES
from brinell.core.class_names import check_unique
from brinell.core.errors import RequestError
from brinell.core.record import Array

MULTI_LABEL = (
    "several labels per sample (multi-label) are not supported; audit one label at a time: its column (0 or 1) as the class, and "
    "a model that answers its score alone"
)
"""What to do about samples of several classes."""
MOST_LISTED = 5
"""Number of samples that a message lists."""
Labels = np.ndarray[tuple[int], np.dtype[np.int64]]


def check_labels(y: Array, n: int, subject: str = "the array of labels") -> Labels:
    """The labels as (n,) int64."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "biuf" and bool(np.isin(y, (0, 1)).all()):
        per_sample = np.count_nonzero(y, axis=1)
        if (per_sample != 1).any():
            raise RequestError(
                f"{subject} gives {int(per_sample.max())} classes to some samples and {int(per_sample.min())} to others: "
                f"{MULTI_LABEL}"
            )
        y = y.argmax(1)
    if y.ndim != 1:
        raise RequestError(f"{subject} has shape {y.shape}; labels are one whole number per sample (of one-hot rows, the argmax)")
    if len(y) != n:
        raise RequestError(f"{subject} holds {len(y)} labels for {n} inputs: they must belong together one to one")
    if n == 0:
        raise RequestError(f"{subject} is empty: there is nothing to audit")
    if y.dtype.kind not in "iuf" or (y.dtype.kind == "f" and not bool((y == np.floor(y)).all())):
        raise RequestError(f"{subject} has type {y.dtype}; labels are whole numbers from 0 on")
    if y.min() < 0:
        rows = np.flatnonzero(y < 0)
        places = ", ".join(map(str, rows[:MOST_LISTED])) + ", ..." * (len(rows) > MOST_LISTED)
        raise RequestError(
            f"{subject} holds the label {int(y.min())}; labels are counted from 0: drop the samples whose label is below 0 "
            f"({len(rows)} of {n}, at {places}), or count the labels from 0"
        )
    if y.max() >= MOST_CLASSES:
        raise RequestError(f"{subject} holds the label {int(y.max())}; labels are below {MOST_CLASSES}: count them from 0 on")
    return y.astype(np.int64)


def code_signs(y: Array) -> tuple[Array, tuple[str, ...] | None]:
    """Labels -1 and 1, as estimators of two classes have them, as 0 and 1 with their names; any others as they are."""
    if y.dtype.kind in "if" and y.size and set(np.unique(y).tolist()) == {-1, 1}:
        return (y > 0).astype(np.int64), ("-1", "1")
    return y, None


def class_names(
    names: Sequence[object] | None, labels: Array, subject: str = "the list of class names", *, unique: bool = True
) -> tuple[str, ...]:
    """The names of the classes as text, or "0", "1", ... up to the largest label; a name that occurs twice is refused."""
    classes = int(labels.max()) + 1
    if names is None:
        return tuple(map(str, range(classes)))
    if len(names) < classes:
        raise RequestError(f"{subject} has {len(names)} names, but the labels go up to {classes - 1}: name every class")
    texts = tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names)
    if unique:
        check_unique(texts, subject)
    return texts
