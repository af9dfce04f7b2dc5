"""Conditions of a sound budget: no allowed change reaches another class or another sample of the class, and none is noticed.

Each condition limits eps for each sample; the smallest limit is the budget of the sample. At half the distance to the nearest
sample of another class, the balls around samples of two classes do not meet, so a classifier can be right on all of both balls
(Yang et al. 2020, A closer look at accuracy vs. robustness, section 3). Pure functions on arrays.
"""

import math
from collections.abc import Mapping

import numpy as np

from brinell.core.record import Array

LABEL = "label"
"""eps is at most half of the distance to the nearest sample of another class."""
INTERPOLATION = "interpolation"
"""eps is below the distance to the nearest different sample of the same class."""
PERCEPTION = "perception"
"""A change of eps goes unnoticed."""
CONDITIONS = (LABEL, INTERPOLATION, PERCEPTION)


def sample_budgets(limits: Mapping[str, Array]) -> Array:
    """Budget (n,) of each sample."""
    return np.asarray(np.stack(list(limits.values())).min(0))


def common_budget(limits: Mapping[str, Array], allow: float, integer: bool = False) -> tuple[float, str]:
    """Largest common eps for all samples, infinite without a limit, and the condition that breaks first above it.

    Each condition may break on the share `allow` of the samples, from 0 to 1. Budgets in L0 are integers.
    """
    smallest, reason = math.inf, ""
    for name, limit in limits.items():
        allowed = float(np.sort(limit)[min(math.floor(allow * len(limit) + 1e-9), len(limit) - 1)])
        if allowed < smallest:
            smallest, reason = allowed, name
    return round_down(smallest, integer=integer), reason


def round_down(eps: float, *, integer: bool = False) -> float:
    """Round eps down to three significant digits, or to an integer."""
    if not math.isfinite(eps) or eps <= 0:
        return max(eps, 0.0)
    if integer:
        return float(math.floor(eps))
    unit = 10.0 ** (math.floor(math.log10(eps)) - 2)
    rounded = float(f"{math.floor(eps / unit) * unit:.3g}")
    return rounded if rounded <= eps else float(f"{(math.floor(eps / unit) - 1) * unit:.3g}")


def budgets(limits: Mapping[str, Array], labels: Array, by: str, allow: float, integer: bool = False) -> Array:
    """Budget (n,) float64 of each sample in an audit: by sample, by class, or for the whole set."""
    if by == "sample":
        values = sample_budgets(limits)
        return np.floor(values) if integer else values
    eps, groups = np.empty(len(labels)), labels if by == "class" else np.zeros_like(labels)
    for group in np.unique(groups):
        members = groups == group
        eps[members], _ = common_budget({name: limit[members] for name, limit in limits.items()}, allow, integer)
    return eps
