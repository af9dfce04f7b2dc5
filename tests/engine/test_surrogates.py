"""Surrogates: which are refused before anything runs, what is said of them, and their mean."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from _helpers import Recorder, mlp
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access, ModelInfo
from brinell.engine.surrogates import check_class_names, check_gradients, mean_of, surrogate_notes
from brinell.engine.texts import eps_text, norm_advice, norm_text
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))


def model(module, name="net"):
    return TorchModel(module, SIX, 3, name=name)


def test_the_mean_of_several_answers_and_its_gradient():
    first, second = model(mlp(6, 3, 1), "a"), model(mlp(6, 3, 2), "b")
    mean, x = mean_of([first, second]), torch.rand(5, 6, requires_grad=True)
    torch.testing.assert_close(mean.predict(x), (first.predict(x) + second.predict(x)) / 2)
    grads = [torch.autograd.grad(one.predict(x)[:, 1].sum(), x)[0] for one in (mean, first, second)]
    torch.testing.assert_close(grads[0], (grads[1] + grads[2]) / 2)
    assert (mean.name, mean.classes, mean.domain) == ("a and b", 3, SIX)
    assert mean.digest() == f"{first.digest()} {second.digest()}" and mean_of([first]) is first


class Rounds(nn.Module):
    def forward(self, x):
        return torch.round(x[:, :3])


class Fails(nn.Module):
    def forward(self, x):
        raise RuntimeError("sizes differ")


def test_what_gives_no_gradients_is_refused():
    check_gradients(model(mlp(6, 3)))
    closed = model(mlp(6, 3))
    closed.access = Access.SCORES
    for surrogate, words in (
        (closed, "scores only"),
        (model(Rounds()), "no gradients"),
        (model(Fails()), "about inputs of 6 "),
    ):
        with pytest.raises(RequestError, match=words) as error:
            check_gradients(surrogate)
        assert "surrogate net" in str(error.value)


def test_what_is_said_of_surrogates_beside_models():
    def opened(name, digest, classes):
        return SimpleNamespace(name=name, facts={"digest": digest, "classes": classes})

    net, other, wide = opened("net", "1", 3), opened("other", "2", 3), opened("wide", "3", 4)
    assert surrogate_notes([other], [net]) == [] == surrogate_notes([], [net, wide])
    (note,) = surrogate_notes([opened("copy", "1", 3), other], [net])
    assert (
        note.startswith("the surrogate copy is the model under test itself")
        and "figures of net are white-box" in note
    )
    for surrogates, models, words in [
        ([other, other], [net], "other is named twice"),
        ([other, opened("third", "2", 3)], [net], "is named twice"),
        ([wide], [net], "wide tells 4 classes apart, and net 3"),
    ]:
        with pytest.raises(RequestError, match=words):
            surrogate_notes(surrogates, models)


def test_classes_of_a_policy_are_those_of_the_data():
    learned = Recorder(mlp(6, 3), SIX, 3, name="net")
    check_class_names(learned, ["a", "b", "c"], "data")
    learned.info = ModelInfo(class_names=("a", "b", "c"))
    check_class_names(learned, ["a", "b", "c"], "data")
    check_class_names(learned, [], "data")
    with pytest.raises(RequestError, check=refused("engine.surrogates.check_class_names")):
        check_class_names(learned, ["b", "a"], "data")


def test_budgets_and_norms_as_texts():
    budgets = {
        0.1: "0.1",
        8 / 255: "8/255",
        3: "3.0",
        0: "0.0",
        0.12345678901: "0.12345678901",
        1 / 3: "85/255",
        "0:1:3": "0:1:3",
        0.5: "0.5",
        255.0: "255.0",
    }
    assert {eps: eps_text(eps) for eps in budgets} == budgets
    assert (
        eps_text([0.1, 2 / 255])
        == eps_text(torch.tensor([0.1, 2 / 255], dtype=torch.float64))
        == "0.1, 2/255"
    )
    norms = {
        float("inf"): "linf",
        2: "l2",
        1.0: "l1",
        "L_2": "l2",
        "Linf": "linf",
        "∞": "linf",
        "l0": "l0",
        "Embedding:F": "Embedding:F",
    }
    assert {norm: norm_text(norm) for norm in norms} == norms and norm_text([2, "inf"]) == (
        "l2",
        "linf",
    )
    for value in (None, True, "", [], [[0.1]], float("nan"), object()):
        with pytest.raises(RequestError):
            eps_text(value) if value != "" else norm_text(3)
    advice = norm_advice({"l2", "linf", "embedding"})
    assert (
        advice.startswith(": add ")
        and "l2" in advice
        and "linf" in advice
        and "embedding" not in advice
    )
    assert norm_advice({"embedding"}) == ""
