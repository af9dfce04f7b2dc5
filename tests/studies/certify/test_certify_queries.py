"""`brinell certify QUERY` on networks whose answers to a query are known exactly."""

import itertools

import numpy as np
import pytest

import brinell
from brinell.core.errors import RequestError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def saved(path, layers, shape=(1, 4), name="Relu", domain=""):
    """A network of linear layers with an activation between them."""
    nodes, arrays, value = [helper.make_node("Flatten", ["x"], ["v0"])], {}, "v0"
    for k, (weight, bias) in enumerate(layers):
        arrays[f"w{k}"], arrays[f"b{k}"] = weight.astype(np.float32), bias.astype(np.float32)
        nodes.append(helper.make_node("Gemm", [value, f"w{k}", f"b{k}"], [f"u{k}"], transB=1))
        value = f"u{k}"
        if k < len(layers) - 1:
            nodes.append(helper.make_node(name, [value], [f"r{k}"], domain=domain))
            value = f"r{k}"
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(value, FLOAT, None)],
        [onnx.numpy_helper.from_array(array, key) for key, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def written(path, low, high, constraint, outputs):
    """A query in VNN-LIB 1.0."""
    names = [f"X_{k}" for k in range(len(low))] + [f"Y_{k}" for k in range(outputs)]
    lines = [f"(declare-const {name} Real)" for name in names]
    for k, (least, most) in enumerate(zip(low, high, strict=True)):
        lines += [f"(assert (>= X_{k} {least!r}))", f"(assert (<= X_{k} {most!r}))"]
    path.write_text("\n".join([*lines, f"(assert {constraint})"]))
    return path


def answered(query, network, **settings):
    return brinell.certify(query=str(query), network=str(network), **settings)


def random_layers(rng, sizes):
    return [
        (rng.normal(size=(n, m)) / np.sqrt(m), rng.normal(size=n) / 2)
        for m, n in itertools.pairwise(sizes)
    ]


def largest(layers, low, high):
    """Largest value of output 0 less output 1 of a network with one hidden layer: over all
    activation patterns by corners of a fine grid for one input, exactly by its breakpoints.
    """
    (w0, b0), (w1, b1) = layers
    points = [
        low,
        high,
        *(-b / w for w, b in zip(w0[:, 0], b0, strict=True) if w and low < -b / w < high),
    ]
    hidden = np.maximum(0, np.outer(points, w0[:, 0]) + b0)
    y = hidden @ w1.T + b1
    return float((y[:, 0] - y[:, 1]).max())


def confirmed(network, query_x, shape):
    """The outputs of ONNX Runtime at a counterexample."""
    x = np.array(list(query_x.values()), np.float32).reshape(shape)
    session = runtime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0].ravel()


def test_thresholds_around_the_maximum_of_a_network_of_one_input(tmp_path, subtests):
    for number, seed in enumerate(range(2)):
        with subtests.test(str(seed)):
            folder = tmp_path / str(number)
            folder.mkdir()
            rng = np.random.default_rng(seed)
            layers = random_layers(rng, (1, 6, 2))
            network = saved(folder / "net.onnx", layers, shape=(1, 1))
            low, high = -1.0, 1.5
            top = largest(
                [
                    (w.astype(np.float32).astype(float), b.astype(np.float32).astype(float))
                    for w, b in layers
                ],
                low,
                high,
            )
            for gap, verdicts in ((-0.02, {"sat"}), (0.02, {"unsat", "unknown"})):
                query = written(
                    folder / "q.vnnlib", [low], [high], f"(>= (- Y_0 Y_1) {top + gap!r})", 2
                )
                seconds = 20 if gap < 0 else 1
                result = answered(query, network, timeout=seconds, method="beta-crown?parts=200")
                assert result.verdict in verdicts, f"{gap}"
                lines = list(result.lines())
                assert lines[0] == result.verdict
                if result.verdict == "sat":
                    y = confirmed(network, result.x, (1, 1))
                    assert y[0] - y[1] >= top + gap - 1e-6 and low <= result.x["X_0"] <= high
                    assert lines[1] == f"((X_0 {result.x['X_0']!r})" and lines[-2].endswith("))")
                    assert np.allclose(y, list(result.y.values()))
            assert result.verdict == "unsat"  # branch and bound is exact on six neurons


def test_a_linear_network_in_both_forms(tmp_path, subtests):
    for number, method in enumerate(["interval", "crown"]):
        with subtests.test(method):
            folder = tmp_path / str(number)
            folder.mkdir()
            rng = np.random.default_rng(3)
            layers = random_layers(rng, (4, 3))
            network = saved(folder / "net.onnx", layers)
            weight, bias = (part.astype(np.float32).astype(float) for part in layers[0])
            row, low, high = weight[0] - weight[2], np.zeros(4), np.full(4, 0.5)
            top = float(bias[0] - bias[2] + np.maximum(row, 0).sum() * 0.5)
            second = folder / "second.vnnlib"
            second.write_text(
                "(vnnlib-version <2.0>) (declare-network f (declare-input X "
                "float32 [1,4]) (declare-output Y float32 [1,3]))"
                + "".join(
                    f"(assert (<= 0.0 X[0,{k}])) (assert (<= X[0,{k}] 0.5))" for k in range(4)
                )
                + f"(assert (or (>= Y[0,1] 1e9) (> Y[0,0] (+ Y[0,2] {top - 0.01!r}))))"
            )
            first = written(
                folder / "first.vnnlib",
                low.tolist(),
                high.tolist(),
                f"(>= Y_0 (+ Y_2 {top - 0.01!r}))",
                3,
            )
            for query, name in ((first, str(network)), (second, f"f={network}")):
                result = answered(query, name, timeout=20, method=method)
                assert result.verdict == "sat" and result.slack >= 0 and result.gradients
                y = confirmed(network, result.x, (1, 4))
                assert y[0] - y[2] >= top - 0.01 - 1e-6
            above = written(
                folder / "above.vnnlib",
                low.tolist(),
                high.tolist(),
                f"(>= Y_0 (+ Y_2 {top + 0.01!r}))",
                3,
            )
            result = answered(above, network, timeout=0.2, method=method)
            assert result.verdict == {"interval": "unknown", "crown": "unsat"}[method]
            assert -0.02 < result.slack < 0 if method == "interval" else result.slack is None


def test_a_network_without_gradients_is_attacked_by_scores(tmp_path):
    rng = np.random.default_rng(4)
    network = saved(
        tmp_path / "net.onnx",
        random_layers(rng, (4, 8, 2)),
        name="QuickGelu",
        domain="com.microsoft",
    )
    y = confirmed(network, {k: 0.25 for k in range(4)}, (1, 4))
    query = written(
        tmp_path / "q.vnnlib", [0.0] * 4, [0.5] * 4, f"(>= Y_0 {float(y[0]) + 0.02!r})", 2
    )
    result = answered(query, network, timeout=20)
    assert result.verdict == "sat" and not result.gradients


def test_a_box_of_one_point_is_answered(tmp_path):
    network = saved(tmp_path / "net.onnx", random_layers(np.random.default_rng(5), (4, 2)))
    y = confirmed(network, {k: 0.25 for k in range(4)}, (1, 4))
    query = written(
        tmp_path / "q.vnnlib", [0.25] * 4, [0.25] * 4, f"(<= Y_0 {float(y[0]) + 1e-4!r})", 2
    )
    result = answered(query, network, timeout=5)
    assert result.verdict == "sat" and set(result.x.values()) == {0.25}


def test_what_does_not_fit_is_refused(tmp_path):
    network = saved(tmp_path / "net.onnx", random_layers(np.random.default_rng(6), (4, 2)))
    query = written(tmp_path / "q.vnnlib", [0.0] * 4, [1.0] * 4, "(>= Y_0 1.0)", 2)
    narrow = written(tmp_path / "n.vnnlib", [0.0] * 3, [1.0] * 3, "(>= Y_0 1.0)", 2)
    wide = written(tmp_path / "w.vnnlib", [0.0] * 4, [1.0] * 4, "(>= Y_0 1.0)", 5)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    for arguments, message in (
        ({"query": str(narrow), "network": str(network)}, "takes inputs of shape"),
        (
            {"query": str(wide), "network": str(network)},
            "answers with 2 values, and the query has 5 outputs",
        ),
        ({"query": str(query), "network": str(tmp_path / "none.onnx")}, "there is no file"),
        ({"query": str(query)}, "asks about a network, and none is named"),
        ({"network": str(network)}, "belongs to a query"),
        (
            {"query": str(query), "network": str(network), "eps": "0.1"},
            "--eps has no part in the answer to a query",
        ),
        ({"query": str(query), "network": str(broken)}, "no ONNX file"),
        ({"query": str(query), "network": str(network), "method": "crwn"}, "crown"),
        ({"query": str(query), "network": str(network), "timeout": 0}, "timeout"),
    ):
        with pytest.raises(RequestError, match=message):
            brinell.certify(**arguments)


def test_the_command_answers_in_the_form_of_the_competitions(tmp_path, capsys):
    from brinell.cli import run

    network = saved(
        tmp_path / "net.onnx", random_layers(np.random.default_rng(7), (4, 2)), shape=(1, 2, 2)
    )
    query = written(tmp_path / "q.vnnlib", [0.0] * 4, [1.0] * 4, "(>= Y_0 -1000.0)", 2)
    assert run(["certify", str(query), "--network", str(network)]) == 0
    first, *values, last = capsys.readouterr().out.splitlines()
    assert (
        first == "sat"
        and len(values) == 6
        and values[0].startswith("((X_0 ")
        and last.startswith("; ONNX Runtime")
    )
