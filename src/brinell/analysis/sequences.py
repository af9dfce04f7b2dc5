"""Confidence sequences: intervals that hold at every look, for whoever may stop before the end.

An interval for a fixed number of samples fails when somebody looks after each sample and stops at
the first look that pleases. Here a bettor stakes a share of his wealth on each sample against the
value that is tested. If the value is true, the wealth stays a fair game whatever the stakes are, so
with a probability of at most `error` it ever reaches 1 / `error` (Ville 1939). The interval holds
the values against which no bettor has become so rich (Waudby-Smith & Ramdas 2024, Estimating means
of bounded random variables by betting, sections 4 and 5).

The stakes are not adapted from sample to sample: the wealth is the mean over a fixed range of
constant stakes (Cover's universal portfolio, section 5.2 there with its bound by Orabona & Jun
2024). So it depends on how often each value occurred and not on their order, and a resumed run
says what an uninterrupted one says.

Deviation: the range ends at `MOST_DEVIATIONS`, and not where all is staked. Larger stakes win
against means so far away that smaller ones refute them within the first wave of an audit, too; each
stake among which the wealth is divided makes the others slower. At a distance of 0.2 from a
threshold of 0.5 an audit takes 59 samples in the mean, and with all stakes 64.

Samples count as independent draws of one population. Values are shares in [0, 1].
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss

from brinell.core.intervals import CONFIDENCE, Interval
from brinell.core.record import Array

STAKES = 48
"""Constant stakes over which the wealth is averaged."""
MOST_DEVIATIONS = 2 / 3
"""The largest stake is the best one if the true mean is so many standard deviations of a share from
the tested one, where about 16 samples decide."""
BISECTIONS = 40
"""Halvings by which an end of an interval is found: 1e-12 of its range."""

NODES, NODE_WEIGHTS = leggauss(STAKES)
STAKES_OF_LARGEST: Array = (NODES + 1) / 2
"""(stakes,): the stakes as shares of the largest one, from 0 to 1."""
LOG_WEIGHTS: Array = np.log(NODE_WEIGHTS / 2)
"""(stakes,): logarithms of their weights, which sum to 1."""

Decision = Literal["passes", "fails", "undecided"]


class ValueCounts(NamedTuple):
    """How often each value occurred; numbers or arrays of one shape."""

    zeros: Array | int
    halves: Array | int
    ones: Array | int

    def mirrored(self) -> "ValueCounts":
        """The counts of 1 - x in place of x."""
        return ValueCounts(self.ones, self.halves, self.zeros)


def stakes(mean: Array | float) -> Array:
    """(*shape, stakes): shares of the wealth that are staked against a mean (*shape) in (0, 1].

    A share f wins most if the true share is `mean` + f (1 - `mean`).
    """
    means = np.asarray(mean, dtype=np.float64)[..., None]
    with np.errstate(divide="ignore"):
        largest = np.minimum(1, MOST_DEVIATIONS * np.sqrt(means / (1 - means)))
    return np.asarray(largest * STAKES_OF_LARGEST)


def log_wealth(counts: ValueCounts, mean: Array | float) -> Array:
    """Logarithm of the wealth after betting that the true mean is above `mean`, from wealth 1.

    A stake f turns a wealth W into W (1 - f + f x / mean) at the value x, which is a fair game if
    the mean of x is `mean`. ValueCounts and `mean`, in (0, 1], are broadcast together.

    Returns:
        The shape of the counts, float64; it falls as `mean` grows.
    """
    means = np.asarray(mean, dtype=np.float64)[..., None]
    shares = stakes(mean)
    # Logarithms, since the wealth overflows after a few thousand samples.
    log_factors = {
        "zeros": np.log1p(-shares),
        "halves": np.log1p(shares * (0.5 / means - 1)),
        "ones": np.log1p(shares * (1 / means - 1)),
    }

    by_stake = LOG_WEIGHTS
    for value, factor in log_factors.items():
        count = np.asarray(getattr(counts, value), dtype=np.float64)[..., None]
        by_stake = by_stake + count * factor
    # The wealth is the mean over all stakes, each of which began with its share.
    return np.asarray(np.logaddexp.reduce(by_stake, axis=-1))


def lower_end(counts: ValueCounts, error: float) -> Array:
    """The largest mean below which every mean is refuted.

    `error` is the probability that the true mean is ever below it, over all looks. It is 0 where
    nothing is refuted.
    """
    # A mean is refuted as soon as betting against it has won 1 / error times the stake (Ville
    # 1939).
    limit = -math.log(error)
    shape = np.broadcast(*counts).shape
    low = np.zeros(shape)
    high = np.ones(shape)
    # The wealth against a mean falls as that mean rises, so bisection finds the end, for all at
    # once.
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        refuted = log_wealth(counts, middle) >= limit
        low = np.where(refuted, middle, low)
        high = np.where(refuted, high, middle)
    return low


def _interval(counts: ValueCounts, confidence: float) -> Interval:
    """The interval of the mean, whose ends share the error equally."""
    error = (1 - confidence) / 2
    low = float(lower_end(counts, error))
    # The upper end of the mean of x is where the lower one of 1 - x lies.
    high = 1 - float(lower_end(counts.mirrored(), error))
    return Interval(low, high)


def share_sequence(k: int, n: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of a share of which `k` of `n` samples were seen, valid at every look.

    None without samples. With probability `confidence` the intervals of all n hold together.
    """
    return _interval(ValueCounts(zeros=n - k, halves=0, ones=k), confidence) if n else None


def difference_sequence(
    only_a: int, only_b: int, n: int, confidence: float = CONFIDENCE
) -> Interval | None:
    """Interval of p_a - p_b on the same `n` samples, valid at every look.

    `only_a` and `only_b` count the samples that one alone got right. None without samples.
    """
    if not n:
        return None
    # A sample is worth 1 where A alone is right, 0 where B alone is, and a half where both agree.
    counts = ValueCounts(zeros=only_b, halves=n - only_a - only_b, ones=only_a)
    low, high = _interval(counts, confidence)
    return Interval(2 * low - 1, 2 * high - 1)


def decide(k: int, n: int, threshold: float, error: float = 0.025) -> Decision:
    """Whether a share is shown to be above or below a threshold after any number of samples.

    Somebody who asks after each sample, and stops once it is decided, is wrong with a probability
    of at most `error` on each side.
    """
    limit = -math.log(error)
    counts = ValueCounts(zeros=n - k, halves=0, ones=k)
    if threshold <= 0 or (threshold < 1 and log_wealth(counts, threshold) >= limit):
        return "passes"
    # To be below a threshold is to fail more often than 1 - threshold, which is bet on likewise.
    if threshold >= 1:
        return "fails" if k < n else "undecided"
    return "fails" if log_wealth(counts.mirrored(), 1 - threshold) >= limit else "undecided"
