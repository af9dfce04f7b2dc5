"""A query in VNN-LIB about a network in ONNX."""

import pytest


def write_query(folder):
    """A network of one input that answers with it, and a query that nothing satisfies; the paths of both as text."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ports = [helper.make_tensor_value_info(name, kind, (1, 1)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", ports[:1], ports[1:])
    network, query = folder / "net.onnx", folder / "query.vnnlib"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), network)
    bounds = "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_0 2))"
    query.write_text(f"(declare-const X_0 Real) (declare-const Y_0 Real) {bounds}")
    return str(query), str(network)
