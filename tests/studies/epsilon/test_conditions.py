"""Limits computed by hand, and the conditions that a common eps may break."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brinell.studies.epsilon import conditions as c

OTHER_CLASS, SAME_CLASS = np.array([1.0, 2.0, 4.0, 0.0]), np.array([0.3, 3.0, np.inf, 1.0])


def test_limits_by_hand():
    limits = c.limits(other_class=OTHER_CLASS, same_class=SAME_CLASS, unnoticed=np.array([5.0, 0.4, 0.4, 0.4]), fraction=0.25)
    assert limits[c.LABEL].tolist() == [0.25, 0.5, 1, 0]
    assert limits[c.INTERPOLATION][0] < 0.3 and np.isinf(limits[c.INTERPOLATION][2])
    eps, reason = c.sample_budgets(limits)
    assert eps.tolist() == [0.25, 0.4, 0.4, 0]
    assert reason.tolist() == [c.LABEL, c.PERCEPTION, c.PERCEPTION, c.LABEL]


def test_a_common_eps_may_break_only_on_the_allowed_share():
    limits = {c.LABEL: np.arange(1.0, 101.0), c.PERCEPTION: np.full(100, 4.0)}
    assert c.common_budget(limits, allow=0.0) == (1.0, c.LABEL)
    assert c.common_budget(limits, allow=0.02) == (3.0, c.LABEL)
    assert c.common_budget(limits, allow=0.5) == (4.0, c.PERCEPTION)
    assert c.broken_shares(limits, 3.0) == {c.LABEL: 0.02, c.PERCEPTION: 0.0, "any": 0.02}
    assert c.broken_shares(limits, 4.5) == {c.LABEL: 0.04, c.PERCEPTION: 1.0, "any": 1.0}


def test_interpolation_breaks_at_the_distance_of_the_neighbour():
    limits = c.limits(same_class=np.array([0.5]))
    assert c.broken_shares(limits, 0.5)["any"] == 1 and c.broken_shares(limits, 0.4999)["any"] == 0


def test_budgets_by_sample_class_and_set():
    limits, labels = {c.LABEL: np.array([1.5, 2.5, 7.0, 8.0])}, np.array([0, 0, 1, 1])
    assert c.budgets(limits, labels, "sample").tolist() == [1.5, 2.5, 7, 8]
    assert c.budgets(limits, labels, "class").tolist() == [1.5, 1.5, 7, 7]
    assert c.budgets(limits, labels, "set").tolist() == [1.5] * 4
    assert c.budgets(limits, labels, "sample", integer=True).tolist() == [1, 2, 7, 8]
    with pytest.raises(ValueError, match="by is 'x'"):
        c.budgets(limits, labels, "x")


@given(st.floats(1e-9, 1e9))
def test_rounding_goes_down_by_little(eps):
    rounded = c.round_down(eps)
    assert eps * 0.989 <= rounded <= eps


def test_an_infinite_limit_is_no_limit():
    assert c.common_budget({c.LABEL: np.array([np.inf])}) == (np.inf, "")
    assert c.round_down(0.0) == 0 and c.round_down(2.9, integer=True) == 2
