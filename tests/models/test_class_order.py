"""Tests of models whose answers are brought into the order of the data's classes."""

import json

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import brinell
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.record import Outcome
from brinell.datasets._memory import from_arrays
from brinell.engine.plan import model_opener
from brinell.inputs import models_of
from brinell.models._answers import LogitModel, recognise_answers
from brinell.models._class_order import in_order_of, names_of_json, wnids_of
from brinell.models._torch_model import TorchModel
from brinell.store.run import Run

NAMES = ("cat", "dog", "frog")
DOMAIN = Domain(kind="vector", shape=(4,))


def linear(order=(0, 1, 2)):
    """A linear network of three classes whose rows are in an order."""
    network = nn.Linear(4, 3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        network.weight.copy_((torch.randn(3, 4, generator=generator) * 5)[list(order)])
        network.bias.zero_()
    return network


def data(classes=NAMES, n=90):
    """Inputs with the labels of the linear network, one in ten wrong, by the names of classes in an
    order."""
    x = torch.rand(n, 4, generator=torch.Generator().manual_seed(1))
    y = linear()(x).argmax(1)
    y[::10] = (y[::10] + 1) % 3
    labels = np.array([classes.index(NAMES[label]) for label in y.tolist()])
    return from_arrays(x.numpy(), labels, classes=classes, kind="vector")


def test_rows_in_another_order_are_the_same_model():
    for order in [(1, 2, 0), (2, 1, 0), (0, 2, 1)]:
        network = linear(order)
        model = TorchModel(network, DOMAIN, class_names=tuple(NAMES[place] for place in order))
        ordered, plain, x = (
            in_order_of(model, data()),
            TorchModel(linear(), DOMAIN),
            torch.rand(20, 4),
        )
        assert torch.equal(ordered.predict(x), plain.predict(x))
        assert ordered.info.class_names == NAMES and sorted(ordered.info.class_order) == [0, 1, 2]
        assert ordered.info.module is network and ordered.digest() != model.digest()
        assert "matched by name" in ordered.info.notes[-1]
        repetition = x.clone().requires_grad_()
        assert (
            torch.autograd.grad(ordered.predict(repetition).sum(), repetition)[0].shape == x.shape
        )


def test_the_same_order_is_the_model_itself():
    model = TorchModel(linear(), DOMAIN, class_names=NAMES)
    assert (
        in_order_of(model, data()) is model
        and in_order_of(TorchModel(linear(), DOMAIN), data()).info.notes == ()
    )


def test_the_softmax_before_the_order_is_still_read():
    model = TorchModel(
        nn.Sequential(linear((1, 0, 2)), nn.Softmax(1)), DOMAIN, class_names=("dog", "cat", "frog")
    )
    ordered = recognise_answers(in_order_of(model, data()), torch.rand(8, 4))
    x = torch.rand(8, 4)
    assert isinstance(ordered, LogitModel) and torch.equal(ordered.predict(x), linear()(x))


def test_classes_that_the_model_does_not_know_are_never_answered():
    model = LogitModel(TorchModel(linear(), DOMAIN, class_names=NAMES), "logits")
    arrays = from_arrays(
        np.random.default_rng(0).random((4, 4)),
        [0, 2, 3, 0],
        classes=("cat", "gnu", "dog", "frog"),
        kind="vector",
    )
    ordered = in_order_of(model, arrays)
    answers = ordered.predict(torch.rand(50, 4))
    assert (
        answers.shape == (50, 4)
        and not bool((answers.argmax(1) == 1).any())
        and bool(torch.isfinite(answers).all())
    )
    with pytest.raises(RequestError, check=refused("models._class_order.in_order_of")):
        in_order_of(model.model, arrays)


def test_one_number_of_two_classes_is_turned_round_once_its_kind_is_known():
    arrays = from_arrays(
        np.random.default_rng(0).random((4, 4)),
        [0, 1, 1, 0],
        classes=("good", "bad"),
        kind="vector",
    )
    model = TorchModel(nn.Linear(4, 1), DOMAIN, class_names=("bad", "good"))
    with pytest.raises(RequestError, check=refused("models._class_order.in_order_of")):
        in_order_of(model, arrays)
    x, logits = torch.rand(5, 4), LogitModel(model, "logit")
    assert torch.equal(in_order_of(logits, arrays).predict(x), logits.predict(x).flip(1))


def test_an_audit_by_names_gives_the_rows_of_the_right_order(tmp_path):
    """Estimators, whose `classes_` name what they answer, against data whose classes are in any
    order."""
    rows = []
    for classes in (NAMES, ("frog", "cat", "dog")):
        options = {"eps": "0,0.05", "norm": "linf", "attack": "fgsm", "samples": "first:12"}
        network = linear((2, 0, 1))
        network.config = type("Config", (), {"id2label": {0: "frog", 1: "cat", 2: "dog"}})
        network.main_input_name = "pixel_values"
        (raw,) = models_of(network, data(classes), "", in_order=False)
        assert raw.info.class_order == () and raw.info.class_names == ("frog", "cat", "dog")
        brinell.audit(network, data(classes), out=tmp_path / classes[0], **options)
        records = Run.open(tmp_path / classes[0]).rows
        fooled = records.outcome == Outcome.BROKEN
        named = [
            np.array([*classes])[column]
            for column in (records.label, records.clean_pred, records.adv_pred[fooled])
        ]
        rows.append([records.sample_id, records.outcome, records.linf, *named])
    for right, other in zip(*rows, strict=True):
        assert np.array_equal(right, other, equal_nan=right.dtype.kind == "f")


def test_estimators_of_minus_one_and_one_and_of_gaps():
    from sklearn.linear_model import LogisticRegression

    x = np.random.default_rng(0).random((200, 4))
    signs = np.where(x[:, 0] > 0.5, 1, -1)
    gaps = np.array([1, 2, 5])[(x[:, 0] * 3).astype(int)]
    for labels in (signs, gaps, gaps.astype(float)):
        estimator = LogisticRegression(C=1e4).fit(x, labels)
        dataset = brinell.data(x, labels)
        (model,) = models_of(estimator, dataset, "")
        predicted = model.predict(dataset.load(range(200))).argmax(1).numpy()
        assert [int(dataset.classes[index]) for index in predicted] == estimator.predict(x).astype(
            int
        ).tolist()
        assert np.mean(predicted == dataset.labels()) > 0.9, labels[:3]


def test_stated_names(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Linear(4, 3)\n"
    )
    opener = model_opener(f"torch:{tmp_path}/net.py:net?class_names=frog+cat+dog", data())
    assert opener().info.class_order == (1, 2, 0)
    (tmp_path / "classes.json").write_text(json.dumps({"dog": 0, "cat": 1, "frog": 2}))
    assert model_opener(f"torch:{tmp_path}/net.py:net", data())().info.class_order == (1, 0, 2)
    assert (
        model_opener(f"{tmp_path}/net.py:net?class_names=cat+dog+frog", data())().info.class_order
        == ()
    )
    for options, message in (
        ("class_names=cat+cat+dog", "names the classes 0 and 1 both 'cat'"),
        ("class_names=cat+dog", "name 2 classes, and the model answers 3 numbers"),
        ("class_names=", "write class_names="),
        ("class_names=a+b+c&class_names=b+a+c", "twice"),
    ):
        with pytest.raises(RequestError, match=message):
            model_opener(f"torch:{tmp_path}/net.py:net?{options}", data())()


def test_forms_of_a_list_of_classes():
    for content in (
        ["cat", "dog"],
        {"0": "cat", "1": "dog"},
        {"dog": 1, "cat": 0},
        [{"index": 1, "name": "dog"}, {"index": 0, "name": "cat"}],
    ):
        assert names_of_json("it", content) == ("cat", "dog")
    twice = [{"index": 0, "name": "a"}, {"index": 0, "name": "b"}]
    for content in ([], {}, 3, [["cat"]], {"cat": 0, "dog": 0}, {"0": "cat", "2": "dog"}, twice):
        with pytest.raises(RequestError, match="^it "):
            names_of_json("it", content)


def test_names_in_the_metadata_of_onnx(tmp_path):
    weight = numpy_helper.from_array(linear((2, 0, 1)).weight.detach().numpy().T.copy(), "weight")
    x_port, y_port = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 4), ("y", 3))
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["y"])], "net", [x_port], [y_port], [weight]
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for text in ("{0: 'frog', 1: 'cat', 2: 'dog'}", '["frog", "cat", "dog"]', "frog, cat,dog"):
        helper.set_model_props(file, {"names": text})
        onnx.save(file, tmp_path / "net.onnx")
        model, x = model_opener(f"onnx:{tmp_path}/net.onnx", data())(), torch.rand(9, 4)
        assert model.info.class_order == (1, 2, 0) and torch.allclose(
            model.predict(x), linear()(x), atol=1e-5
        )


def test_wnids_of_imagenet_are_matched_with_networks_of_all_its_classes():
    """Subsets at random, networks without names, with the usual ones and with others."""
    pytest.importorskip("timm")
    rng = np.random.default_rng(0)
    wnids = wnids_of((), 1000, 10)
    assert len(wnids) == 1000 and list(wnids) == sorted(wnids) and wnids[0] == "n01440764"
    assert wnids_of(tuple(map(str, rng.permutation(1000))), 1000, 10) == ()
    assert wnids_of((), 10, 10) == ()
    for background in (0, 1, 0, 1):
        count = 1000 + background
        chosen = sorted(rng.permutation(1000)[:7].tolist())
        order = rng.permutation(7)
        classes = tuple(wnids[chosen[place]] for place in order)
        arrays = from_arrays(rng.random((14, 4)), np.arange(14) % 7, classes=classes, kind="vector")
        network = nn.Linear(4, count)
        model = LogitModel(TorchModel(network, DOMAIN), "logits")
        x = torch.rand(5, 4)
        places = [background + chosen[place] for place in order]
        answers = in_order_of(model, arrays).predict(x)
        assert torch.equal(answers[:, :7], network(x)[:, places]) and answers.shape[1] == count
