"""Psychometric curves of yes-or-no answers: the size at which people notice a change.

The probability of a "yes, it changed" to a change of size x > 0 is

    P(yes | x) = f + (1 - f - l) * F((log x - m) / s),    F logistic,

with the false-alarm rate f (a yes to a pair that is equal), the lapse rate l (a no to what cannot be overlooked), the
threshold exp(m), at which half of the changes are noticed once false alarms are taken out, and the width s. All four are
inferred together on a grid (Schuett, Harmeling, Macke & Wichmann 2016, Painfree and accurate Bayesian estimation of
psychometric functions, Vision Research 122): thresholds are medians of the posterior with central 95 % intervals, which stay
honest where answers are few.

Deviations: the logistic function of log x in place of the cumulative Gaussian (they differ by at most 0.01 once scaled); no
over-dispersion, since a person sees each pair once; catch trials (x = 0) enter the likelihood and so determine f.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brinell.core.record import Array

RANGE_FACTOR = 8.0
"""The grid of thresholds extends the range of sizes shown by this factor at both ends."""
WIDTHS = np.geomspace(0.05, 1.5, 12)
"""Widths s, in units of log x: from a step to a curve that takes two decades from 10 to 90 %."""
FALSE_ALARMS = np.linspace(0.0, 0.6, 19)
LAPSES = np.linspace(0.0, 0.1, 4)
POINTS = 97
"""Number of thresholds on the grid."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Psychometric curve of a group of answers."""

    n: int
    """Answers to changed pairs."""
    noticed: int
    """Changed pairs that were judged to differ."""
    catch: int
    """Answers to equal pairs."""
    false_alarms: int
    """Equal pairs that were judged to differ."""
    threshold: float | None
    """Size at which half of the changes are noticed, corrected for false alarms; None if it is outside the sizes shown."""
    low: float | None
    """Lower end of its 95 % interval; None if it is below all sizes shown."""
    high: float | None
    """Upper end; None if it is above all sizes shown."""
    sizes: Array
    """(k,) sizes at which the curve is evaluated."""
    probability: Array
    """(k,) mean probability of a yes there."""
    probability_low: Array
    """(k,) lower end of its central 95 % interval."""
    probability_high: Array
    """(k,) upper end."""


def fit(sizes: Sequence[float] | Array, noticed: Sequence[bool] | Array, *, points: int = 41) -> Curve | None:
    """The psychometric curve of some answers.

    Args:
        sizes: (n,) sizes of the changes, 0 for a catch trial, in any unit.
        noticed: (n,) bool: the person noticed a difference.
        points: number of sizes at which the curve is evaluated.

    Returns:
        The curve; None without answers to changed pairs.

    Raises:
        ValueError: lengths that differ, a size that is negative or not finite.
    """
    x, yes = np.asarray(sizes, np.float64), np.asarray(noticed, bool)
    if x.shape != yes.shape or x.ndim != 1:
        raise ValueError(f"{x.shape} sizes for {yes.shape} answers")
    if not np.isfinite(x).all() or (x < 0).any():
        raise ValueError("sizes must be finite and not negative")
    changed = x > 0
    if not changed.any():
        return None
    levels, level_index = np.unique(x[changed], return_inverse=True)
    n = np.bincount(level_index)
    k = np.bincount(level_index, weights=yes[changed])
    catch, false_alarms = int((~changed).sum()), int(yes[~changed].sum())
    thresholds = np.linspace(np.log(levels[0] / RANGE_FACTOR), np.log(levels[-1] * RANGE_FACTOR), POINTS)
    posterior = _posterior(np.log(levels), n, k, thresholds, catch, false_alarms)
    low, median, high = _quantiles(thresholds, posterior.sum((1, 2, 3)), (0.025, 0.5, 0.975))
    curve_sizes = np.geomspace(levels[0], levels[-1], points) if len(levels) > 1 else levels
    mean, bottom, top = _band(np.log(curve_sizes), thresholds, posterior)
    first, last = np.log(levels[0]), np.log(levels[-1])
    return Curve(
        n=int(n.sum()),
        noticed=int(k.sum()),
        catch=catch,
        false_alarms=false_alarms,
        threshold=float(np.exp(median)) if first <= median <= last else None,
        low=float(np.exp(low)) if low >= first else None,
        high=float(np.exp(high)) if high <= last else None,
        sizes=curve_sizes,
        probability=mean,
        probability_low=bottom,
        probability_high=top,
    )


def _psi(log_x: Array, thresholds: Array) -> Array:
    """(levels, thresholds, widths) share of the changes that are noticed, without false alarms and lapses."""
    z = (log_x[:, None, None] - thresholds[None, :, None]) / WIDTHS[None, None, :]
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -500, 500))))


def _posterior(log_x: Array, n: Array, k: Array, thresholds: Array, catch: int, false_alarms: int) -> Array:
    """Posterior probabilities on the grid. The prior is flat in log x, and falls with the rates of false alarms and lapses.

    Args:
        log_x: (levels,) logarithms of the sizes.
        n: (levels,) answers at each size.
        k: (levels,) answers that noticed a difference.
        thresholds: (thresholds,) logarithms of the thresholds on the grid.
        catch: answers to equal pairs.
        false_alarms: those of them that noticed a difference.

    Returns:
        (thresholds, widths, false alarms, lapses) probabilities.
    """
    alarm, lapse = FALSE_ALARMS[:, None], LAPSES[None, :]
    # Careful people are likelier than careless ones: a third of the weight at a false-alarm rate of 0.3 and a lapse rate of 0.05.
    log = np.broadcast_to(-alarm / 0.27 - lapse / 0.045, (len(thresholds), len(WIDTHS), len(FALSE_ALARMS), len(LAPSES))).copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        for hits, count, psi in zip(k, n, _psi(log_x, thresholds), strict=True):
            yes = alarm + (1 - alarm - lapse) * psi[..., None, None]
            log += _weighted_log(hits, np.log(yes)) + _weighted_log(count - hits, np.log1p(-yes))
        log += _weighted_log(false_alarms, np.log(alarm)) + _weighted_log(catch - false_alarms, np.log1p(-alarm))
    posterior = np.exp(log - log.max())
    return np.asarray(posterior / posterior.sum())


def _weighted_log(count: float, log: Array) -> Array:
    """Count * log, with 0 * -inf = 0."""
    return count * log if count else np.zeros_like(log)


def _quantiles(values: Array, weights: Array, shares: Sequence[float]) -> list[float]:
    """Quantiles of a density on an even grid, with linear interpolation."""
    total = np.concatenate([[0.0], np.cumsum((weights[1:] + weights[:-1]) / 2)])
    return [float(np.interp(share * total[-1], total, values)) for share in shares]


def _band(log_x: Array, thresholds: Array, posterior: Array) -> tuple[Array, Array, Array]:
    """Mean and central 95 % interval of the probability of a yes at each size."""
    alarm, lapse = FALSE_ALARMS[:, None], LAPSES[None, :]
    weight = posterior.reshape(-1)
    mean, low, high = [], [], []
    for psi in _psi(log_x, thresholds):
        yes = (alarm + (1 - alarm - lapse) * psi[..., None, None]).reshape(-1)
        mean.append(float(yes @ weight))
        cumulative = np.histogram(yes, bins=200, range=(0, 1), weights=weight)[0].cumsum()
        low.append(float(np.searchsorted(cumulative, 0.025)) / 200)
        high.append(float(np.searchsorted(cumulative, 0.975) + 1) / 200)
    return np.array(mean), np.minimum(low, mean), np.maximum(high, mean)
