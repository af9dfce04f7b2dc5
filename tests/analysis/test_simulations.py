"""Intervals hold the truth, and sentences claim nothing where there is nothing, at the sizes that
the defaults use.

`python -m benchmarks.inference` prints the same figures with more repetitions;
docs/results/inference.md holds them.
"""

import pytest

from benchmarks.false_claims import MOST_ERRORS, errors
from benchmarks.inference import LIMITS, coverage

REPETITIONS = 2000


@pytest.mark.slow
@pytest.mark.nightly
def test_intervals_hold_the_truth_as_often_as_they_say():
    rows = coverage(REPETITIONS)
    low, high = LIMITS
    assert len(rows) > 25
    wrong = [
        row for row in rows if row.percent < low or (row.percent > high and not row.conservative)
    ]
    assert not wrong
    compared = [row for row in rows if row.percentile is not None]
    assert sum(row.percentile < low for row in compared) > len(compared) / 2, (
        "the percentile bootstrap fails the same test"
    )


@pytest.mark.slow
@pytest.mark.nightly
def test_sentences_claim_nothing_where_there_is_nothing():
    rows = errors(REPETITIONS)
    assert len(rows) > 15 and not [row for row in rows if row.percent > MOST_ERRORS]
