"""Means over samples with intervals and p-values; samples of one group, such as frames of one
video, count as one observation.

The variance is the cluster-robust one with the correction of Bell & McCaffrey (2002, Bias reduction
in standard errors for linear regression with multi-stage samples), CR2, and the t distribution has
their degrees of freedom: one less than the number of groups of equal size, and fewer where sizes
differ. Measures are skewed, so the interval is the union of the t interval and of the one by Hall's
cubic transformation (1992, On the removal of skewness by transformation), and the p-value is the
larger of both. Below `MIN_DOF` degrees of freedom a mean has no interval: whether the groups
represent others is unknown.
"""

import math
from typing import NamedTuple

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval, score_interval, wilson
from brinell.core.record import Array

MIN_GROUPS = 6
"""Groups of equal size that an interval needs. With five, no order of signs has a p-value below
0.06."""
MIN_DOF = MIN_GROUPS - 1
"""Degrees of freedom that an interval needs."""
EXACT_GROUPS = 12
"""Number of groups up to which a p-value is also at least that of all sign patterns."""
MIN_DEVIATING = 3
"""Number of groups that must differ from the most common value: with fewer, the spread is not
known."""


class Mean(NamedTuple):
    """A mean with its interval."""

    value: float
    interval: Interval | None
    """None if it is unknown: fewer than `MIN_GROUPS` groups, one that dominates, or nearly equal
    values."""
    p: float
    """Two-sided p-value of the mean against 0."""
    n: int
    """Number of values."""


class _Spread(NamedTuple):
    """Sampling distribution of a mean."""

    error: float
    """Standard error; 0 if all groups have the same mean."""
    skew: float
    """Skewness of the mean."""
    dof: float
    """Degrees of freedom; 0 for one group."""
    deviating: int
    """Number of groups whose mean differs from the most common one."""

    @property
    def suffices(self) -> bool:
        """True if the groups suffice for an interval."""
        return self.dof > MIN_DOF - 1e-9 and self.deviating >= MIN_DEVIATING


def mean(values: Array, groups: Array | None = None, confidence: float = CONFIDENCE) -> Mean | None:
    """Mean of the values that are not NaN.

    Values that are all 0 or 1 are a proportion, with Wilson's interval; of groups, they count as
    the effective number of samples (Korn & Graubard 1998).

    Args:
        values: (n,) float64; NaN for a missing value.
        groups: (n,) group of each value. None makes each value its own group.
        confidence: of the interval, between 0 and 1.

    Returns:
        None without values.
    """
    present = values[~np.isnan(values)]
    estimate = mean_difference(values, groups, confidence)
    if estimate is None or not np.isin(present, (0.0, 1.0)).all():
        return estimate
    sums, counts = _by_group(values, groups)
    if len(sums) == estimate.n:
        return estimate._replace(interval=wilson(int(sums.sum()), estimate.n, confidence))
    return estimate._replace(
        interval=_grouped_wilson(estimate, len(sums), _spread(sums, counts), confidence)
    )


def mean_difference(
    differences: Array, groups: Array | None = None, confidence: float = CONFIDENCE
) -> Mean | None:
    """Mean of paired differences: as `mean`, but 0 and 1 are numbers like all others."""
    sums, counts = _by_group(differences, groups)
    if not len(sums):
        return None
    total = int(counts.sum())
    value = float(sums.sum() / total)
    spread = _spread(sums, counts)
    interval = _interval(value, spread, confidence) if spread.suffices else None
    return Mean(value, interval, _p_value(sums, value, spread), total)


def pseudo_values(above: Array, below: Array) -> Array:
    """(n,) float64 whose mean is the ratio of two sums over samples, and whose spread is the
    ratio's (Taylor linearisation).

    NaN everywhere if `below` has no weight.

    Args:
        above: (n,) contribution of each sample to the numerator.
        below: (n,) contribution to the denominator.
    """
    total = float(below.sum())
    if total == 0:
        return np.full(len(above), np.nan)
    ratio = float(above.sum()) / total
    return np.asarray(ratio + (above - ratio * below) * len(below) / total, dtype=np.float64)


def sign_flips(sums: Array) -> float:
    """Two-sided p-value of the sum of at most `EXACT_GROUPS` values (m,), if both signs of each are
    equally likely.
    """
    signs = 1 - 2 * ((np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums))) & 1)
    return float((np.abs(signs @ sums) >= abs(sums.sum()) * (1 - 1e-9)).mean())


def _by_group(values: Array, groups: Array | None) -> tuple[Array, Array]:
    """Sums and counts of the values of each group that has any."""
    present = ~np.isnan(values)
    of = (
        np.arange(int(present.sum()))
        if groups is None
        else np.unique(groups[present], return_inverse=True)[1].ravel()
    )
    counts = np.bincount(of)
    return np.bincount(of, weights=values[present]), counts


def _spread(sums: Array, counts: Array) -> _Spread:
    """Sampling distribution of the mean of groups (m,)."""
    if len(sums) < 2:
        return _Spread(0.0, 0.0, 0.0, 0)
    total = counts.sum()
    shares = counts / total
    value = sums.sum() / total
    weights = counts * shares / (1 - shares)
    dof = float(total**2 / ((counts**2).sum() + weights.sum() ** 2 - (weights**2).sum()))
    _, repeats = np.unique(np.round(sums / counts / (abs(value) or 1.0), 12), return_counts=True)
    deviating = int(len(sums) - repeats.max())
    deviations = (sums - counts * value) / np.sqrt(1 - shares) / total
    variance = float((deviations**2).sum()) if deviating else 0.0
    skew = float(((deviations / math.sqrt(variance)) ** 3).sum()) if variance else 0.0
    return _Spread(math.sqrt(variance), skew, dof, deviating)


def _interval(value: float, spread: _Spread, confidence: float) -> Interval:
    from scipy.special import stdtrit

    reach = float(stdtrit(spread.dof, (1 + confidence) / 2))
    ends = [
        end
        for deviation in (reach, -reach)
        for end in (deviation, _untransform(deviation, spread.skew))
    ]
    return Interval(value - max(ends) * spread.error, value - min(ends) * spread.error)


def _transform(t: float, skew: float) -> float:
    """Hall's transformation of a studentised mean, which removes its skewness."""
    return t + skew * t * t / 3 + skew * skew * t**3 / 27 + skew / 6


def _untransform(t: float, skew: float) -> float:
    return t if abs(skew) < 1e-9 else 3 / skew * (math.cbrt(1 + skew * (t - skew / 6)) - 1)


def _p_value(sums: Array, value: float, spread: _Spread) -> float:
    """The largest of the p-values by t, by Hall's transformation and, for few groups or equal ones,
    by sign flips.
    """
    if len(sums) <= EXACT_GROUPS:
        exact = sign_flips(sums)
    else:
        exact = 0.0 if spread.error else 2.0 ** (1 - len(sums)) if value else 1.0
    if not spread.error:
        return exact
    from scipy.special import stdtr

    t = value / spread.error
    return max(
        exact, *(float(2 * stdtr(spread.dof, -abs(x))) for x in (t, _transform(t, spread.skew)))
    )


def _grouped_wilson(
    estimate: Mean, groups: int, spread: _Spread, confidence: float
) -> Interval | None:
    """Wilson's interval of a proportion over groups; None if the groups are too few or one of them
    dominates.
    """
    if spread.dof < MIN_DOF - 1e-9:
        return None
    from scipy.special import stdtrit

    # Groups that all agree may be as alike inside as they can be: each counts as one sample.
    variance = estimate.value * (1 - estimate.value)
    effective = min(variance / spread.error**2, estimate.n) if spread.error else groups
    return score_interval(
        estimate.value, effective, float(stdtrit(spread.dof, (1 + confidence) / 2))
    )
