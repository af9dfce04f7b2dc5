"""Limits worked by hand, and what one eps for many may break."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brinell.studies.epsilon import conditions as c

OTHER, SAME = np.array([1.0, 2.0, 4.0, 0.0]), np.array([0.3, 3.0, np.inf, 1.0])


def test_limits_by_hand():
    found = c.limits(other=OTHER, same=SAME, unnoticed=np.array([5.0, 0.4, 0.4, 0.4]), fraction=0.25)
    assert found[c.LABEL].tolist() == [0.25, 0.5, 1, 0]
    assert found[c.INTERPOLATION][0] < 0.3 and np.isinf(found[c.INTERPOLATION][2])
    eps, reason = c.own(found)
    assert eps.tolist() == [0.25, 0.4, 0.4, 0]
    assert reason.tolist() == [c.LABEL, c.PERCEPTION, c.PERCEPTION, c.LABEL]


def test_one_eps_for_all_may_break_on_the_allowed_share_alone():
    found = {c.LABEL: np.arange(1.0, 101.0), c.PERCEPTION: np.full(100, 4.0)}
    assert c.common(found, allow=0.0) == (1.0, c.LABEL)
    assert c.common(found, allow=0.02) == (3.0, c.LABEL)
    assert c.common(found, allow=0.5) == (4.0, c.PERCEPTION)
    assert c.shares(found, 3.0) == {c.LABEL: 0.02, c.PERCEPTION: 0.0, "any": 0.02}
    assert c.shares(found, 4.5) == {c.LABEL: 0.04, c.PERCEPTION: 1.0, "any": 1.0}


def test_at_the_neighbour_itself_interpolation_is_broken():
    found = c.limits(same=np.array([0.5]))
    assert c.shares(found, 0.5)["any"] == 1 and c.shares(found, 0.4999)["any"] == 0


def test_budgets_by_sample_class_and_set():
    found, labels = {c.LABEL: np.array([1.5, 2.5, 7.0, 8.0])}, np.array([0, 0, 1, 1])
    assert c.budgets(found, labels, "sample").tolist() == [1.5, 2.5, 7, 8]
    assert c.budgets(found, labels, "class").tolist() == [1.5, 1.5, 7, 7]
    assert c.budgets(found, labels, "set").tolist() == [1.5] * 4
    assert c.budgets(found, labels, "sample", whole=True).tolist() == [1, 2, 7, 8]
    with pytest.raises(ValueError, match="by is 'x'"):
        c.budgets(found, labels, "x")


@given(st.floats(1e-9, 1e9))
def test_rounding_goes_down_and_not_far(eps):
    rounded = c.round_down(eps)
    assert eps * 0.989 <= rounded <= eps


def test_nothing_limits_nothing():
    assert c.common({c.LABEL: np.array([np.inf])}) == (np.inf, "")
    assert c.round_down(0.0) == 0 and c.round_down(2.9, whole=True) == 2
