"""AP: known answers by hand, and a reference that goes recall point by recall point."""

from importlib import import_module

import numpy as np
import pytest

from _lazy import library
from brinell.analysis.average_precision import (
    POINTS,
    average_precision,
    class_precision,
    interval,
    leave_out,
    match_set,
)
from brinell.core.boxes import Detections

stats = library("scipy.stats")
helpers = import_module("core.test_boxes")


def random_set(generator, pictures=6):
    """Detections and objects of several pictures."""
    pairs = [helpers.random_picture(generator) for _ in range(pictures)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def test_ap_by_hand():
    """Two objects; the boxes by score hit, miss, hit: precision 1 up to recall 0.5, then 2/3."""
    truth = [helpers.objects((0, 0, 10, 10, 0, 0), (20, 0, 30, 10, 0, 0))]
    boxes = [
        helpers.detections(
            (0, 0, 10, 10, 0, 0.9), (50, 50, 60, 60, 0, 0.8), (20, 0, 30, 10, 0, 0.7)
        )
    ]
    half, average = average_precision(match_set(boxes, truth))
    assert half[0] == pytest.approx((51 + 50 * 2 / 3) / 101) and average[0] == pytest.approx(
        half[0]
    )


def test_a_class_that_never_occurs_takes_no_part():
    truth = [helpers.objects((0, 0, 10, 10, 0, 0))]
    boxes = [helpers.detections((0, 0, 10, 10, 0, 0.9), (0, 0, 10, 10, 2, 0.95))]
    classes, precision = class_precision(match_set(boxes, truth))
    assert classes.tolist() == [0] and precision[0, 0].tolist() == pytest.approx([1.0])


def test_a_set_without_objects_has_no_figure():
    matches = match_set(
        [Detections(boxes=np.zeros((0, 4)), scores=np.zeros(0), labels=np.zeros(0, np.int64))],
        [helpers.objects()],
    )
    assert np.isnan(average_precision(matches)[0]).all()
    assert interval(float("nan"), np.full(9, np.nan), 9) is None


def test_interval_holds_the_figure_and_narrows_with_more_pictures():
    detections, objects = random_set(np.random.default_rng(7), 10)
    widths = []
    for copies in (1, 4):
        matches = match_set(detections * copies, objects * copies)
        replicates = average_precision(matches, leave_out(matches.pictures))[0]
        value = float(average_precision(matches)[0][0])
        result = interval(value, replicates, matches.pictures)
        assert result.low <= value <= result.high
        widths.append(result.high - result.low)
    assert widths[1] < widths[0]


def reference_precision(matches, weights, label, level):
    """AP of a class at a level of overlap, recall point by recall point, from pictures that are
    counted several times."""
    total = sum(
        weights[picture]
        for picture, object_label in matches.objects.tolist()
        if object_label == label
    )
    rows = [
        row
        for row in range(len(matches.label))
        if matches.label[row] == label and not matches.ignored[row, level]
    ]
    hits, counts, curve = 0, 0, []
    for row in sorted(rows, key=lambda row: -matches.score[row]):
        hits += weights[matches.picture[row]] * matches.hit[row, level]
        counts += weights[matches.picture[row]]
        curve.append((hits / total, hits / max(counts, 1e-12)))
    return np.mean(
        [
            max([precision for recall, precision in curve if recall >= point], default=0.0)
            for point in POINTS
        ]
    )


def test_precision_of_classes_is_that_of_the_reference():
    detections, objects = random_set(np.random.default_rng(8), 5)
    matches, weights = (
        match_set(detections, objects, (0.5, 0.7)),
        np.array([[1, 1, 1, 1, 1], [3, 0, 2, 1, 0], [0, 0, 0, 0, 0]]),
    )
    classes, precision = class_precision(matches, weights)
    assert classes.tolist() == sorted(
        {label for _, label in matches.objects.tolist()}
    ) and precision.shape == (
        3,
        2,
        len(classes),
    )
    for draw, level, column in np.ndindex(precision.shape):
        present = any(
            weights[draw, picture]
            for picture, label in matches.objects.tolist()
            if label == classes[column]
        )
        value = precision[draw, level, column]
        if present:
            assert value == pytest.approx(
                reference_precision(matches, weights[draw], classes[column], level), abs=1e-9
            )
        else:
            assert np.isnan(value)
    first, average = average_precision(matches, weights[:2])
    assert first == pytest.approx(np.nanmean(precision[:2, 0], 1)) and average == pytest.approx(
        np.nanmean(precision[:2], (1, 2))
    )
    assert matches.pictures == 5 and len(matches.objects) == sum(
        picture.count for picture in objects
    )


def test_an_interval_of_a_mean_is_that_of_t():
    """The jackknife of a mean has the standard error of the mean; beyond a share it is linear."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = rng.gamma(2.0, size=int(rng.integers(6, 60)))
        weights = leave_out(len(values))
        replicates = weights @ values / weights.sum(1)
        result = interval(values.mean(), replicates, len(values), (-np.inf, np.inf))
        assert result == pytest.approx(
            stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        )
        low, high = interval(values.mean(), replicates, len(values), (0.0, np.inf))
        assert (low, high) == pytest.approx((max(0.0, result.low), result.high))


def test_few_pictures_or_equal_ones_have_no_interval():
    for pictures in (2, 5, 6, 50):
        for of_class in (1, 2, 3, pictures):
            replicates = np.linspace(0.4, 0.6, pictures)
            result = interval(0.5, replicates, of_class)
            assert (result is None) == (pictures < 6 or of_class < 3)
            assert interval(0.5, np.full(pictures, 0.5), pictures) is None
            assert interval(0.5, np.append(replicates[1:], np.nan), pictures) is None


def test_parts_are_left_out_in_turn():
    for pictures in (1, 7, 199, 200, 503):
        weights = leave_out(pictures)
        assert weights.shape == (min(pictures, 200), pictures)
        assert ((weights == 0).sum(0) == 1).all() and np.ptp((weights == 0).sum(1)) <= 1


@pytest.mark.parametrize("n", [8, 30])
def test_intervals_of_few_pictures_hold_the_truth(n):
    """Of the accuracy of pixels in pictures of unequal size and difficulty."""
    rng = np.random.default_rng(n)
    hits = []
    for _ in range(400):
        size = rng.gamma(2.0, size=n)
        right = size * rng.beta(3, 1.5, n)
        weights = leave_out(n)
        result = interval(right.sum() / size.sum(), weights @ right / (weights @ size), n)
        hits.append(result.low <= 2 / 3 <= result.high)
    assert 0.92 < np.mean(hits) < 0.985
