"""How many samples a verification draws, and what it misses, counted over random draws."""

import numpy as np
import pytest

from brinell.analysis.spot_checks import (
    MISSED,
    change_to_see,
    draws_to_see,
    miss_probability,
    most_earlier,
)
from brinell.core.intervals import wilson

RNG = np.random.default_rng(75)


@pytest.mark.parametrize("n", RNG.integers(8, 2000, 8).tolist())
def test_a_change_by_the_width_of_the_interval_is_found(n):
    robust = np.sort(RNG.integers(0, n + 1, 5))[::-1].tolist()
    change = change_to_see(robust, [n] * 5)
    assert 0 <= change <= max(robust)
    if not change:
        return
    widths = [n * np.diff(wilson(count, n))[0] for count in robust]
    fits = [count for count, width in zip(robust, widths, strict=True) if width <= count]
    if fits:
        low, high = wilson(fits[-1], n)
        assert change / n >= high - low > (change - 1) / n

    draws = draws_to_see(n, change)
    forged = np.zeros(n, bool)
    forged[RNG.choice(n, change, replace=False)] = True
    missed = [not forged[RNG.choice(n, draws, replace=False)].any() for _ in range(2000)]
    assert np.mean(missed) <= MISSED + 0.02
    assert miss_probability(n, draws - 1, change) > MISSED


def test_draws_are_those_that_the_reference_states():
    for n, robust, draws in ((59, 20, 11), (1000, 50, 101), (10_000, 5000, 151)):
        assert draws_to_see(n, change_to_see([n, robust], [n, n])) == draws


@pytest.mark.parametrize("turning", [0.0, 0.01, 0.1, 0.3])
def test_ten_forged_of_a_hundred_random_samples_are_found_or_nothing_is_decided(turning):
    samples, forged = 100, 10
    undecided = miss_probability(samples, samples, forged, turning) > MISSED
    hits = 0
    for _ in range(400):
        turned = round(turning * (samples - forged))
        earlier = forged + RNG.binomial(turned, 0.5)
        hits += earlier > most_earlier(forged + turned, MISSED)
    assert undecided or hits / 400 >= 0.95
    assert undecided == (turning >= 0.1)
