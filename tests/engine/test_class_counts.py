"""Labels from 1 on: the model's answers tell whether they are counted from 1 or class 0 is written as the last number."""

import numpy as np
import pytest
import torch

from _helpers import Recorder
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.datasets._memory import ArrayDataset
from brinell.engine.class_counts import check_classes

CLASSES = 10
X = torch.eye(CLASSES).repeat(12, 1)
TRUE = np.arange(120) % CLASSES
GUESSES = np.random.default_rng(0).integers(1, CLASSES + 1, 120)


def test_the_answers_decide(subtests):
    for labels, words, absent in [
        (TRUE + 1, "counted from 1; take 1 from each (y - 1)", "SVHN"),
        (np.where(TRUE == 0, CLASSES, TRUE), "class 0 is written as 10; take the remainder (y % 10)", "take 1"),
        (np.where(GUESSES == 1, CLASSES, GUESSES), "where class 0 is written as 10, as in SVHN", "they are counted from 1"),
    ]:
        with subtests.test(str((labels, words, absent))):
            model = Recorder(lambda x: 9 * x, Domain(kind="vector", shape=(CLASSES,)), CLASSES)
            dataset = ArrayDataset(X, labels, domain=model.domain)
            with pytest.raises(ModelError) as caught:
                check_classes(model, labels, dataset)
            assert words in str(caught.value) and absent not in str(caught.value)
            with pytest.raises(ModelError) as caught:  # without the data either may be
                check_classes(model, labels)
            assert "(y - 1)" in str(caught.value) and "(y % 10)" in str(caught.value)


def test_other_numbers_of_classes_are_another_model():
    model = Recorder(lambda x: x, Domain(kind="vector", shape=(CLASSES,)), CLASSES)
    with pytest.raises(ModelError, match="tells 10 classes apart, and the data has labels from 0 to 12, 2 different ones"):
        check_classes(model, np.array([0, 12]))
    with pytest.raises(ModelError, match="labels from 10 to 10, 1 different ones: choose"):
        check_classes(model, np.full(9, CLASSES))
    check_classes(model, TRUE)
