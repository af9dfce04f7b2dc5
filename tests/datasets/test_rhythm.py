"""Intervals around a beat: worked by hand, and invalid rhythms."""

import numpy as np
import pytest

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets._rhythm import INTERVALS, LONGEST, rhythm, with_rhythm

NONE = np.nan


def test_a_small_recording_by_hand():
    """Beats at 0, 0.8, 1.2, 2.4 and 3.2 s, the third early and followed by a pause; of another
    recording two beats, 9 s apart.
    """
    before = np.array([NONE, 0.8, NONE, 0.4, 1.2, 9.0, 0.8])
    after = np.array([0.8, 0.4, 9.0, 1.2, 0.8, NONE, NONE])
    intervals = rhythm(before, after, np.array([1, 1, 2, 1, 1, 2, 1]))
    # The intervals of the first, each seen from both of its ends: 0.4 and 0.8 and 0.8 and 1.2,
    # twice.
    expected = [
        [0.8, 0.8, 0.8],
        [0.8, 0.4, 0.8],
        [5, 5, 5],
        [0.4, 1.2, 0.8],
        [1.2, 0.8, 0.8],
        [5, 5, 5],
        [0.8, 0.8, 0.8],
    ]
    assert (
        intervals.dtype == np.float32
        and intervals.tolist() == [pytest.approx(row) for row in expected]
        and LONGEST == 5
    )


def test_what_is_no_rhythm():
    unit_intervals = np.ones(3)
    with pytest.raises(
        RequestError, match="intervals of e.npz holds 0; intervals are seconds above 0"
    ):
        rhythm(unit_intervals, unit_intervals * [1, 0, 1], unit_intervals, "intervals of e.npz")
    with pytest.raises(RequestError, match="types float64 and <U1; intervals are seconds"):
        rhythm(unit_intervals, np.array(["a", "b", "c"]), unit_intervals)
    with pytest.raises(RequestError, match="no interval of b: leave it out"):
        rhythm(np.array([1, NONE, 1]), np.array([1, NONE, 1]), np.array(["a", "b", "a"]))
    for after in (np.ones(2), np.ones((3, 1))):
        with pytest.raises(RequestError, match="3 beats need an interval each"):
            rhythm(unit_intervals if after.ndim == 1 else after, after, unit_intervals)


def test_the_domain_holds_the_leads_alone_open():
    domain = with_rhythm(
        Domain(kind="signal", shape=(2, 9), low=-5.0, high=(5.0, 4.0), levels=11), ("I", "V1")
    )
    assert (
        domain.shape == (5, 9)
        and domain.low == (-5, -5, 0, 0, 0)
        and domain.high == (5, 4, 5, 5, 5)
    )
    assert [column.name for column in domain.columns] == [
        "I",
        "V1",
        *INTERVALS,
    ] and domain.movable.tolist() == [0, 1]
    assert domain.free.shape == (2, 9) and (domain.free.low, domain.free.high) == (-5, (5, 4))
    assert [column.name for column in with_rhythm(Domain(kind="signal", shape=(1, 9))).columns][
        0
    ] == "channel 1"
