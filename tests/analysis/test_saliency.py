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


def test_best_threshold_by_hand():
    # In order 1 1 0 1 0 0 1 0 0: after 4 places 3 hits of 4 + 4 - 3, after 7 places 4 hits of 7.
    assert saliency.best_iou(MAP, TRUTH) == pytest.approx(3 / 5)
    assert saliency.best_iou(np.ones((3, 3)), TRUTH) == pytest.approx(4 / 9), "one value allows one threshold"


def test_pointing_and_energy_by_hand():
    assert saliency.pointing(MAP, TRUTH) and not saliency.pointing(-MAP, TRUTH)
    assert saliency.energy(MAP, TRUTH) == pytest.approx((0.9 + 0.8 + 0.2 + 0.6) / 4.0)
    assert saliency.energy(np.ones((3, 3)), TRUTH) == pytest.approx(4 / 9)


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
    assert saliency.best_iou(TRUTH.astype(float), TRUTH) == 1.0
    assert saliency.energy(TRUTH.astype(float), TRUTH) == 1.0
    assert saliency.at_equal_area(1.0 - TRUTH, TRUTH)[0] == 0.0
    assert saliency.overlap(np.zeros(4, bool), np.zeros(4, np.uint8)) == (0.0, 0.0)


def test_only_ranks_count():
    scores = saliency.at_equal_area(MAP, TRUTH), saliency.best_iou(MAP, TRUTH), saliency.pointing(MAP, TRUTH)
    curved = np.exp(5 * MAP) - 3
    assert (saliency.at_equal_area(curved, TRUTH), saliency.best_iou(curved, TRUTH), saliency.pointing(curved, TRUTH)) == scores


def test_ties_go_by_place():
    assert saliency.largest(np.array([1.0, 2.0, 1.0, 1.0]), 3).tolist() == [True, True, True, False]
    assert saliency.largest(np.zeros((2, 2)), 0).sum() == 0


def test_areas_and_shares():
    assert saliency.area_under(np.array([1.0, 0.5, 0.0])) == pytest.approx(0.5)
    assert saliency.area_under(np.array([1.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert saliency.first_share(np.array([False, False, True, False, True])) == 0.5
    assert saliency.first_share(np.array([False, False])) is None


def test_infidelity_by_hand():
    hidden = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    drops = np.array([2.0, 1.0, 3.0])
    assert saliency.infidelity(np.array([20.0, 10.0, 0.0]), hidden, drops) == pytest.approx(0), "another scale is no fault"
    # Predicted are 0, 1, 1: product with the drops 4, squares 2 and 14.
    assert saliency.infidelity(np.array([0.0, 1.0, 0.0]), hidden, drops) == pytest.approx(1 - 16 / 28)
    assert saliency.infidelity(np.zeros(3), hidden, drops) == 1.0
    assert saliency.infidelity(np.ones(3), hidden, np.zeros(3)) is None


def test_rank_correlation_by_hand():
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert saliency.rank_correlation(a, np.array([10.0, 20.0, 30.0, 99.0])) == pytest.approx(1)
    assert saliency.rank_correlation(a, -a) == pytest.approx(-1)
    # 1 - 6 * (1 + 1 + 0 + 0) / (4 * 15)
    assert saliency.rank_correlation(a, np.array([2.0, 1.0, 3.0, 4.0])) == pytest.approx(0.8)
    # Ranks 1.5 1.5 3 4 against 1 2 3 4.
    assert saliency.rank_correlation(a, np.array([1.0, 1.0, 2.0, 3.0])) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert saliency.rank_correlation(a, np.ones(4)) == 0.0


def test_change_and_entropy():
    assert saliency.change_of(np.array([3.0, 4.0]), np.array([3.0, 3.0])) == pytest.approx(0.2)
    assert saliency.change_of(np.zeros(2), np.ones(2)) is None
    assert saliency.entropy(np.ones(5)) == 0.0
    assert saliency.entropy(np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(np.log(2))
