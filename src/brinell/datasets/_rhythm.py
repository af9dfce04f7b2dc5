"""The intervals between beats beside the trace of one of them: further channels of a signal, which no attack may change.

Early beats of the upper chambers look like all others; what tells them is when they come, which a window of one beat does not
hold. So a beat may be given three numbers: the seconds since the beat before, the seconds until the one after, and the median of
all intervals of its recording, against which the first two are long or short. That median is known without any label.

After de Chazal, O'Dwyer & Reilly 2004, Automatic classification of heartbeats using ECG morphology and heartbeat interval
features. Deviations: the median of a recording in place of its mean, which a few pauses move; no mean over the ten beats around,
since data sets may hold some beats of a recording only.
"""

from dataclasses import replace

import numpy as np

from brinell.core.domain import Column, Domain
from brinell.core.errors import RequestError
from brinell.datasets._arrays import Array

INTERVALS = ("seconds since the beat before", "seconds until the beat after", "median seconds between beats")
LONGEST = 5.0
"""Seconds; longer intervals are gaps between annotations, and are cut to this."""


def rhythm(before: Array, after: Array, groups: Array, what: str = "the array of intervals") -> Array:
    """(n, 3) float32, seconds: each beat's own two intervals, and the median of all of its recording.

    Args:
        before: (n,) seconds since the beat before; NaN where there is none, which the median replaces.
        after: (n,) seconds until the beat after, likewise.
        groups: (n,) which recording each beat is of.
        what: how errors call the intervals.
    """
    if {before.dtype.kind, after.dtype.kind} - set("iuf"):
        raise RequestError(f"{what} has types {before.dtype} and {after.dtype}; intervals are seconds above 0")
    both = np.stack([np.asarray(one, dtype=np.float64) for one in (before, after)], 1) if before.shape == after.shape else None
    if both is None or both.shape != (len(groups), 2):
        raise RequestError(f"{what} has shapes {before.shape} and {after.shape}; {len(groups)} beats need an interval each")
    if not bool((np.isnan(both) | (both > 0)).all()):
        raise RequestError(f"{what} holds {np.nanmin(both):g}; intervals are seconds above 0, NaN where there is none")
    found = np.empty((len(groups), 3))
    for group in np.unique(groups):
        mine = groups == group
        known = both[mine][~np.isnan(both[mine])]
        if not len(known):
            raise RequestError(f"{what} holds no interval of {group}: leave it out, or go without a rhythm")
        found[mine, 2] = np.median(known)
    found[:, :2] = np.where(np.isnan(both), found[:, 2:], both)
    return np.minimum(found, LONGEST).astype(np.float32)


def with_rhythm(domain: Domain, leads: tuple[str, ...] = ()) -> Domain:
    """The domain of signals (C, T) with three more channels (C + 3, T), in seconds, that no attack may change."""
    channels = domain.shape[0]
    names = leads if len(leads) == channels else tuple(f"channel {number + 1}" for number in range(channels))
    low, high = (
        (*(bound if isinstance(bound, tuple) else (bound,) * channels), *(end,) * len(INTERVALS))
        for bound, end in ((domain.low, 0.0), (domain.high, LONGEST))
    )
    columns = (*map(Column, names), *(Column(name, fixed=True) for name in INTERVALS))
    return replace(domain, shape=(len(columns), *domain.shape[1:]), low=low, high=high, columns=columns)
