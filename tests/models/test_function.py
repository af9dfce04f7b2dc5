"""Your functions as models: they receive the inputs that they take, and the model returns their
answers.
"""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.models._content import digest_of, modules_in
from brinell.models._function import FunctionModel
from brinell.testing import check_model

IMAGE = Domain(kind="image", shape=(3, 4, 5))
WEIGHT = torch.linspace(-1, 1, 240).reshape(60, 4).sin()
X = torch.linspace(0, 1, 300).reshape(5, 3, 4, 5)
LOGITS = X.flatten(1) @ WEIGHT


def of(function, **settings):
    return FunctionModel(function, IMAGE, classes=4, name="mine", **settings)


def torch_scores(x):
    return x.flatten(1) @ WEIGHT


def array_scores(x):
    assert isinstance(x, np.ndarray) and x.dtype == np.float32
    return x.reshape(len(x), -1) @ WEIGHT.numpy()


def frozen_scores(x):
    return torch_scores(x).detach()


class Output:
    def __init__(self, logits):
        self.logits = logits


def test_scores_of_any_library():
    rows = [
        (torch_scores, Access.GRADIENTS, "tensors with gradients"),
        (array_scores, Access.SCORES, "numpy arrays"),
        (frozen_scores, Access.SCORES, "tensors"),
        (lambda x: Output(torch_scores(x)), Access.GRADIENTS, "tensors with gradients"),
        (lambda x: {"logits": torch_scores(x)}, Access.GRADIENTS, "tensors with gradients"),
        (lambda x: torch_scores(x).tolist(), Access.SCORES, "numpy arrays|tensors"),
        (
            functools.partial(lambda w, x: x.flatten(1) @ w, WEIGHT),
            Access.GRADIENTS,
            "tensors with gradients",
        ),
    ]
    for function, access, forms in rows:
        model = of(function)
        check_model(model)
        assert model.access == access and model.classes == 4
        assert torch.allclose(model.predict(X), LOGITS, atol=1e-5)
        assert any(
            f"asked with {form} of shape (n, 3, 4, 5)" in model.info.notes[0]
            for form in forms.split("|")
        )


def test_labels():
    for function in (lambda x: torch_scores(x).argmax(1), lambda x: array_scores(x).argmax(1)):
        model = of(function)
        assert model.access == Access.LABELS and model.classes == 4
        assert torch.equal(model.predict(X).argmax(1), LOGITS.argmax(1))
    model = of(lambda x: array_scores(x).argmax(1) * 1.0, labels=True)
    assert model.access == Access.LABELS
    with pytest.raises(
        RequestError, check=refused("models._function.FunctionModel._answers_labels")
    ):
        of(lambda x: array_scores(x).argmax(1) * 1.0)


def test_the_function_gets_the_layout_of_the_data_and_the_normalisation():
    def last(x):
        assert x.shape[1:] == (4, 5, 3)
        return x.permute(0, 3, 1, 2).flatten(1) @ WEIGHT

    model = of(
        last, user_layout=lambda x: x.permute(0, 2, 3, 1), preprocessing={"mean": 0.25, "std": 0.5}
    )
    assert torch.allclose(model.predict(X), (2 * X - 0.5).flatten(1) @ WEIGHT, atol=1e-4)


def test_modules_inside_are_in_evaluation_mode_and_left_as_they_were():
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(60, 4))
    net.train()
    model = of(lambda x: net(x - 0.5))
    assert torch.equal(model.predict(X), model.predict(X)), "dropout was on"
    assert net.training and net[1].training
    assert modules_in(lambda x: net(x)) == [net]


def test_the_digest_follows_what_the_function_refers_to():
    net = nn.Sequential(nn.Flatten(), nn.Linear(60, 4))
    first, second = of(lambda x: net(x)).digest(), of(lambda x: net(x) + 0).digest()
    assert first != second and first == of(lambda x: net(x)).digest()
    model = of(lambda x: net(x))
    first = model.digest()
    assert first == model.digest()
    with torch.no_grad():
        net[1].bias[0] += 1e-3
    assert model.digest() != first
    assert digest_of([1, 2]) != digest_of([2, 1]) and digest_of({"a": X}) == digest_of(
        {"a": X.clone()}
    )
    assert digest_of(np.zeros(2)) != digest_of(np.zeros(2, np.float32))
    assert of(lambda x: x.mean((1, 2, 3))).classes == 1, "one score of two classes stays a score"


def test_a_function_that_cannot_be_asked():
    rows = [
        (lambda x: "cat", "answers with a str"),
        (
            lambda x: torch.zeros(7, 4),
            r"answers 3 inputs with shape \(7, 4\): it must give a row of scores",
        ),
        (
            lambda x: x.reshape(len(x), 7),
            r"cannot take the data, arrays of shape \(n, 3, 4, 5\): with tensors "
            r"with gradients: Run",
        ),
    ]
    for function, words in rows:
        with pytest.raises(RequestError, match=words) as error:
            of(function)
        assert "\n" not in str(error.value)
