"""Files of ONNX as targets: the same answers as a calculation by hand, and one clear line for each
that cannot be asked.
"""

import sys

import numpy as np
import pytest
import torch

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.models import _onnx_session
from brinell.models._answers import recognise_answers
from brinell.models.onnx import Onnx
from brinell.testing import check_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT

IMAGE = Domain(kind="image", shape=(3, 4, 5))
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(60, 4)).astype(np.float32)
X = torch.from_numpy(RNG.random((7, 3, 4, 5), dtype=np.float32))
LOGITS = X.flatten(1) @ torch.from_numpy(WEIGHT)


def written(
    path,
    shape=("n", 3, 4, 5),
    nodes=(),
    outputs=("logits",),
    kind=FLOAT,
    initializers=(),
    constants=(),
    **save,
):
    """A file of ONNX: flatten, multiply by WEIGHT, then `nodes`."""
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
            *nodes,
        ],
        "graph",
        [helper.make_tensor_value_info("x", kind, shape), *initializers],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(WEIGHT, "weight"), *constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, **save)
    return Onnx(path=str(path))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "net.onnx"


def test_logits(file):
    model = written(file)(IMAGE)
    check_model(model)
    assert model.access == Access.SCORES and model.classes == 4 and model.name == "net"
    assert torch.allclose(model.predict(X), LOGITS, atol=1e-5)


SOFTMAX = helper.make_node("Softmax", ["logits"], ["p"])


def test_probabilities_are_seen_and_taken_for_their_logarithms(file):
    model = recognise_answers(written(file, nodes=[SOFTMAX], outputs=["p"])(IMAGE), X)
    check_model(model)
    assert torch.allclose(model.predict(X), LOGITS.log_softmax(1), atol=1e-4)
    as_they_are = Onnx(path=str(file), answers="logits")(IMAGE)
    assert torch.allclose(as_they_are.predict(X), LOGITS.softmax(1), atol=1e-5)
    assert as_they_are.digest() != model.digest()


def test_a_fixed_number_of_samples_is_asked_that_many_at_a_time(file):
    for size in (1, 3, 7, 9):
        model = written(file, shape=(size, 3, 4, 5))(IMAGE)
        assert torch.allclose(model.predict(X), LOGITS, atol=1e-5), size


def test_channels_last(file):
    model = written(file, shape=("n", 4, 5, 3))(IMAGE)
    expected = X.permute(0, 2, 3, 1).flatten(1) @ torch.from_numpy(WEIGHT)
    assert torch.allclose(model.predict(X), expected, atol=1e-5)
    written(file, shape=("n", "a", "b", "c"))
    first, last = (Onnx(path=str(file), layout=way)(IMAGE) for way in ("first", "last"))
    assert torch.allclose(first.predict(X), LOGITS, atol=1e-5) and torch.allclose(
        last.predict(X), expected, atol=1e-5
    )
    assert first.digest() != last.digest()


def test_normalisation(file):
    written(file)
    model = Onnx(path=str(file), mean=(0.1, 0.2, 0.3), std=(0.5,))(IMAGE)
    expected = ((X - torch.tensor([0.1, 0.2, 0.3])[:, None, None]) / 0.5).flatten(
        1
    ) @ torch.from_numpy(WEIGHT)
    assert torch.allclose(model.predict(X), expected, atol=1e-4)
    with pytest.raises(RequestError, match="mean has 2 numbers for 3 channels"):
        Onnx(path=str(file), mean=(0.1, 0.2))(IMAGE)


def test_one_of_several_outputs(file):
    second = helper.make_node("Neg", ["logits"], ["other"])
    written(file, nodes=[second, SOFTMAX], outputs=["other", "p"])
    with pytest.raises(
        RequestError,
        match=r"other \(3, 4\), p \(3, 4\); several may be the logits: say which by output=",
    ):
        Onnx(path=str(file))(IMAGE)
    assert torch.allclose(
        Onnx(path=str(file), output="other")(IMAGE).predict(X), -LOGITS, atol=1e-5
    )
    with pytest.raises(RequestError, match="has no output 'q'; it has other, p"):
        Onnx(path=str(file), output="q")(IMAGE)
    assert torch.allclose(
        written(file, nodes=[SOFTMAX], outputs=["logits", "p"])(IMAGE).predict(X), LOGITS, atol=1e-5
    )
    argmax = helper.make_node("ArgMax", ["logits"], ["best"], axis=1)
    graph = written(file, nodes=[argmax], outputs=["logits"])
    model = onnx.load(file)
    model.graph.output.append(helper.make_tensor_value_info("best", onnx.TensorProto.INT64, None))
    onnx.save(model, file)
    assert torch.allclose(graph(IMAGE).predict(X), LOGITS, atol=1e-5), (
        "labels beside the scores are passed over"
    )
    del model.graph.output[0]
    onnx.save(model, file)
    with pytest.raises(
        RequestError, match="answers with best, and none holds scores: export one that does"
    ):
        graph(IMAGE)


def test_weights_beside_the_file_are_part_of_the_digest(file):
    options = {"save_as_external_data": True, "size_threshold": 0, "location": "net.data"}
    model_file = written(file, **options)
    digest = model_file(IMAGE).digest()
    data = bytearray((file.parent / "net.data").read_bytes())
    data[0] ^= 1
    (file.parent / "net.data").write_bytes(data)
    assert model_file(IMAGE).digest() != digest
    assert written(file)(IMAGE).digest() != digest


def test_other_shapes(file):
    model_file = written(file)
    for shape in ((3, 4, 6), (1, 4, 5), (4, 5, 3)):
        with pytest.raises(
            RequestError,
            match=r"net takes inputs of shape \[3, 4, 5\], and the data has images of shape",
        ):
            model_file(Domain(kind="image", shape=shape))
    with pytest.raises(
        RequestError,
        match=r"takes inputs of shape \[3, 4, 5\], and the data has vectors of shape \[60\]",
    ):
        model_file(Domain(kind="vector", shape=(60,)))


def test_inputs_of_another_form(file):
    second_output = helper.make_tensor_value_info("z", FLOAT, ["n", 4])
    add = helper.make_node("Add", ["logits", "z"], ["sum"])
    with pytest.raises(
        RequestError, match="net has 2 inputs .x .*, z .*: Brinell asks models of one"
    ):
        written(file, nodes=[add], outputs=["sum"], initializers=[second_output])(IMAGE)
    with pytest.raises(
        RequestError, match=r"net cannot take the data, arrays of shape \(n, 3, 4, 6\)"
    ):
        written(file, shape=("n", "a", "b", "c"))(Domain(kind="image", shape=(3, 4, 6)))
    cast = helper.make_node("Cast", ["x"], ["float"], to=FLOAT)
    for nodes, kind, shape, message in (
        (
            [cast, helper.make_node("Flatten", ["float"], ["y"])],
            onnx.TensorProto.INT64,
            ["n", 3, 4, 5],
            r"tensor\(int64\), and",
        ),
        (
            [helper.make_node("ReduceMax", ["x"], ["y"], axes=[1, 2], keepdims=0)],
            FLOAT,
            [3, 4, 5],
            r"net takes one input of shape \[3, 4, 5\] and has no axis for the samples: export it",
        ),
    ):
        ports = (
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info("y", FLOAT, None)],
        )
        graph = helper.make_graph(nodes, "graph", *ports)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            file,
        )
        with pytest.raises(RequestError, match=message):
            Onnx(path=str(file))(IMAGE)


def test_a_file_of_another_format_is_named(file):
    torch.save({}, file)
    weights = file.read_bytes()
    for content, message in (
        (
            weights,
            "holds weights of torch, and no ONNX file: rename it to .*net.pt, "
            "and write model.py:FACTORY",
        ),
        (b"\x80\x04}.", "holds a pickle"),
        (b"", "holds nothing"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"<!doctype html>", "holds a page of the web"),
        (b"no network", "holds text that begins with 'no network'"),
        (bytes(range(255, 100, -1)), "begins with the bytes ff fe fd fc, is no graph"),
    ):
        file.write_bytes(content)
        with pytest.raises(RequestError, match=message) as error:
            Onnx(path=str(file))(IMAGE)
        assert "fetch it again" not in str(error.value)


def test_files_that_cannot_be_read(file, monkeypatch):
    with pytest.raises(RequestError, match="there is no file .*: check the path"):
        Onnx(path=str(file))(IMAGE)
    with pytest.raises(RequestError, match="write onnx:FILE"):
        Onnx()(IMAGE)
    model_file = written(file)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(RequestError, match="net.onnx is damaged or no ONNX file") as error:
        model_file(IMAGE)
    assert "\n" not in str(error.value)
    file.write_bytes(content)
    for module in ("onnx", "onnxruntime"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(
                RequestError, match=rf"^{module} is not installed.*pip install 'brinell\[onnx\]'$"
            ):
                model_file(IMAGE)


def test_files_as_others_export_them(file):
    """A batch of one, inputs flattened to a column: what is done about it is said, and the answers
    are the same.
    """
    reshape = helper.make_node("Reshape", ["logits", "four"], ["rows"])
    for shape in ((1, 60), (1, 60, 1), ("n", 60)):
        with pytest.raises(
            RequestError,
            match="flattened from .* with the channels first or last: say it by layout=first",
        ):
            written(file, shape=shape)(IMAGE)
        first = Onnx(path=str(file), layout="first")(IMAGE)
        assert torch.allclose(first.predict(X), LOGITS, atol=1e-5)
        assert "flattened row by row" in first.info.notes[0]
        last = Onnx(path=str(file), layout="last")(IMAGE)
        assert torch.allclose(
            last.predict(X), X.permute(0, 2, 3, 1).flatten(1) @ torch.from_numpy(WEIGHT), atol=1e-5
        )
    grey = Domain(kind="image", shape=(1, 6, 10))
    written(file, shape=(1, 60, 1))
    model = Onnx(path=str(file))(grey)
    assert "exported for batches of 1, and is asked in such" in model.info.notes[1]
    assert torch.allclose(model.predict(X.reshape(7, 1, 6, 10)), LOGITS, atol=1e-5)
    # So is what holds its number of samples inside.
    written(file, shape=(1, 60, 1), nodes=[reshape], outputs=["rows"])
    model_proto = onnx.load(file)
    model_proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 4]), "four"))
    onnx.save(model_proto, file)
    model = Onnx(path=str(file))(grey)
    assert "exported for batches of 1, and is asked in such" in model.info.notes[1]
    assert torch.allclose(model.predict(X.reshape(7, 1, 6, 10)), LOGITS, atol=1e-5)


def test_a_network_that_mixes_samples_is_asked_in_its_own_batches(file):
    nodes = [
        helper.make_node("ReduceMax", ["logits"], ["top"], axes=[0]),
        helper.make_node("Add", ["logits", "top"], ["rows"]),
    ]
    model = written(file, shape=(1, 3, 4, 5), nodes=nodes, outputs=["rows"])(IMAGE)
    assert "asked in such batches" in model.info.notes[0] and torch.allclose(
        model.predict(X), 2 * LOGITS, atol=1e-4
    )


@pytest.mark.parametrize("turns", RNG.integers(10**11, 10**13, 2).tolist())
def test_a_loop_without_an_end_is_ended(tmp_path, monkeypatch, turns):
    """At once where it is opened, since it is asked then."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Add", ["value", "step"], ["sum"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("value", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("goes", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", FLOAT, None),
        ],
        [onnx.numpy_helper.from_array(np.float32(1e-9), "step")],
    )
    node = helper.make_node("Loop", ["turns", "begins", "logits"], ["late"], body=body)
    monkeypatch.setattr(_onnx_session, "SECONDS", 0.2)
    monkeypatch.setattr(_onnx_session, "SECONDS_EACH", 0.0)
    for count in (3, turns):
        constants = [
            onnx.numpy_helper.from_array(np.int64(count), "turns"),
            onnx.numpy_helper.from_array(np.array(True), "begins"),
        ]
        written(tmp_path / "m.onnx", nodes=[node], outputs=("late",), constants=constants)
        if count == 3:
            model = Onnx(path=str(tmp_path / "m.onnx"))(IMAGE)
            assert torch.allclose(model.predict(X), LOGITS, atol=1e-4)
        else:
            with pytest.raises(RequestError, match="a loop without an end"):
                Onnx(path=str(tmp_path / "m.onnx"))(IMAGE)


def test_a_batch_of_one_inside_is_asked_sample_by_sample(tmp_path, subtests):
    """Reshapes drawn at random: those that hold a batch of one work and say so, others say
    nothing.
    """
    rng = np.random.default_rng(4)
    for number in range(8):
        holds, inner = bool(number % 2), rng.choice([2, 5, 10])
        first = 1 if holds else rng.choice([-1, 0])
        sides = [first, 60 // inner, inner if first < 0 or rng.integers(2) else -1]
        shape = np.array(sides, dtype=np.int64)
        back = np.array([1 if holds and rng.integers(2) else 0, -1], dtype=np.int64)
        with subtests.test(str((sides, back.tolist()))):
            graph = helper.make_graph(
                [
                    helper.make_node("Reshape", ["x", "shape"], ["parts"]),
                    helper.make_node("Reshape", ["parts", "back"], ["flat"]),
                    helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
                ],
                "graph",
                [helper.make_tensor_value_info("x", FLOAT, ("n", 3, 4, 5))],
                [helper.make_tensor_value_info("logits", FLOAT, None)],
                [
                    onnx.numpy_helper.from_array(array, name)
                    for name, array in (("shape", shape), ("back", back), ("weight", WEIGHT))
                ],
            )
            opsets = [helper.make_opsetid("", 17)]
            path = tmp_path / f"{number}.onnx"
            onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
            for gradients in (False, True):
                model = Onnx(path=str(path), gradients=gradients)(IMAGE)
                assert torch.allclose(model.predict(X), LOGITS, atol=1e-5)
                if not gradients:
                    assert any("sample by sample" in note for note in model.info.notes) == holds
                else:
                    assert model.access == Access.GRADIENTS
