"""Ratios of the means of paired values, with bootstrap intervals."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval

DRAWS = 4000
"""Bootstrap samples."""
MIN_PAIRS = 30
"""Pairs that an interval of a ratio needs: with fewer it would hold the truth in less than 93 % of cases."""


def ratio(
    above: np.ndarray[Any, Any], below: np.ndarray[Any, Any], centre: Callable[..., Any] = np.mean
) -> tuple[float, Interval | None]:
    """The means (or what `centre` says) of pairs of values, one over the other, with a bootstrap interval.

    The interval of means is studentised on the logarithm of the ratio (Efron & Tibshirani 1993, section 12.5), which covers
    skewed values; that of another centre holds the middle of the draws. None with fewer than `MIN_PAIRS` pairs, or if all
    pairs have one ratio.

    Args:
        above: (n,) values above 0, n at least 1, of which the ratio is.
        below: (n,) those of the same samples that it is to.
        centre: `np.mean` or `np.median`, which takes an `axis`.
    """
    value = float(centre(above) / centre(below))
    if len(above) < MIN_PAIRS or np.ptp(above / below) <= 1e-12 * value:
        return value, None
    resamples = np.random.default_rng(0).integers(len(above), size=(DRAWS, len(above)))
    shares = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    if centre is not np.mean:
        low, high = np.quantile(centre(above[resamples], axis=1) / centre(below[resamples], axis=1), shares)
        return value, Interval(float(low), float(high))
    logs, errors = _log_ratio(above[resamples], below[resamples])
    log, error = _log_ratio(above, below)
    low, high = np.quantile((logs - log) / np.maximum(errors, 1e-9 * error), shares)
    return value, Interval(float(np.exp(log - high * error)), float(np.exp(log - low * error)))


def ratio_text(value: float, interval: Interval | None) -> str:
    """A ratio with its interval."""
    return f"{value:.2f}" if interval is None else f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _log_ratio(above: np.ndarray[Any, Any], below: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """(...): logarithms of the ratios of means along the last axis, and their standard errors."""
    top, bottom = above.mean(-1, keepdims=True), below.mean(-1, keepdims=True)
    errors = (above / top - below / bottom).std(-1, ddof=1) / math.sqrt(above.shape[-1])
    return np.log(top / bottom)[..., 0], errors
