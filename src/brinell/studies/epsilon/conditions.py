"""Conditions of a sound budget: no allowed change reaches another class or another sample of the class, and none is noticed.

Each condition limits eps for each sample; the smallest limit is the budget of the sample. At half the distance to the nearest
sample of another class, the balls around samples of two classes do not meet, so a classifier can be right on all of both balls
(Yang et al. 2020, A closer look at accuracy vs. robustness, section 3). Pure functions on arrays.
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
    """An eps and the condition that limits it."""

    eps: float
    """Infinite without a limit."""
    reason: str
    """The condition that breaks first; empty without a limit."""


def limits(
    *,
    other_class: Array | None = None,
    same_class: Array | None = None,
    unnoticed: Array | None = None,
    fraction: float = FRACTION,
) -> dict[str, Array]:
    """Largest eps (n,) that keeps each condition, for each sample; infinite without a limit.

    Args:
        other_class: (n,) distance to the nearest sample of another class.
        same_class: (n,) distance to the nearest different sample of the same class.
        unnoticed: (n,) largest eps whose change goes unnoticed.
        fraction: fraction of `other_class` that eps may reach, 0 to 1.
    """
    eps_limits: dict[str, Array] = {}
    if other_class is not None:
        eps_limits[LABEL] = fraction * np.asarray(other_class, np.float64)
    if same_class is not None:
        same_class = np.asarray(same_class, np.float64)
        eps_limits[INTERPOLATION] = np.where(
            np.isfinite(same_class), same_class * (1 - 1e-6), np.inf
        )  # strictly below the distance
    if unnoticed is not None:
        eps_limits[PERCEPTION] = np.asarray(unnoticed, np.float64)
    return eps_limits


def sample_budgets(limits: Mapping[str, Array]) -> tuple[Array, Array]:
    """Budget (n,) of each sample, and the name (n,) of the condition that limits it."""
    names, table = list(limits), np.stack(list(limits.values()))
    index = table.argmin(0)
    return table.min(0), np.array(names, dtype=object)[index]


def common_budget(limits: Mapping[str, Array], allow: float = ALLOW, integer: bool = False) -> Budget:
    """Largest common eps for all samples: no condition breaks on more than the share `allow` of the samples.

    Args:
        limits: limits by condition, from `limits`.
        allow: 0 to 1; 0 means that every sample must keep every condition.
        integer: True for budgets that are integers (L0).
    """
    smallest, reason = math.inf, ""
    for name, limit in limits.items():
        if len(limit):
            allowed = float(np.sort(limit)[min(math.floor(allow * len(limit) + 1e-9), len(limit) - 1)])
            if allowed < smallest:
                smallest, reason = allowed, name
    return Budget(round_down(smallest, integer=integer), reason)


def round_down(eps: float, digits: int = 3, *, integer: bool = False) -> float:
    """Round eps down to a number of significant digits, or to an integer."""
    if not math.isfinite(eps) or eps <= 0:
        return max(eps, 0.0)
    if integer:
        return float(math.floor(eps))
    unit = 10.0 ** (math.floor(math.log10(eps)) - digits + 1)
    rounded = float(f"{math.floor(eps / unit) * unit:.{digits}g}")
    return rounded if rounded <= eps else float(f"{(math.floor(eps / unit) - 1) * unit:.{digits}g}")


def budgets(limits: Mapping[str, Array], labels: Array, by: str, allow: float = ALLOW, integer: bool = False) -> Array:
    """Budget (n,) float64 of each sample in an audit: of the sample, of its class, or of the data set.

    Args:
        limits: limits by condition, from `limits`.
        labels: (n,) int64.
        by: sample, class or set.
        allow: for class and set, the share of samples on which a condition may break.
        integer: True for budgets that are integers (L0).

    Raises:
        ValueError: `by` is not sample, class or set.
    """
    if by == "sample":
        values = sample_budgets(limits)[0]
        return np.floor(values) if integer else values
    if by == "set":
        return np.full(len(labels), common_budget(limits, allow, integer).eps)
    if by != "class":
        raise ValueError(f"by is {by!r}; it is sample, class or set")
    eps = np.empty(len(labels))
    for label in np.unique(labels):
        members = labels == label
        eps[members] = common_budget({name: limit[members] for name, limit in limits.items()}, allow, integer).eps
    return eps


def broken_shares(limits: Mapping[str, Array], eps: float) -> dict[str, float]:
    """Share of the samples on which a budget breaks each condition, and any condition."""
    broken = {name: eps > limit for name, limit in limits.items()}
    any_of = np.logical_or.reduce(list(broken.values()))
    return {name: float(mask.mean()) for name, mask in broken.items()} | {"any": float(any_of.mean())}


def select_limits(limits: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Limits of the named conditions, in the order of `CONDITIONS`."""
    return {name: limits[name] for name in CONDITIONS if name in names and name in limits}
