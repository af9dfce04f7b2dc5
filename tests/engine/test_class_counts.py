"""Labels fit the number of a model's classes, or the refusal says which labels there are."""

import numpy as np
import pytest

from _helpers import Recorder
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.model import ModelInfo
from brinell.engine.class_counts import check_classes

CLASSES = 10
TRUE = np.arange(120) % CLASSES


def test_labels_from_1_on_are_told_both_explanations():
    model = Recorder(lambda x: x, Domain(kind="vector", shape=(CLASSES,)), CLASSES)
    with pytest.raises(
        ModelError,
        match=r"run from 1 to 10: take 1 from .*\(y - 1\), or the remainder .*\(y % 10\)",
    ):
        check_classes(model, TRUE + 1)


def test_other_numbers_of_classes_are_another_model():
    model = Recorder(lambda x: x, Domain(kind="vector", shape=(CLASSES,)), CLASSES)
    with pytest.raises(
        ModelError,
        match="tells 10 classes apart, and the data has labels from 0 to 12, 2 different ones",
    ):
        check_classes(model, np.array([0, 12]))
    with pytest.raises(ModelError, match="labels from 10 to 10, 1 different ones: choose"):
        check_classes(model, np.full(9, CLASSES))
    check_classes(model, TRUE)


def test_labels_that_a_model_of_four_classes_has_or_not():
    model = Recorder(lambda x: x, Domain(kind="vector", shape=(4,)), 4)
    cases = {
        (0, 3): "",
        (3, 3): "",
        (0,): "",
        (0, 4): "labels from 0 to 4, 2 different",
        (-1, 0): "labels from -1 to 0",
        (1, 2, 3, 4): "run from 1 to 4",
        (1, 2, 4): "run from 1 to 4",
        (2, 3, 4): "run from 2 to 4",
        (1, 4): "labels from 1 to 4, 2 different",
        (1, 5): "labels from 1 to 5",
        (4, 4): "labels from 4 to 4, 1 different",
    }
    problems = []
    for labels, words in cases.items():
        try:
            check_classes(model, np.array(labels))
            text = ""
        except ModelError as error:
            text = f"{error} "
        if bool(text) != bool(words) or words not in text:
            problems.append((labels, text))
    assert not problems
    scalar_model = Recorder(lambda x: x, Domain(kind="vector", shape=(1,)), 1)
    scalar_model.info = ModelInfo(answers="logits")
    with pytest.raises(ModelError, match="one class apart"):
        check_classes(scalar_model, np.zeros(3, int))
