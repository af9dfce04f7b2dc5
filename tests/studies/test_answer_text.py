"""Answers of dense models as text and back."""

import json

import numpy as np

from brinell.core.boxes import Detections, Objects
from brinell.studies.answer_text import count_lost, pack_answer, pack_pairs, read_boxes, read_objects

BOXES = Detections(
    boxes=np.array([[0.0, 1.234, 10.0, 12.0], [3.0, 4.0, 5.0, 6.0]]), scores=np.array([0.9, 0.1234567]), labels=np.array([2, 0])
)
OBJECTS = Objects(
    boxes=np.array([[0.0, 1.0, 10.0, 12.0], [30.0, 30.0, 40.0, 40.0], [0.0, 0.0, 90.0, 90.0]]),
    labels=np.array([2, 1, 5]),
    crowd=np.array([False, False, True]),
)


def test_pairs_of_classes_that_occur():
    assert pack_pairs(np.array([[0, 3], [20, 0]])) == "[[0,1,3],[1,0,20]]" and pack_pairs(np.zeros((2, 2), int)) == "[]"


def test_boxes_and_objects_come_back_rounded():
    text = pack_answer(BOXES, OBJECTS)
    assert json.loads(text)["boxes"] == [[0.0, 1.23, 10.0, 12.0, 2, 0.9], [3.0, 4.0, 5.0, 6.0, 0, 0.123457]]
    boxes, objects = read_boxes(text), read_objects(text)
    assert boxes.boxes.tolist() == [[0.0, 1.23, 10.0, 12.0], [3.0, 4.0, 5.0, 6.0]]
    assert boxes.scores.tolist() == [0.9, 0.123457] and boxes.labels.tolist() == [2, 0] and boxes.labels.dtype == np.int64
    assert np.array_equal(objects.boxes, OBJECTS.boxes) and objects.crowd.tolist() == [False, False, True]
    assert objects.labels.tolist() == [2, 1, 5] and objects.labels.dtype == np.int64
    assert "objects" not in json.loads(pack_answer(BOXES, None))
    nothing = pack_answer(BOXES.take(np.zeros(0, int)), None)
    assert len(read_boxes(nothing)) == 0 and read_boxes(nothing).boxes.shape == (0, 4)


def test_boxes_are_read_by_score():
    text = json.dumps({"boxes": [[0, 0, 1, 1, 4, 0.2], [0, 0, 2, 2, 3, 0.8], [0, 0, 3, 3, 1, 0.2]]})
    assert read_boxes(text).labels.tolist() == [3, 4, 1]


def test_objects_that_no_box_finds():
    assert count_lost(BOXES, OBJECTS) == 1
    assert count_lost(BOXES.take(np.array([1])), OBJECTS) == 2
