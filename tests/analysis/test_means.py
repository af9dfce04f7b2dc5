"""Means with intervals and paired tests: known answers, and coverage where the truth is known."""

import numpy as np
import pytest

from brinell.analysis.stats import mean, sign_flips


def test_a_mean_of_one_value_has_no_width():
    found = mean(np.array([0.5, 0.5, 0.5, np.nan]))
    assert found is not None and found == (0.5, (0.5, 0.5), 3)
    assert mean(np.array([np.nan])) is None and mean(np.zeros(0)) is None


def test_the_interval_is_that_of_the_normal_distribution_for_many_values():
    values = np.random.default_rng(3).normal(2.0, 1.0, 400)
    found = mean(values)
    assert found is not None
    half = 1.96 * values.std() / 20
    assert found.interval.low == pytest.approx(found.value - half, abs=0.02)
    assert found.interval.high == pytest.approx(found.value + half, abs=0.02)


def test_values_of_one_group_are_one_observation():
    values = np.repeat([0.0, 1.0, 0.2, 0.9], 25)
    alone, together = mean(values), mean(values, np.repeat(["a", "b", "c", "d"], 25))
    assert alone is not None and together is not None
    assert alone.value == pytest.approx(0.525) and together.value == pytest.approx(0.525)
    width = [one.interval.high - one.interval.low for one in (alone, together)]
    assert width[1] > 3 * width[0]


def test_it_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        found = mean(rng.exponential(1.0, 40))
        assert found is not None
        hits += found.interval.low <= 1.0 <= found.interval.high
    assert 0.86 <= hits / 200 <= 0.99


def test_sign_flips_by_hand():
    # Of eight ways two are as far from 0: all as they are, and all turned.
    assert sign_flips(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / 8)
    assert sign_flips(np.array([1.0, -1.0])) == 1.0
    assert sign_flips(np.array([1.0, 1.0, 1.0, 1.0]), np.array(["a", "a", "b", "b"])) == pytest.approx(2 / 4)
    assert sign_flips(np.array([np.nan])) is None
    assert sign_flips(np.full(40, 0.3)) == pytest.approx(1 / 4000)
