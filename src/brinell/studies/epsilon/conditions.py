"""When a budget is sound: no allowed change leads to another class, none to another sample of the class, and none is noticed.

Each condition is a largest eps for each sample; the smallest of them is the sample's own budget. Half the distance to the
nearest sample of another class is the most at which the balls around samples of two classes never meet, so that a classifier
can be right on all of both (Yang et al. 2020, A closer look at accuracy vs. robustness, section 3). Pure functions on arrays.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from brinell.core.record import Array

LABEL = "label"
"""eps is at most a fraction of the distance to the nearest sample of another class."""
INTERPOLATION = "interpolation"
"""eps is below the distance to the nearest different sample of the same class."""
PERCEPTION = "perception"
"""A change of eps goes unnoticed."""
CONDITIONS = (LABEL, INTERPOLATION, PERCEPTION)
FRACTION = 0.5
ALLOW = 0.01


class Budget(NamedTuple):
    """An eps and why it is no larger."""

    eps: float
    """Infinite where nothing limits it."""
    reason: str
    """The condition that breaks first; empty where none does."""


def limits(
    *, other: Array | None = None, same: Array | None = None, unnoticed: Array | None = None, fraction: float = FRACTION
) -> dict[str, Array]:
    """The largest eps that keeps each condition, for each sample; infinite where nothing is known to limit it.

    Args:
        other: (n,) distance to the nearest sample of another class.
        same: (n,) distance to the nearest different sample of the same class.
        unnoticed: (n,) largest eps whose change goes unnoticed.
        fraction: of `other`, 0 to 1.
    """
    found: dict[str, Array] = {}
    if other is not None:
        found[LABEL] = fraction * np.asarray(other, np.float64)
    if same is not None:
        same = np.asarray(same, np.float64)
        found[INTERPOLATION] = np.where(np.isfinite(same), same * (1 - 1e-6), np.inf)  # below it, not at it
    if unnoticed is not None:
        found[PERCEPTION] = np.asarray(unnoticed, np.float64)
    return found


def own(found: Mapping[str, Array]) -> tuple[Array, Array]:
    """Each sample's own budget (n,), and the name of the condition that limits it (n,)."""
    names, table = list(found), np.stack(list(found.values()))
    at = table.argmin(0)
    return table.min(0), np.array(names, dtype=object)[at]


def common(found: Mapping[str, Array], allow: float = ALLOW, whole: bool = False) -> Budget:
    """One eps for all samples: no condition may break on more than the share `allow` of them.

    Args:
        found: limits, from `limits`.
        allow: 0 to 1; 0 means that every sample must keep every condition.
        whole: whether budgets are whole numbers (L0).
    """
    least, reason = math.inf, ""
    for name, limit in found.items():
        if len(limit):
            reached = float(np.sort(limit)[min(math.floor(allow * len(limit) + 1e-9), len(limit) - 1)])
            if reached < least:
                least, reason = reached, name
    return Budget(round_down(least, whole=whole), reason)


def round_down(eps: float, digits: int = 3, *, whole: bool = False) -> float:
    """`eps` with so many significant digits, never more than it was; to a whole number for L0."""
    if not math.isfinite(eps) or eps <= 0:
        return max(eps, 0.0)
    if whole:
        return float(math.floor(eps))
    unit = 10.0 ** (math.floor(math.log10(eps)) - digits + 1)
    rounded = float(f"{math.floor(eps / unit) * unit:.{digits}g}")
    return rounded if rounded <= eps else float(f"{(math.floor(eps / unit) - 1) * unit:.{digits}g}")


def budgets(found: Mapping[str, Array], labels: Array, by: str, allow: float = ALLOW, whole: bool = False) -> Array:
    """(n,) float64 what an audit allows each sample: its own budget, that of its class, or that of all.

    Args:
        found: limits, from `limits`.
        labels: (n,) int64.
        by: sample, class or set.
        allow: for class and set, the share of samples on which a condition may break.
        whole: whether budgets are whole numbers (L0).

    Raises:
        ValueError: another word for `by`.
    """
    if by == "sample":
        each = own(found)[0]
        return np.floor(each) if whole else each
    if by == "set":
        return np.full(len(labels), common(found, allow, whole).eps)
    if by != "class":
        raise ValueError(f"by is {by!r}; it is sample, class or set")
    eps = np.empty(len(labels))
    for label in np.unique(labels):
        mine = labels == label
        eps[mine] = common({name: limit[mine] for name, limit in found.items()}, allow, whole).eps
    return eps


def shares(found: Mapping[str, Array], eps: float) -> dict[str, float]:
    """The share of the samples on which a budget breaks each condition, and any of them."""
    broken = {name: eps > limit for name, limit in found.items()}
    any_of = np.logical_or.reduce(list(broken.values()))
    return {name: float(which.mean()) for name, which in broken.items()} | {"any": float(any_of.mean())}


def chosen(found: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The limits of some conditions."""
    return {name: found[name] for name in CONDITIONS if name in names and name in found}
