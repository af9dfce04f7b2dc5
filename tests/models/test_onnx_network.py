"""Networks in ONNX as torch modules: the answers of ONNX Runtime, gradients, and scores alone where
torch answers otherwise.
"""

import numpy as np
import pytest
import torch

from brinell.core.domain import Domain
from brinell.core.model import Access
from brinell.models.onnx import Onnx
from brinell.testing import check_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime"), pytest.importorskip("onnx2pytorch")
helper, FLOAT, HALF = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def a(rng, *shape, dtype=np.float32):
    """An array."""
    return rng.normal(size=shape).astype(dtype)


def stored(tmp_path, nodes, arrays, shape=("n", 8), opset=20, kind=FLOAT):
    """A file with one input `x` and one output `y`."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    path = tmp_path / "net.onnx"
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return str(path)


def dense(rng, *more):
    """A network of two layers, with nodes after it."""
    arrays = {"first": a(rng, 8, 16), "second": a(rng, 16, 3)}
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "first"], ["u"]),
        node("Relu", ["u"], ["v"]),
        node("MatMul", ["v", "second"], ["logits"]),
    ]
    return [*nodes, *more], arrays


VECTOR = Domain(kind="vector", shape=(8,))


def test_a_file_gives_gradients_of_its_logits(tmp_path):
    rng = np.random.default_rng(1)
    nodes, arrays = dense(rng, helper.make_node("Softmax", ["logits"], ["y"], axis=-1))
    path = stored(tmp_path, nodes, arrays)
    model = Onnx(path=path, gradients=True, mean=(0.5,), std=(0.25,))(VECTOR)
    check_model(model)
    assert model.access == Access.GRADIENTS and model.classes == 3
    x = torch.rand(5, 8, requires_grad=True)
    hidden = ((x.detach().double() - 0.5) / 0.25) @ torch.from_numpy(arrays["first"]).double()
    logits = hidden.clamp(min=0) @ torch.from_numpy(arrays["second"]).double()
    assert torch.allclose(model.predict(x).double(), logits, atol=1e-4)  # before the softmax
    (gradient,) = torch.autograd.grad(model.predict(x)[:, 1].sum(), x)
    exact = (
        ((hidden > 0) * torch.from_numpy(arrays["second"]).double()[:, 1])
        @ torch.from_numpy(arrays["first"]).double().T
        / 0.25
    )
    assert torch.allclose(gradient.double(), exact, atol=1e-3)
    plain = Onnx(path=path, mean=(0.5,), std=(0.25,))(VECTOR)
    assert plain.access == Access.SCORES and plain.digest() != model.digest()
    assert plain.info.gradients == f"onnx:{path}?gradients=true"


def test_a_file_for_one_sample_takes_several(tmp_path):
    rng = np.random.default_rng(2)
    arrays = {"shape": np.array([1, 8]), "weight": a(rng, 8, 3)}
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["y"]),
    ]
    model = Onnx(path=stored(tmp_path, nodes, arrays, (1, 2, 4)), gradients=True)(
        Domain(kind="signal", shape=(2, 4))
    )
    x = torch.rand(5, 2, 4)
    assert torch.allclose(
        model.predict(x), x.flatten(1) @ torch.from_numpy(arrays["weight"]), atol=1e-5
    )


def test_small_convolutional_files_of_any_opset_and_half_precision(tmp_path):
    node, domain = helper.make_node, Domain(kind="image", shape=(2, 6, 6))
    for opset, kind in [(9, FLOAT), (13, FLOAT), (17, FLOAT), (21, FLOAT), (17, HALF)]:
        rng = np.random.default_rng(opset)
        dtype = np.float32 if kind == FLOAT else np.float16
        arrays = {
            "c": a(rng, 4, 2, 3, 3),
            "b": a(rng, 4),
            "scale": a(rng, 4),
            "shift": a(rng, 4),
            "mean": a(rng, 4),
        }
        arrays |= {"variance": np.abs(a(rng, 4)) + 0.1, "w": a(rng, 36, 3), "v": a(rng, 3)}
        nodes = [
            node("Conv", ["x", "c", "b"], ["u0"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["u0", "scale", "shift", "mean", "variance"], ["u1"]),
            node("LeakyRelu", ["u1"], ["u2"], alpha=0.1),
            node("MaxPool", ["u2"], ["u3"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", ["u3"], ["u4"]),
            node("MatMul", ["u4", "w"], ["u5"]),
            node("Add", ["u5", "v"], ["y"]),
        ]
        arrays = {name: value.astype(dtype) for name, value in arrays.items()}
        path = stored(tmp_path, nodes, arrays, ("n", 2, 6, 6), opset, kind)
        x = torch.rand(5, 2, 6, 6)
        expected, answer = (
            Onnx(path=path, gradients=flag)(domain).predict(x) for flag in (False, True)
        )
        assert torch.allclose(answer, expected, rtol=1e-3, atol=1e-4 if kind == FLOAT else 0.05), (
            opset,
            kind,
        )


def test_scores_alone_remain_of_what_torch_does_not_have_or_answers_otherwise(
    tmp_path, monkeypatch
):
    from onnx2pytorch.convert import operations

    nodes, arrays = dense(
        np.random.default_rng(3),
        helper.make_node("QuickGelu", ["logits"], ["y"], domain="com.microsoft"),
    )
    unknown = Onnx(path=stored(tmp_path, nodes, arrays), gradients=True)(VECTOR)
    nodes, arrays = dense(np.random.default_rng(5), helper.make_node("Sigmoid", ["logits"], ["y"]))
    monkeypatch.setattr(operations.nn, "Sigmoid", torch.nn.Tanh)
    other = Onnx(path=stored(tmp_path, nodes, arrays), gradients=True, answers="logits")(VECTOR)
    for model, reason in ((unknown, "QuickGelu"), (other, "answers differ")):
        assert model.access == Access.SCORES and not model.info.gradients
        assert "gives scores alone" in model.info.notes[-1] and reason in model.info.notes[-1]


def test_published_networks(shared):
    for name in [
        "mnist-net_256x4",
        "mnist_relu_9_200",
        "resnet_2b",
        "vit_ibp_3_3_8",
        "vit_pgd_2_3_16",
    ]:
        path = shared / "onnx" / f"{name}.onnx"
        shape = (1, 28, 28) if name.startswith("mnist") else (3, 32, 32)
        model = Onnx(path=str(path), gradients=True)(Domain(kind="image", shape=shape))
        x = torch.rand(3, *shape, requires_grad=True)
        assert torch.allclose(
            model.predict(x), Onnx(path=str(path))(model.domain).predict(x), atol=1e-5
        )
        (gradient,) = torch.autograd.grad(model.predict(x).square().sum(), x)
        assert gradient.isfinite().all() and gradient.abs().amax((1, 2, 3)).min() > 0
