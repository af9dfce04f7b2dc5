"""How large a change must be before a person notices it: psychometric curves fitted to yes-or-no answers.

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

BEYOND = 8.0
"""Thresholds are looked for from the smallest size shown, divided by this, to the largest, times this."""
WIDTHS = np.geomspace(0.05, 1.5, 12)
"""Widths s, in units of log x: from a step to a curve that takes two decades from 10 to 90 %."""
FALSE_ALARMS = np.linspace(0.0, 0.6, 19)
LAPSES = np.linspace(0.0, 0.1, 4)
POINTS = 97
"""Thresholds on the grid."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a group of answers says about the size at which changes are noticed."""

    n: int
    """Answers to changed pairs."""
    noticed: int
    """Of these, how many said that it changed."""
    catch: int
    """Answers to equal pairs."""
    false_alarms: int
    """Of these, how many said that it changed."""
    threshold: float | None
    """Size at which half of the changes are noticed, false alarms taken out; None where the answers do not reach it."""
    low: float | None
    """Lower end of its 95 % interval; None where it lies below everything that was shown."""
    high: float | None
    """Upper end; None where it lies above everything that was shown."""
    sizes: Array
    """(k,) sizes at which the curve is drawn."""
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
        noticed: (n,) whether the answer was that it changed.
        points: at how many sizes the curve is evaluated.

    Returns:
        The curve; None where no changed pair was answered.

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
    levels, of = np.unique(x[changed], return_inverse=True)
    n = np.bincount(of)
    k = np.bincount(of, weights=yes[changed])
    catch, false_alarms = int((~changed).sum()), int(yes[~changed].sum())
    thresholds = np.linspace(np.log(levels[0] / BEYOND), np.log(levels[-1] * BEYOND), POINTS)
    posterior = _posterior(np.log(levels), n, k, thresholds, catch, false_alarms)
    low, middle, high = _quantiles(thresholds, posterior.sum((1, 2, 3)), (0.025, 0.5, 0.975))
    at = np.geomspace(levels[0], levels[-1], points) if len(levels) > 1 else levels
    mean, bottom, top = _band(np.log(at), thresholds, posterior)
    first, last = np.log(levels[0]), np.log(levels[-1])
    return Curve(
        n=int(n.sum()),
        noticed=int(k.sum()),
        catch=catch,
        false_alarms=false_alarms,
        threshold=float(np.exp(middle)) if first <= middle <= last else None,
        low=float(np.exp(low)) if low >= first else None,
        high=float(np.exp(high)) if high <= last else None,
        sizes=at,
        probability=mean,
        probability_low=bottom,
        probability_high=top,
    )


def _psi(log_x: Array, thresholds: Array) -> Array:
    """(levels, thresholds, widths) share of the changes that are noticed, false alarms and lapses aside."""
    z = (log_x[:, None, None] - thresholds[None, :, None]) / WIDTHS[None, None, :]
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -500, 500))))


def _posterior(log_x: Array, n: Array, k: Array, thresholds: Array, catch: int, false_alarms: int) -> Array:
    """(thresholds, widths, false alarms, lapses) posterior probabilities; the prior is flat in log x and falls with f and l."""
    alarm, lapse = FALSE_ALARMS[:, None], LAPSES[None, :]
    # Careful people are likelier than careless ones: a third of the weight at a false-alarm rate of 0.3 and a lapse rate of 0.05.
    log = np.broadcast_to(-alarm / 0.27 - lapse / 0.045, (len(thresholds), len(WIDTHS), len(FALSE_ALARMS), len(LAPSES))).copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        for hits, count, psi in zip(k, n, _psi(log_x, thresholds), strict=True):
            yes = alarm + (1 - alarm - lapse) * psi[..., None, None]
            log += _times(hits, np.log(yes)) + _times(count - hits, np.log1p(-yes))
        log += _times(false_alarms, np.log(alarm)) + _times(catch - false_alarms, np.log1p(-alarm))
    posterior = np.exp(log - log.max())
    return np.asarray(posterior / posterior.sum())


def _times(count: float, log: Array) -> Array:
    """Count * log, with 0 * -inf = 0."""
    return count * log if count else np.zeros_like(log)


def _quantiles(values: Array, weights: Array, shares: Sequence[float]) -> list[float]:
    """Quantiles of a density on an even grid, linear between its points."""
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
        held = np.histogram(yes, bins=200, range=(0, 1), weights=weight)[0].cumsum()
        low.append(float(np.searchsorted(held, 0.025)) / 200)
        high.append(float(np.searchsorted(held, 0.975) + 1) / 200)
    return np.array(mean), np.minimum(low, mean), np.maximum(high, mean)
