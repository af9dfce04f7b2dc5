"""Intervals between heartbeats as further channels of a signal, which no attack may change.

Premature beats of the atria look like all others; only their timing distinguishes them, and a
window of one beat does not contain it. So a beat may get three numbers: the seconds since the
previous beat, the seconds until the next one, and the median of all intervals of its recording,
with which the first two are compared. The median needs no labels.

After de Chazal, O'Dwyer & Reilly 2004, Automatic classification of heartbeats using ECG morphology
and heartbeat interval features. Deviations: the median of a recording replaces its mean, which a
few pauses shift; the mean over the ten surrounding beats is left out, since data sets may hold only
some beats of a recording.
"""

from dataclasses import replace

import numpy as np

from brinell.core.domain import Column, Domain
from brinell.core.errors import RequestError
from brinell.datasets._arrays import Array

INTERVALS = (
    "seconds since the beat before",
    "seconds until the beat after",
    "median seconds between beats",
)
LONGEST = 5.0
"""Maximum interval in seconds; longer intervals are gaps between annotations, and are cut to
this."""


def rhythm(
    before: Array, after: Array, groups: Array, subject: str = "the array of intervals"
) -> Array:
    """(n, 3) float32, seconds: the two intervals of each beat, and the median of its recording.

    Args:
        before: (n,) seconds since the previous beat; NaN if there is none, replaced by the median.
        after: (n,) seconds until the next beat, likewise.
        groups: (n,) recording of each beat.
    """
    if {before.dtype.kind, after.dtype.kind} - set("iuf"):
        raise RequestError(
            f"{subject} has types {before.dtype} and {after.dtype}; intervals are seconds above 0"
        )
    if not before.shape == after.shape == (len(groups),):
        raise RequestError(
            f"{subject} has shapes {before.shape} and {after.shape}; "
            f"{len(groups)} beats need an interval each"
        )
    intervals = np.stack([before.astype(np.float64), after.astype(np.float64)], 1)
    if not bool((np.isnan(intervals) | (intervals > 0)).all()):
        raise RequestError(
            f"{subject} holds {np.nanmin(intervals):g}; intervals are "
            "seconds above 0, NaN where there is none"
        )

    rhythms = np.empty((len(groups), 3))
    for group in np.unique(groups):
        rows = groups == group
        known_intervals = intervals[rows][~np.isnan(intervals[rows])]
        if not len(known_intervals):
            raise RequestError(
                f"{subject} holds no interval of {group}: leave it out, or go without a rhythm"
            )
        rhythms[rows, 2] = np.median(known_intervals)
    # The first and the last beat of a recording lack an interval: its median stands for it.
    rhythms[:, :2] = np.where(np.isnan(intervals), rhythms[:, 2:], intervals)
    return np.minimum(rhythms, LONGEST).astype(np.float32)


def with_rhythm(domain: Domain, leads: tuple[str, ...] = ()) -> Domain:
    """The domain of signals (C, T) with three more channels in seconds, which no attack changes."""
    channels = domain.shape[0]
    names = (
        leads
        if len(leads) == channels
        else tuple(f"channel {number + 1}" for number in range(channels))
    )

    # The bounds of each channel, with those of the intervals behind.
    low = (
        *(domain.low if isinstance(domain.low, tuple) else (domain.low,) * channels),
        *(0.0,) * len(INTERVALS),
    )
    high = (
        *(domain.high if isinstance(domain.high, tuple) else (domain.high,) * channels),
        *(LONGEST,) * len(INTERVALS),
    )

    columns = (*map(Column, names), *(Column(name, fixed=True) for name in INTERVALS))
    return replace(
        domain, shape=(len(columns), *domain.shape[1:]), low=low, high=high, columns=columns
    )
