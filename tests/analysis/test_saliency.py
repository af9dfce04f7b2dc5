"""Measures of maps by examples small enough to be worked by hand, and by what holds for any map."""

import numpy as np
import pytest

from brinell.analysis import saliency

MAP = np.array([[0.9, 0.8, 0.1], [0.7, 0.2, 0.3], [0.0, 0.4, 0.6]])
TRUTH = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=np.uint8)


def test_equal_area_by_hand():
    # The four largest are 0.9, 0.8, 0.7, 0.6: three of them on the object of four.
    dice, iou = saliency.at_equal_area(MAP, TRUTH)
    assert dice == pytest.approx(3 / 4) and iou == pytest.approx(3 / 5)


def test_pointing_by_hand():
    assert saliency.pointing(MAP, TRUTH) and not saliency.pointing(-MAP, TRUTH)


def test_ignored_places_count_neither_way():
    truth = TRUTH.copy()
    truth[1, 0] = saliency.IGNORED  # the 0.7 off the object
    assert saliency.at_equal_area(MAP, truth) == (pytest.approx(3 / 4), pytest.approx(3 / 5))
    truth[1, 1] = saliency.IGNORED  # the 0.2 on the object
    assert saliency.at_equal_area(MAP, truth) == (1.0, 1.0)
    loud = MAP.copy()
    loud[1, 0] = 100.0
    assert saliency.pointing(loud, truth)


def test_a_mask_is_perfect_for_itself_and_its_opposite_is_not():
    assert saliency.at_equal_area(TRUTH.astype(float), TRUTH) == (1.0, 1.0)
    assert saliency.at_equal_area(1.0 - TRUTH, TRUTH)[0] == 0.0
    assert saliency.at_equal_area(np.zeros(4), np.zeros(4, np.uint8)) == (0.0, 0.0)


def test_only_ranks_count():
    curved = np.exp(5 * MAP) - 3
    assert saliency.at_equal_area(curved, TRUTH) == saliency.at_equal_area(MAP, TRUTH)
    assert saliency.pointing(curved, TRUTH) == saliency.pointing(MAP, TRUTH)


def test_ties_go_by_place():
    assert saliency.largest(np.array([1.0, 2.0, 1.0, 1.0]), 3).tolist() == [True, True, True, False]
    assert saliency.largest(np.zeros((2, 2)), 0).sum() == 0


def test_the_area_under_a_curve():
    assert saliency.area_under(np.array([0.0, 1.0, 1.0])) == pytest.approx(0.75)
