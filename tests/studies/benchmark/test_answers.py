"""Answers of maps and boxes as rows of numbers, by hand on two pictures that differ in everything."""

import json

import numpy as np
import torch

from brinell.core.boxes import Objects
from brinell.core.detection import BoxCriterion, BoxForm, Scene
from brinell.core.segmentation import PixelShare
from brinell.studies.benchmark.answers import BOX, BoxReading, MapReading, make_reading


def with_scores(numbers):
    """The numbers behind the two scores that the criterion judges."""
    return torch.cat((torch.zeros(len(numbers), 2), numbers), 1)


def test_maps_become_counts_of_pixels():
    masks = torch.tensor([[[0, 1], [1, 255]], [[1, 1], [0, 0]]])
    predicted = torch.tensor([[[0, 0], [1, 1]], [[1, 0], [1, 0]]])
    answers = torch.nn.functional.one_hot(predicted, 2).movedim(-1, 1).float().flatten(1)
    reading = make_reading(PixelShare(masks=masks, classes=2), torch.zeros(2))
    assert isinstance(reading, MapReading)
    for rows, valid, wrong, pairs in (
        ([0, 1], [3, 4], [1, 2], [[[0, 0, 1], [1, 0, 1], [1, 1, 1]], [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]]]),
        ([1], [4], [2], [[[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]]]),
    ):
        columns = reading.columns(with_scores(reading.read(answers[rows], torch.tensor(rows))), torch.tensor(rows))
        assert (columns["valid"], columns["wrong"]) == (valid, wrong)
        assert [json.loads(text) for text in columns["answer"]] == pairs
    assert reading.truth(1).tolist() == [[1, 1], [0, 0]] and reading.truth(0).dtype == np.uint8


def test_boxes_become_rows_of_numbers():
    first = Objects(boxes=np.array([[0.0, 0, 4, 4], [4, 4, 8, 8]]), labels=np.array([0, 1]), crowd=np.array([False, False]))
    second = Objects(boxes=np.array([[1.0, 1, 5, 5], [0, 0, 8, 8]]), labels=np.array([1, 0]), crowd=np.array([False, True]))
    # Of the first picture one object is found, the other below the least score; of the second a box of the other class.
    candidates = torch.tensor(
        [
            [[0, 0, 4, 4, 0.9, 0.1], [4, 4, 8, 8, 0.0, 0.3], [0, 4, 4, 8, 0.0, 0.0]],
            [[1, 1, 5, 5, 0.8, 0.2], [0, 6, 2, 8, 0.0, 0.7], [0, 4, 4, 8, 0.0, 0.0]],
        ]
    )
    scene, form = Scene.of([first, second]), BoxForm(candidates=3, classes=2)
    reading = make_reading(BoxCriterion(error="missed", scene=scene, form=form, least_score=0.4), torch.zeros(2))
    assert isinstance(reading, BoxReading)
    for rows in ([0, 1], [1, 0], [1]):
        index = torch.tensor(rows)
        numbers = reading.read(candidates[index].flatten(1), index)
        assert len(numbers) == len(rows) and numbers.reshape(len(rows), -1, BOX)[:, 2:].eq(0).all()
        columns = reading.columns(with_scores(numbers), index)
        expected = {
            "valid": [2, 1],
            "wrong": [1, 1],
            "answer": [
                [[0, 0, 4, 4, 0, 0.9], [4, 4, 8, 8, 1, 0.3]],
                [[1, 1, 5, 5, 0, 0.8], [0, 6, 2, 8, 1, 0.7]],
            ],
        }
        columns["answer"] = [json.loads(text)["boxes"] for text in columns["answer"]]
        assert columns == {name: [values[row] for row in rows] for name, values in expected.items()}
    assert reading.truth(1).tolist() == [[1, 1, 5, 5, 1, 0], [0, 0, 8, 8, 0, 1]]
