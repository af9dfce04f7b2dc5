"""Psychometric curves of simulated people with known thresholds, and of few or one-sided answers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.studies.review import psychometric
from brinell.studies.review.psychometric import fit


def answers(
    threshold, width, alarm, lapse, n, seed, levels=(0.02, 0.04, 0.08, 0.16, 0.32), catch=40
):
    """Simulate `n` answers at each level by the model of the curve."""
    rng = np.random.default_rng(seed)
    sizes = np.concatenate([np.repeat(levels, n), np.zeros(catch)])
    with np.errstate(divide="ignore"):
        probability = 1 / (1 + np.exp(-(np.log(sizes) - np.log(threshold)) / width))
    return sizes, rng.random(len(sizes)) < alarm + (1 - alarm - lapse) * probability


@pytest.mark.parametrize(("alarm", "lapse"), [(0.0, 0.0), (0.2, 0.05)])
def test_the_threshold_of_a_known_person(alarm, lapse):
    curve = fit(*answers(0.08, 0.3, alarm, lapse, 400, seed=0, catch=400))
    assert curve.threshold == pytest.approx(0.08, rel=0.1)
    assert curve.low < 0.08 < curve.high
    assert curve.high / curve.low < 1.5


def test_the_threshold_is_that_of_a_sum_over_the_grid(monkeypatch):
    """Against the model written out: every threshold, width, rate of false alarms and of lapses,
    with its weight.
    """
    monkeypatch.setattr(psychometric, "POINTS", 9)
    monkeypatch.setattr(psychometric, "WIDTHS", np.array([0.2, 0.6]))
    monkeypatch.setattr(psychometric, "FALSE_ALARMS", np.array([0.0, 0.1, 0.3]))
    monkeypatch.setattr(psychometric, "LAPSES", np.array([0.0, 0.05]))
    shown = {0.02: (1, 4), 0.05: (2, 5), 0.16: (5, 6), 0.0: (1, 7)}  # noticed, of answers
    sizes = np.concatenate([np.full(n, size) for size, (_, n) in shown.items()])
    noticed = np.concatenate([np.arange(n) < k for k, n in shown.values()])
    grid = np.linspace(np.log(0.02 / 8), np.log(0.16 * 8), 9)
    cells = list(itertools.product(grid, (0.2, 0.6), (0.0, 0.1, 0.3), (0.0, 0.05)))

    def yes(size, m, s, f, lapse):
        return f + (1 - f - lapse) / (1 + math.exp(-(math.log(size) - m) / s)) if size else f

    weights = np.array(
        [
            math.exp(-cell[2] / 0.27 - cell[3] / 0.045)
            * math.prod(
                yes(size, *cell) ** k * (1 - yes(size, *cell)) ** (n - k)
                for size, (k, n) in shown.items()
            )
            for cell in cells
        ]
    )
    weights /= weights.sum()
    curve = fit(sizes, noticed)
    density = np.array(
        [
            sum(weight for cell, weight in zip(cells, weights, strict=True) if cell[0] == m)
            for m in grid
        ]
    )
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    expected = [math.exp(np.interp(share * area[-1], area, grid)) for share in (0.025, 0.5, 0.975)]
    expected = [value if 0.02 <= value <= 0.16 else None for value in expected]
    for value, known in zip((curve.low, curve.threshold, curve.high), expected, strict=True):
        assert value == (None if known is None else pytest.approx(known, rel=1e-9))
    assert (curve.n, curve.noticed) == (15, 8)


@pytest.mark.slow
def test_intervals_hold_what_they_claim():
    """95 % intervals from 12 answers a level cover the truth in at least 53 of 60 experiments, and
    are not unbounded."""
    covered, widths = 0, []
    for seed in range(60):
        curve = fit(*answers(0.08, 0.35, 0.1, 0.02, 12, seed))
        low, high = curve.low or 0.02, curve.high or 0.32
        covered += low <= 0.08 <= high
        widths.append(high / low)
    assert covered >= 53
    assert np.median(widths) < 4


def test_false_alarms_are_taken_out():
    """A person who says yes to 40 % of equal pairs has the same threshold, not a lower one."""
    honest = fit(*answers(0.08, 0.3, 0.0, 0.0, 200, seed=1))
    jumpy = fit(*answers(0.08, 0.3, 0.4, 0.0, 200, seed=1, catch=200))
    assert jumpy.threshold == pytest.approx(honest.threshold, rel=0.25)


def test_nothing_noticed_has_no_threshold_and_no_upper_end():
    curve = fit([0.1] * 20 + [0.2] * 20, [False] * 40)
    assert curve.threshold is None and curve.high is None
    assert curve.noticed == 0 and curve.n == 40


def test_everything_noticed_has_no_lower_end():
    curve = fit([0.1] * 20 + [0.2] * 20 + [0.0] * 20, [True] * 40 + [False] * 20)
    assert curve.threshold is None and curve.low is None


def test_who_always_says_yes_tells_nothing():
    """With as many false alarms as hits, the interval stays open at both ends."""
    curve = fit([0.1] * 10 + [0.2] * 10 + [0.0] * 20, [True] * 40)
    assert curve.low is None or curve.high is None


def test_no_changed_pair_no_curve():
    assert fit([0.0, 0.0], [True, False]) is None


@pytest.mark.parametrize(
    ("sizes", "noticed"), [([0.1], [True, False]), ([-0.1], [True]), ([float("nan")], [True])]
)
def test_what_is_no_answer(sizes, noticed):
    with pytest.raises(ValueError):
        fit(sizes, noticed)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100), st.permutations(range(30)))
def test_the_unit_and_the_order_do_not_matter(seed, unit, order):
    sizes, noticed = answers(0.08, 0.3, 0.1, 0.0, 5, seed, catch=5)
    curve = fit(sizes, noticed)
    permuted = fit(sizes[list(order)] * unit, noticed[list(order)])
    if curve.threshold is None or permuted.threshold is None:
        assert curve.threshold == permuted.threshold
    else:
        assert permuted.threshold == pytest.approx(curve.threshold * unit, rel=1e-6)
