"""Networks in ONNX as torch modules: each operation beside ONNX Runtime, on forms drawn at random; gradients; refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.models._onnx_network import OPERATIONS, OnnxNetwork
from brinell.models.onnx import Onnx
from brinell.testing import check_model

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
IMAGE = (2, 4, 6, 5)
ELEMENTWISE = "Abs Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Mish Neg Relu Selu Sigmoid Sign Softplus Tanh"
PAIRS = "Add Mul Sub Div Max Min Sum"


def a(rng, *shape, dtype=np.float32):
    """An array."""
    return rng.normal(size=shape).astype(dtype)


def integers(*values):
    return np.array(values, dtype=np.int64)


def geometry(rng, axes=2):
    """Random strides, pads and kernel."""
    kernel = rng.integers(1, 4, axes).tolist()
    pads = [int(rng.integers(0, k)) for k in kernel] * 2
    return kernel, {"strides": rng.integers(1, 3, axes).tolist(), "pads": pads}


def convolution(rng):
    kernel, settings = geometry(rng)
    group = int(rng.choice([1, 2]))
    return [a(rng, 4, 4 // group, *kernel), a(rng, 4)], {**settings, "group": group, "dilations": [1, int(rng.integers(1, 3))]}


def same_convolution(rng):
    mode = str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
    return [a(rng, 3, 4, 3, 2), a(rng, 3)], {"auto_pad": mode, "strides": [int(rng.integers(1, 3)), 1]}


def pool(rng):
    kernel, settings = geometry(rng)
    return [], {"kernel_shape": kernel, **settings, "ceil_mode": int(rng.integers(0, 2))}


def average_pool(rng):
    kernel, settings = geometry(rng)
    counted = int(rng.integers(0, 2))
    if not counted:
        settings["pads"] = [k // 2 for k in kernel] * 2
    return [], {"kernel_shape": kernel, **settings, "count_include_pad": counted}


def uneven_pool(rng):
    return [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}


def padding(rng):
    return [integers(0, 0, *rng.integers(0, 3, 2), 0, 0, *rng.integers(0, 3, 2)), np.float32(rng.normal())], {}


def axes(rng):
    return integers(*sorted(rng.choice([1, 2, 3], rng.integers(1, 4), replace=False)))


def slices(rng):
    step = int(rng.choice([1, 2, -1]))
    return [
        integers(*((0, 1) if step > 0 else (-1, -1))),
        integers(*((4, 5) if step > 0 else (-9, -9))),
        integers(2, 3),
        integers(step, step),
    ], {}


def resize(rng):
    factor, nearest = float(rng.integers(1, 4)), bool(rng.integers(0, 2))
    coordinates = "asymmetric" if nearest else str(rng.choice(["half_pixel", "align_corners"]))
    settings = {"mode": "nearest" if nearest else "linear", "coordinate_transformation_mode": coordinates}
    if rng.random() < 0.5 and not nearest:
        return [np.zeros(0, np.float32), np.zeros(0, np.float32), integers(*IMAGE[:2], 9, 4)], settings
    scales = np.array([1, 1, factor, factor], np.float32)
    return [np.zeros(0, np.float32), scales], settings | ({"nearest_mode": "floor"} if nearest else {})


FORMS = {
    **{name: lambda rng: ([], {}) for name in ELEMENTWISE.split()},
    **{name: lambda rng: ([a(rng, *rng.choice([1, 4], 1), 1, 1)], {}) for name in PAIRS.split()},
    "AveragePool": average_pool,
    "BatchNormalization": lambda rng: ([a(rng, 4), a(rng, 4), a(rng, 4), np.abs(a(rng, 4))], {"epsilon": 1e-3}),
    "Cast": lambda rng: ([], {"to": int(FLOAT)}),
    "Clip": lambda rng: ([np.float32(-0.5), np.float32(0.7)], {}),
    "Concat": lambda rng: ([a(rng, 2, 3, 6, 5)], {"axis": 1}),
    "Conv": lambda rng: convolution(rng) if rng.random() < 0.7 else same_convolution(rng),
    "ConvTranspose": lambda rng: ([a(rng, 4, 3, 3, 2), a(rng, 3)], {"strides": rng.integers(1, 3, 2).tolist()}),
    "Dropout": lambda rng: ([], {}),
    "Expand": lambda rng: ([integers(1, 4, 6, 5)], {}),
    "Flatten": lambda rng: ([], {"axis": int(rng.integers(0, 4))}),
    "Gather": lambda rng: ([integers(*rng.integers(-3, 3, rng.integers(1, 4)))], {"axis": int(rng.integers(1, 4))}),
    "GlobalAveragePool": lambda rng: ([], {}),
    "GlobalMaxPool": lambda rng: ([], {}),
    "InstanceNormalization": lambda rng: ([a(rng, 4), a(rng, 4)], {"epsilon": 1e-3}),
    "LayerNormalization": lambda rng: ([a(rng, 5), a(rng, 5)], {"axis": -1}),
    "LogSoftmax": lambda rng: ([], {"axis": int(rng.choice([1, -1]))}),
    "MatMul": lambda rng: ([a(rng, 5, 3)], {}),
    "MaxPool": lambda rng: pool(rng) if rng.random() < 0.7 else uneven_pool(rng),
    "PRelu": lambda rng: ([a(rng, int(rng.choice([1, 4])), 1, 1)], {}),
    "Pad": padding,
    "Pow": lambda rng: ([np.float32(2)], {}),
    "Reciprocal": lambda rng: ([], {}),
    **{
        name: lambda rng: ([axes(rng)], {"keepdims": int(rng.integers(0, 2))})
        for name in "ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum".split()
    },
    "Resize": resize,
    "Reshape": lambda rng: ([integers(0, -1, 5) if rng.random() < 0.5 else integers(2, 120)], {}),
    "Slice": slices,
    "Softmax": lambda rng: ([], {"axis": int(rng.choice([1, -1]))}),
    "Split": lambda rng: ([integers(1, 3)], {"axis": 1}),
    "Squeeze": lambda rng: ([integers(4)], {}),
    "Tile": lambda rng: ([integers(1, 2, 1, 3)], {}),
    "Transpose": lambda rng: ([], {"perm": rng.permutation(4).tolist()}),
    "Unsqueeze": lambda rng: ([integers(0, -1)], {}),
}
CONSTANTS = {
    "And",
    "Constant",
    "ConstantOfShape",
    "Equal",
    "Gemm",
    "Greater",
    "Less",
    "Log",
    "Not",
    "Or",
    "Shape",
    "Sqrt",
    "Where",
}
"""Operations that `special` uses."""


def special():
    """Operations on shapes, truth values and matrices, in one graph."""
    node = helper.make_node
    return [
        node("Abs", ["x"], ["size"]),
        node("Sqrt", ["size"], ["root"]),
        node("Exp", ["root"], ["grown"]),
        node("Log", ["grown"], ["logarithm"]),
        node("Shape", ["x"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["half"], value=onnx.numpy_helper.from_array(np.array([0.5], np.float32))),
        node("Greater", ["x", "half"], ["above"]),
        node("Less", ["x", "half"], ["below"]),
        node("Equal", ["x", "half"], ["same"]),
        node("Or", ["above", "same"], ["high"]),
        node("Not", ["below"], ["not_below"]),
        node("And", ["high", "not_below"], ["both"]),
        node("Where", ["both", "logarithm", "x"], ["chosen"]),
        node("Flatten", ["chosen"], ["flat"]),
        node("Constant", [], ["bias"], value_floats=[1.0, 2.0, 3.0]),
        node("Gemm", ["flat", "weight", "bias"], ["y"], alpha=0.5, beta=2.0, transB=1),
    ]


def model_of(nodes, arrays, shape=IMAGE, outputs=("y",), opset=20):
    """A parsed file with one input `x`."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def answers(model, x, output="y"):
    """Of ONNX Runtime, and of the module."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run([output], {"x": x})
    return expected, OnnxNetwork(model, Path(), output).eval()(torch.from_numpy(x)).numpy()


def test_an_operation_answers_as_in_onnx_runtime(subtests):
    for operation in sorted(FORMS):
        with subtests.test(operation=operation):
            rng = np.random.default_rng(sum(operation.encode()))
            for _ in range(3):
                constants, attributes = FORMS[operation](rng)
                outputs = ["y", "z"] if operation == "Split" else ["y"]
                names = [f"c{k}" for k in range(len(constants))]
                nodes, source = [], "x"
                if operation in ("Squeeze", "Reciprocal"):
                    before = ("Unsqueeze", ["x", "axes"]) if operation == "Squeeze" else ("Exp", ["x"])
                    nodes, source = [helper.make_node(*before, ["before"])], "before"
                nodes.append(helper.make_node(operation, [source, *names], outputs, **attributes))
                # A softmax at the end is undone: its argument gives the same classes.
                nodes.append(helper.make_node("Identity", ["y"], ["end"]))
                arrays = {"axes": integers(4), **dict(zip(names, (np.asarray(c) for c in constants), strict=True))}
                model = model_of(nodes, arrays, outputs=("end",))
                expected, answered = answers(model, a(rng, *IMAGE), "end")
                assert expected.shape == answered.shape, f"{operation} {attributes}"
                np.testing.assert_allclose(answered, expected, rtol=1e-4, atol=1e-5, err_msg=f"{operation} {attributes}")


def test_operations_on_shapes_and_truth_values():
    rng = np.random.default_rng(4)
    expected, answered = answers(model_of(special(), {"weight": a(rng, 3, 120)}), a(rng, *IMAGE))
    np.testing.assert_allclose(answered, expected, rtol=1e-4, atol=1e-5)


def test_every_operation_is_tried():
    assert set(FORMS) | CONSTANTS == set(OPERATIONS)


def stored(tmp_path, nodes, arrays, shape=("n", 8), opset=20):
    """A file with one input."""
    path = tmp_path / "net.onnx"
    onnx.save(model_of(nodes, arrays, shape, opset=opset), path)
    return str(path)


def dense(rng, *more):
    """A network of two layers, with nodes after it."""
    arrays = {"first": a(rng, 8, 16), "second": a(rng, 16, 3)}
    node = helper.make_node
    nodes = [node("MatMul", ["x", "first"], ["u"]), node("Relu", ["u"], ["v"]), node("MatMul", ["v", "second"], ["logits"])]
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
        ((hidden > 0) * torch.from_numpy(arrays["second"]).double()[:, 1]) @ torch.from_numpy(arrays["first"]).double().T / 0.25
    )
    assert torch.allclose(gradient.double(), exact, atol=1e-3)
    plain = Onnx(path=path, mean=(0.5,), std=(0.25,))(VECTOR)
    assert plain.access == Access.SCORES and plain.digest() != model.digest()
    assert plain.info.gradients == f"onnx:{path}?gradients=true"


def test_a_file_for_one_sample_takes_several(tmp_path):
    rng = np.random.default_rng(2)
    arrays = {"shape": integers(1, 8), "weight": a(rng, 8, 3)}
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["flat"]), helper.make_node("MatMul", ["flat", "weight"], ["y"])]
    model = Onnx(path=stored(tmp_path, nodes, arrays, (1, 2, 4)), gradients=True)(Domain(kind="signal", shape=(2, 4)))
    x = torch.rand(5, 2, 4)
    assert torch.allclose(model.predict(x), x.flatten(1) @ torch.from_numpy(arrays["weight"]), atol=1e-5)


def test_what_cannot_be_converted_is_named(tmp_path):
    nodes, arrays = dense(np.random.default_rng(3), helper.make_node("ThresholdedRelu", ["logits"], ["y"]))
    with pytest.raises(RequestError, match="without a counterpart in torch here: ThresholdedRelu: leave out gradients=true"):
        Onnx(path=stored(tmp_path, nodes, arrays), gradients=True)(VECTOR)


def test_other_answers_are_refused(tmp_path, monkeypatch):
    nodes, arrays = dense(np.random.default_rng(5), helper.make_node("Sigmoid", ["logits"], ["y"]))
    monkeypatch.setitem(OPERATIONS, "Sigmoid", lambda inputs: torch.tanh(inputs[0]))
    with pytest.raises(RequestError, match="answers differently in torch than in ONNX Runtime"):
        Onnx(path=stored(tmp_path, nodes, arrays), gradients=True, answers="logits")(VECTOR)


def test_published_networks(shared, subtests):
    for name in ["mnist-net_256x4", "mnist_relu_9_200", "resnet_2b", "vit_ibp_3_3_8", "vit_pgd_2_3_16"]:
        with subtests.test(name=name):
            path = shared / "onnx" / f"{name}.onnx"
            shape = (1, 28, 28) if name.startswith("mnist") else (3, 32, 32)
            model = Onnx(path=str(path), gradients=True)(Domain(kind="image", shape=shape))
            x = torch.rand(3, *shape, requires_grad=True)
            (gradient,) = torch.autograd.grad(model.predict(x).square().sum(), x)
            assert gradient.isfinite().all() and gradient.abs().amax((1, 2, 3)).min() > 0
