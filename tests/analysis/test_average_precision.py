"""AP: known answers by hand, properties, and pycocotools where it is installed."""

import contextlib
import io
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from brinell.analysis.average_precision import (
    POINTS,
    average_precision,
    class_precision,
    draw_pictures,
    interval,
    match_set,
)
from brinell.core.boxes import Detections

helpers = import_module("core.test_boxes")


def random_set(generator, pictures=6):
    """Detections and objects of several pictures."""
    pairs = [helpers.random_picture(generator) for _ in range(pictures)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def coco_figures(detections, objects):
    """AP50 and AP by pycocotools."""
    coco, evaluation = pytest.importorskip("pycocotools.coco"), import_module("pycocotools.cocoeval")
    annotations, results = [], []
    for number, (boxes, truth) in enumerate(zip(detections, objects, strict=True)):
        for box, label, crowd in zip(truth.boxes, truth.labels, truth.crowd, strict=True):
            size = box[2:] - box[:2]
            entry = {"id": len(annotations) + 1, "image_id": number, "category_id": int(label), "iscrowd": int(crowd)}
            annotations.append(entry | {"area": float(size.prod()), "bbox": [*box[:2], *size]})
        for box, label, score in zip(boxes.boxes, boxes.labels, boxes.scores, strict=True):
            entry = {"image_id": number, "category_id": int(label), "score": float(score)}
            results.append(entry | {"bbox": [*box[:2], *(box[2:] - box[:2])]})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        categories = sorted({entry["category_id"] for entry in annotations + results})
        truth.dataset = {
            "images": [{"id": number} for number in range(len(objects))],
            "annotations": annotations,
            "categories": [{"id": label} for label in categories],
        }
        truth.createIndex()
        run = evaluation.COCOeval(truth, truth.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return run.stats[1], run.stats[0]


def test_ap_by_hand():
    """Two objects; the boxes by score hit, miss, hit: precision 1 up to recall 0.5, then 2/3."""
    truth = [helpers.objects((0, 0, 10, 10, 0, 0), (20, 0, 30, 10, 0, 0))]
    boxes = [helpers.detections((0, 0, 10, 10, 0, 0.9), (50, 50, 60, 60, 0, 0.8), (20, 0, 30, 10, 0, 0.7))]
    half, average = average_precision(match_set(boxes, truth))
    assert half[0] == pytest.approx((51 + 50 * 2 / 3) / 101) and average[0] == pytest.approx(half[0])


def test_equal_to_pycocotools_on_random_sets():
    pytest.importorskip("pycocotools")
    generator = np.random.default_rng(3)
    for _ in range(30):
        detections, objects = random_set(generator)
        half, average = average_precision(match_set(detections, objects))
        assert (half[0], average[0]) == pytest.approx(coco_figures(detections, objects), abs=1e-3)


def test_lower_scores_of_all_boxes_leave_ap_as_it_is():
    detections, objects = random_set(np.random.default_rng(4))
    lower = [replace(boxes, scores=0.01 * boxes.scores**3) for boxes in detections]
    assert average_precision(match_set(lower, objects)) == average_precision(match_set(detections, objects))


def test_false_boxes_above_all_others_lower_ap_and_below_them_do_not():
    detections, objects = random_set(np.random.default_rng(5))
    before = average_precision(match_set(detections, objects))[0][0]

    def with_false(score):
        """The detections with a box far from everything in each picture and class."""
        false_boxes = [(500, 500, 510, 510, label, score) for label in range(3)]
        joined = []
        for boxes in detections:
            rows = [(*box, label, s) for box, label, s in zip(boxes.boxes, boxes.labels, boxes.scores, strict=True)]
            joined.append(helpers.detections(*rows, *false_boxes))
        return average_precision(match_set(joined, objects))[0][0]

    assert with_false(1.5) < before
    assert with_false(1e-6) == pytest.approx(before)


def test_weights_are_copies_of_pictures():
    detections, objects = random_set(np.random.default_rng(6), 4)
    weights = np.array([[2, 0, 1, 1]])
    copied = [0, 0, 2, 3]
    expected = average_precision(match_set([detections[i] for i in copied], [objects[i] for i in copied]))
    figures = average_precision(match_set(detections, objects), weights)
    assert [value[0] for value in figures] == pytest.approx([value[0] for value in expected], abs=1e-9)


def test_a_class_that_never_occurs_takes_no_part():
    truth = [helpers.objects((0, 0, 10, 10, 0, 0))]
    boxes = [helpers.detections((0, 0, 10, 10, 0, 0.9), (0, 0, 10, 10, 2, 0.95))]
    classes, precision = class_precision(match_set(boxes, truth))
    assert classes.tolist() == [0] and precision[0, 0].tolist() == pytest.approx([1.0])


def test_a_set_without_objects_has_no_figure():
    matches = match_set(
        [Detections(boxes=np.zeros((0, 4)), scores=np.zeros(0), labels=np.zeros(0, np.int64))], [helpers.objects()]
    )
    assert np.isnan(average_precision(matches)[0]).all()
    assert np.isnan(interval(float("nan"), np.zeros(3)).value)


def test_interval_holds_the_figure_and_narrows_with_more_pictures():
    detections, objects = random_set(np.random.default_rng(7), 10)
    widths = []
    for copies in (1, 4):
        matches = match_set(detections * copies, objects * copies)
        draws = average_precision(matches, draw_pictures(matches.pictures, 200))[0]
        result = interval(float(average_precision(matches)[0][0]), draws)
        assert result.low <= result.value <= result.high
        widths.append(result.high - result.low)
    assert widths[1] < widths[0]


def reference_precision(matches, weights, label, level):
    """AP of a class at a level of overlap, recall point by recall point, from pictures that are counted several times."""
    total = sum(weights[picture] for picture, object_label in matches.objects.tolist() if object_label == label)
    rows = [row for row in range(len(matches.label)) if matches.label[row] == label and not matches.ignored[row, level]]
    hits, counts, curve = 0, 0, []
    for row in sorted(rows, key=lambda row: -matches.score[row]):
        hits += weights[matches.picture[row]] * matches.hit[row, level]
        counts += weights[matches.picture[row]]
        curve.append((hits / total, hits / max(counts, 1e-12)))
    return np.mean([max([precision for recall, precision in curve if recall >= point], default=0.0) for point in POINTS])


def test_precision_of_classes_is_that_of_the_reference():
    detections, objects = random_set(np.random.default_rng(8), 5)
    matches, weights = match_set(detections, objects, (0.5, 0.7)), np.array([[1, 1, 1, 1, 1], [3, 0, 2, 1, 0], [0, 0, 0, 0, 0]])
    classes, precision = class_precision(matches, weights)
    assert classes.tolist() == sorted({label for _, label in matches.objects.tolist()}) and precision.shape == (
        3,
        2,
        len(classes),
    )
    for draw, level, column in np.ndindex(precision.shape):
        present = any(weights[draw, picture] for picture, label in matches.objects.tolist() if label == classes[column])
        value = precision[draw, level, column]
        if present:
            assert value == pytest.approx(reference_precision(matches, weights[draw], classes[column], level), abs=1e-9)
        else:
            assert np.isnan(value)
    first, average = average_precision(matches, weights[:2])
    assert first == pytest.approx(np.nanmean(precision[:2, 0], 1)) and average == pytest.approx(np.nanmean(precision[:2], (1, 2)))
    assert matches.pictures == 5 and len(matches.objects) == sum(picture.count for picture in objects)


def test_an_interval_leaves_out_draws_without_a_figure_and_holds_the_figure():
    draws = np.array([*np.linspace(0, 1, 41), np.nan, np.inf])
    assert interval(0.5, draws) == pytest.approx((0.5, 0.025, 0.975))
    assert interval(0.0, draws).low == 0.0 and interval(1.0, draws).high == 1.0
    assert np.isnan(interval(0.5, np.array([np.nan]))).all()
    counts = draw_pictures(7, draws=20)
    assert counts.shape == (20, 7) and (counts.sum(1) == 7).all() and np.array_equal(counts, draw_pictures(7, draws=20))
    assert not np.array_equal(counts, draw_pictures(7, draws=20, seed=1))
