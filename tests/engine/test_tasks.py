"""Criteria of masks and boxes as text, samples on which none can be met, and answers as text and
back."""

from types import SimpleNamespace

import numpy as np
import pytest

from brinell.analysis.pictures import read_boxes, read_counts, read_objects
from brinell.core.boxes import Detections, Objects
from brinell.core.errors import RequestError
from brinell.engine.tasks import (
    Task,
    object_columns,
    pack_boxes,
    pack_pairs,
    read_box_criterion,
    read_map_criterion,
)


def test_samples_without_what_the_criterion_counts_are_named():
    for noun in ("pixel", "object"):
        task = SimpleNamespace(
            unit=noun,
            text="cat",
            criterion=lambda ids: SimpleNamespace(
                attackable=np.array([sample % 100 != 7 for sample in ids])
            ),
        )
        reason = f"it has no {noun} that cat counts"
        assert Task.hopeless(task, list(range(3, 150))) == {7: reason, 107: reason}


def test_criteria_are_read_and_everything_else_is_refused():
    assert read_box_criterion("missed:0.5+false") == ({"missed": 0.5, "false": 100.0}, 0.4)
    assert read_box_criterion("false:20@0.6") == ({"false": 20.0}, 0.6)
    assert read_map_criterion("pixels", ["cat"]) == ("pixels", 1.0) and read_map_criterion(
        "gone:cat", ["cat"]
    ) == ("gone", 0)
    for text in (
        "lost",
        "missed:2",
        "missed:x",
        "missed@1",
        "missed@",
        "missed@nan",
        "missed:nan",
        "+",
        "",
    ):
        with pytest.raises(RequestError, match="criterion is"):
            read_box_criterion(text)
    for text in ("most", "iou", "pixels:0", "pixels:2", "gone", "iou:x"):
        with pytest.raises(RequestError, match="criterion is"):
            read_map_criterion(text, ["cat"])


def random_boxes(rng):
    """Detections, the best first, and objects with a crowd, with as many decimals as a row has."""
    n, k = rng.integers(0, 6, 2)
    low = rng.integers(0, 50, (n + k, 2)).astype(float)
    boxes = np.concatenate([low, low + rng.integers(1, 50, (n + k, 2))], 1).round(2)
    scores = np.sort(rng.random(n).round(6))[::-1]
    found = Detections(boxes=boxes[:n], scores=scores, labels=rng.integers(0, 9, n))
    return found, Objects(boxes=boxes[n:], labels=rng.integers(0, 9, k), crowd=rng.random(k) < 0.3)


def test_answers_come_back_from_their_text():
    rng = np.random.default_rng(0)
    for _ in range(50):
        found, objects = random_boxes(rng)
        text = pack_boxes(found, objects)
        repetition, truth = read_boxes(text), read_objects(text)
        for name in ("boxes", "labels", "scores"):
            assert np.array_equal(getattr(repetition, name), getattr(found, name))
        for name in ("boxes", "labels", "crowd"):
            assert np.array_equal(getattr(truth, name), getattr(objects, name))
        counts = rng.integers(0, 3, (4, 4))
        counts[3, 3] = 1
        assert np.array_equal(read_counts([pack_pairs(counts)])[0], counts)
        columns = object_columns([found, found], [objects, objects], 0.0)
        assert (
            columns["valid"].tolist() == [objects.count] * 2
            and (columns["wrong"] <= columns["valid"]).all()
        )
