"""Thresholds of yes-or-no answers: the size at which people notice a change.

The probability of a "yes, it changed" to a change of size x > 0 is

    P(yes | x) = f + (1 - f - l) * F((log x - m) / s),    F logistic,

with the false-alarm rate f (a yes to a pair that is equal), the lapse rate l (a no to what cannot
be overlooked), the threshold exp(m), at which half of the changes are noticed once false alarms are
taken out, and the width s. All four are inferred together on a grid (Schuett, Harmeling, Macke &
Wichmann 2016, Painfree and accurate Bayesian estimation of psychometric functions, Vision Research
122): thresholds are medians of the posterior with central 95 % intervals, which stay honest where
answers are few.

Deviations: the logistic function of log x in place of the cumulative Gaussian (they differ by at
most 0.01 once scaled); no over-dispersion, since a person sees each pair once; catch trials (x = 0)
enter the likelihood and so determine f.
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


class Threshold(Result):
    """The threshold of a group of answers."""

    n: int
    """Answers to changed pairs."""
    noticed: int
    threshold: float | None
    """Size at which half of the changes are noticed, corrected for false alarms; null if it is
    outside the sizes shown."""
    low: float | None
    """Lower end of the 95 % interval; null if it is below all sizes shown."""
    high: float | None
    """Upper end; null if it is above all sizes shown."""

    @property
    def size(self) -> float | None:
        """The threshold, or its lower limit if fewer than half of the largest changes
        are noticed.
        """
        return self.threshold or self.low

    def cell(self) -> Detail:
        """The threshold with its interval, for a table."""
        if self.low is None:
            text = "too few answers" if self.high is None else f"at most {short(self.high)}"
        else:
            text = f"at least {short(self.low)}" if self.high is None else ""
        return Detail(Measure(self.threshold, self.low, self.high), text)


def fit(sizes: Sequence[float] | Array, noticed: Sequence[bool] | Array) -> Threshold | None:
    """The threshold of some answers; None without answers to changed pairs.

    Args:
        sizes: (n,) sizes of the changes, 0 for a catch trial, in any unit.
        noticed: (n,) bool: the person noticed a difference.

    Raises:
        ValueError: lengths that differ, a size that is negative or not finite.
    """
    x = np.asarray(sizes, np.float64)
    yes = np.asarray(noticed, bool)
    if x.shape != yes.shape or not (np.isfinite(x) & (x >= 0)).all():
        raise ValueError(
            f"{x.shape} sizes for {yes.shape} answers: they must be as many, "
            "finite and not negative"
        )

    changed = x > 0
    if not changed.any():
        return None
    first = np.log(x[changed].min())
    last = np.log(x[changed].max())
    thresholds = np.linspace(first - np.log(RANGE_FACTOR), last + np.log(RANGE_FACTOR), POINTS)
    threshold, width, alarm, lapse = np.ix_(thresholds, WIDTHS, FALSE_ALARMS, LAPSES)

    # The prior is flat in log x. Careful people are likelier than careless ones: a third of the
    # weight at a false-alarm rate of 0.3 and a lapse rate of 0.05.
    log = -alarm / 0.27 - lapse / 0.045
    for size in np.unique(x):
        visible = expit((np.log(size) - threshold) / width) if size else 0.0
        share = alarm + (1 - alarm - lapse) * visible
        answers = yes[x == size]
        log = log + xlogy(answers.sum(), share) + xlog1py((~answers).sum(), -share)

    # The other parameters are integrated out; the density of the threshold is linear between the
    # points of its grid, so that its area between two of them is that of a trapezium.
    density = np.exp(log - log.max()).sum((1, 2, 3))
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    low, median, high = np.interp(
        np.array([0.025, 0.5, 0.975]) * area[-1], area, thresholds
    ).tolist()

    # Beyond the sizes that were shown an end is a guess of the prior.
    return Threshold(
        n=int(changed.sum()),
        noticed=int(yes[changed].sum()),
        threshold=float(np.exp(median)) if first <= median <= last else None,
        low=float(np.exp(low)) if low >= first else None,
        high=float(np.exp(high)) if high <= last else None,
    )
