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

import numpy as np
from scipy.special import expit, xlog1py, xlogy

from brinell.analysis.folder_result import Result
from brinell.core.record import Array
from brinell.reports.numbers import short
from brinell.reports.values import Detail, Measure

RANGE_FACTOR = 8.0
"""The grid of thresholds extends the range of sizes shown by this factor at both ends."""
WIDTHS = np.geomspace(0.05, 1.5, 12)
"""Widths s, in units of log x: from a step to a curve that takes two decades from 10 to 90 %."""
FALSE_ALARMS = np.linspace(0.0, 0.6, 19)
LAPSES = np.linspace(0.0, 0.1, 4)
POINTS = 97
"""Number of thresholds on the grid."""


class Point(Result):
    """A point of a fitted curve with its 95 % interval."""

    eps: float
    value: float
    low: float
    high: float


class Threshold(Result):
    """The threshold of a group of answers."""

    n: int
    """Answers to changed pairs."""
    noticed: int
    threshold: float | None
    """Size at which half of the changes are noticed, corrected for false alarms; null if it is outside the sizes shown."""
    low: float | None
    """Lower end of the 95 % interval; null if it is below all sizes shown."""
    high: float | None
    """Upper end; null if it is above all sizes shown."""
    curve: list[Point]
    """Share of pairs that are judged to differ, over the size of the change."""

    @property
    def size(self) -> float | None:
        """The threshold, or its lower limit if fewer than half of the largest changes are noticed."""
        return self.threshold or self.low

    def cell(self) -> Detail:
        """The threshold with its interval, for a table."""
        if self.low is None:
            text = "too few answers" if self.high is None else f"at most {short(self.high)}"
        else:
            text = f"at least {short(self.low)}" if self.high is None else ""
        return Detail(Measure(self.threshold, self.low, self.high), text)


def fit(sizes: Sequence[float] | Array, noticed: Sequence[bool] | Array, *, points: int = 41) -> Threshold | None:
    """The threshold and the psychometric curve of some answers; None without answers to changed pairs.

    Args:
        sizes: (n,) sizes of the changes, 0 for a catch trial, in any unit.
        noticed: (n,) bool: the person noticed a difference.
        points: number of sizes at which the curve is evaluated.

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
    n, k = np.bincount(level_index), np.bincount(level_index, weights=yes[changed])
    first, last = np.log(levels[0]), np.log(levels[-1])
    thresholds = np.linspace(first - np.log(RANGE_FACTOR), last + np.log(RANGE_FACTOR), POINTS)
    posterior = _posterior(np.log(levels), n, k, thresholds, int((~changed).sum()), int(yes[~changed].sum()))
    density = posterior.sum((1, 2, 3))
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])  # linear between the points of the grid
    low, median, high = np.interp(np.array([0.025, 0.5, 0.975]) * area[-1], area, thresholds).tolist()
    curve_sizes = np.geomspace(levels[0], levels[-1], points) if len(levels) > 1 else levels
    return Threshold(
        n=int(n.sum()),
        noticed=int(k.sum()),
        threshold=float(np.exp(median)) if first <= median <= last else None,
        low=float(np.exp(low)) if low >= first else None,
        high=float(np.exp(high)) if high <= last else None,
        curve=_band(curve_sizes, thresholds, posterior),
    )


def _psi(log_x: Array, thresholds: Array) -> Array:
    """(levels, thresholds, widths) share of the changes that are noticed, without false alarms and lapses."""
    return np.asarray(expit((log_x[:, None, None] - thresholds[None, :, None]) / WIDTHS[None, None, :]))


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
    for hits, count, psi in zip(k, n, _psi(log_x, thresholds), strict=True):
        yes = alarm + (1 - alarm - lapse) * psi[..., None, None]
        log += xlogy(hits, yes) + xlog1py(count - hits, -yes)
    log += xlogy(false_alarms, alarm) + xlog1py(catch - false_alarms, -alarm)
    posterior = np.exp(log - log.max())
    return np.asarray(posterior / posterior.sum())


def _band(sizes: Array, thresholds: Array, posterior: Array) -> list[Point]:
    """Mean and central 95 % interval of the probability of a yes at each size."""
    alarm, lapse = FALSE_ALARMS[:, None], LAPSES[None, :]
    weight, band = posterior.reshape(-1), []
    for size, psi in zip(sizes.tolist(), _psi(np.log(sizes), thresholds), strict=True):
        yes = (alarm + (1 - alarm - lapse) * psi[..., None, None]).reshape(-1)
        mean = float(yes @ weight)
        cumulative = np.histogram(yes, bins=200, range=(0, 1), weights=weight)[0].cumsum()
        low, high = np.searchsorted(cumulative, 0.025) / 200, (np.searchsorted(cumulative, 0.975) + 1) / 200
        band.append(Point(eps=size, value=mean, low=min(float(low), mean), high=max(float(high), mean)))
    return band
