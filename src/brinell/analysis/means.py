"""Means over samples with intervals and p-values.

Samples of one group, such as frames of one video, count as one observation.

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

    # A proportion: Wilson's interval, of all values or of the effective number of samples.
    sums, counts = _by_group(values, groups)
    if len(sums) == estimate.n:
        return estimate._replace(interval=wilson(int(sums.sum()), estimate.n, confidence))
    spread = _spread(sums, counts)
    interval = _grouped_wilson(estimate, len(sums), spread, confidence)
    return estimate._replace(interval=interval)


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
    """(n,) float64 whose mean is the ratio of two sums, and whose spread is the ratio's.

    This is the Taylor linearisation.

    They are NaN everywhere if `below` has no weight.

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
    """Two-sided p-value of a sum of at most `EXACT_GROUPS` values (m,), by patterns of signs."""
    # The bits of each number up to 2**m are one pattern: the values whose bit is set are turned.
    patterns = np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums))
    signs = 1 - 2 * (patterns & 1)
    return float((np.abs(signs @ sums) >= abs(sums.sum()) * (1 - 1e-9)).mean())


def _by_group(values: Array, groups: Array | None) -> tuple[Array, Array]:
    """Sums and counts of the values of each group that has any."""
    present = ~np.isnan(values)
    if groups is None:
        index = np.arange(int(present.sum()))
    else:
        index = np.unique(groups[present], return_inverse=True)[1].ravel()
    return np.bincount(index, weights=values[present]), np.bincount(index)


def _spread(sums: Array, counts: Array) -> _Spread:
    """Sampling distribution of the mean of groups (m,)."""
    if len(sums) < 2:
        return _Spread(error=0.0, skew=0.0, dof=0.0, deviating=0)

    # Degrees of freedom by Bell & McCaffrey.
    total = counts.sum()
    shares = counts / total
    value = sums.sum() / total
    weights = counts * shares / (1 - shares)
    dof = float(total**2 / ((counts**2).sum() + weights.sum() ** 2 - (weights**2).sum()))

    # Groups that agree to twelve digits have the same mean.
    rounded = np.round(sums / counts / (abs(value) or 1.0), 12)
    _, repeats = np.unique(rounded, return_counts=True)
    deviating = int(len(sums) - repeats.max())

    # Residuals with the correction of CR2.
    deviations = (sums - counts * value) / np.sqrt(1 - shares) / total
    variance = float((deviations**2).sum()) if deviating else 0.0
    skew = float(((deviations / math.sqrt(variance)) ** 3).sum()) if variance else 0.0
    return _Spread(math.sqrt(variance), skew, dof, deviating)


def _interval(value: float, spread: _Spread, confidence: float) -> Interval:
    """The union of the t interval and of the one by Hall's transformation."""
    from scipy.special import stdtrit

    reach = float(stdtrit(spread.dof, (1 + confidence) / 2))
    deviations = (reach, -reach)
    ends = [*deviations, *(_untransform(deviation, spread.skew) for deviation in deviations)]
    return Interval(value - max(ends) * spread.error, value - min(ends) * spread.error)


def _transform(t: float, skew: float) -> float:
    """Hall's transformation of a studentised mean, which removes its skewness."""
    return t + skew * t * t / 3 + skew * skew * t**3 / 27 + skew / 6


def _untransform(t: float, skew: float) -> float:
    """The inverse of Hall's transformation."""
    if abs(skew) < 1e-9:
        return t
    return 3 / skew * (math.cbrt(1 + skew * (t - skew / 6)) - 1)


def _p_value(sums: Array, value: float, spread: _Spread) -> float:
    """The largest of the p-values by t, by Hall's transformation and, for few groups, by signs."""
    if len(sums) <= EXACT_GROUPS:
        exact = sign_flips(sums)
    else:
        # Equal sums have no spread: then only their signs say anything, and of all 2**n signs two
        # are as one-sided.
        exact = 0.0 if spread.error else 2.0 ** (1 - len(sums)) if value else 1.0
    if not spread.error:
        return exact
    from scipy.special import stdtr

    t = value / spread.error
    by_t = float(2 * stdtr(spread.dof, -abs(t)))
    by_hall = float(2 * stdtr(spread.dof, -abs(_transform(t, spread.skew))))
    # The largest: each of the three errs for some shape of the data, and none should claim too
    # much.
    return max(exact, by_t, by_hall)


def _grouped_wilson(
    estimate: Mean, groups: int, spread: _Spread, confidence: float
) -> Interval | None:
    """Wilson's interval of a proportion over groups; None if they are too few or one dominates."""
    if spread.dof < MIN_DOF - 1e-9:
        return None
    from scipy.special import stdtrit

    # Groups that all agree may be as alike inside as they can be: each counts as one sample.
    variance = estimate.value * (1 - estimate.value)
    effective = min(variance / spread.error**2, estimate.n) if spread.error else groups
    deviation = float(stdtrit(spread.dof, (1 + confidence) / 2))
    return score_interval(estimate.value, effective, deviation)
