"""Models other than torch modules, through the command line: a forest on a real table, a file of
ONNX, labels alone.
"""

import json
import shlex

import numpy as np
import pytest
import torch

from _helpers import assert_same_rows
from _lazy import library
from brinell.attacks.square import Square
from brinell.cli import run as cli
from brinell.core.record import Outcome
from brinell.core.user_files import import_file
from brinell.datasets.table import TabularFile
from brinell.store.run import Run

onnx = library("onnx")
library("onnxruntime"), library("skops.io")

FIXED = "mean_radius+worst_radius"


@pytest.fixture(scope="module")
def example(root, tmp_path_factory):
    """Files of examples/forest.py, and the words of the command that it prints."""
    folder = tmp_path_factory.mktemp("forest")
    module = import_file(root / "examples" / "forest.py")
    return folder, shlex.split(module.write(folder))


@pytest.fixture(scope="module")
def work(example):
    return example[0]


def words(work, out, *options, model="", data=f"&fixed={FIXED}", attack="square?steps=20"):
    return [
        *(
            "audit",
            "--data",
            f"table:{work / 'test.csv'}?label=diagnosis{data}",
            "--samples",
            "16",
            "--eps",
            "0:0.2:3",
        ),
        *("--model", f"sklearn:{work / 'forest.skops'}?trusted=sklearn.tree._tree.Tree{model}"),
        *("--attack", attack, "--out", str(out), *options),
    ]


@pytest.mark.slow
def test_the_command_of_the_example_audits_a_forest_on_a_table(example, tmp_path, capsys):
    (work, (program, *command)), run = example, tmp_path / "run"
    assert program == "brinell" and FIXED in command[2]
    assert cli([*command, "--samples", "24", "--out", str(run), "--json"]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    counts = [rate["k"] for rate in answer["models"][0]["robust_accuracy"]]
    assert counts[0] >= 21 and counts[-1] < counts[0] // 2, "a forest without any defence"
    assert "note: bounds are the least and the largest value in the data for mean_texture" in err
    assert "note: no attack changes mean_radius, worst_radius" in err
    records, manifest = Run.open(run).rows, Run.open(run).manifest
    assert (
        manifest["data"]["classes"] == ["benign", "malignant"]
        and len(manifest["data"]["domain"]["columns"]) == 30
    )
    data = TabularFile(
        path=str(work / "test.csv"), label="diagnosis", fixed=tuple(FIXED.split("+"))
    )()
    fooled_ids = sorted(set(records.sample_id[records.outcome == Outcome.BROKEN].tolist()))
    stored = Run.open(run).adversarial("forest", "square?steps=300", fooled_ids)
    fixed = [index for index, column in enumerate(data.domain.columns) if column.fixed]
    assert len(fixed) == 2 and len(stored) == len(fooled_ids) > 8
    for sample, x in stored.items():
        change = x - data.load([sample])[0].numpy()
        assert (change[fixed] == 0).all() and 0 < np.abs(change).max() <= 0.2001
    page = (run / "report.html").read_text(encoding="utf-8")
    assert (
        '<dl class="changes"><dt>' in page and "no attack changes mean_radius, worst_radius" in page
    )
    assert cli(["verify", str(run)]) == 0


@pytest.mark.slow
def test_a_run_on_a_table_goes_on_where_it_stopped(work, tmp_path, monkeypatch):
    full, cut = tmp_path / "whole", tmp_path / "cut"
    assert cli(words(work, full)) == 0

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Square, "__call__", interrupt)
        assert cli(words(work, cut)) == 130
    assert cli(["audit", "--resume", "--out", str(cut)]) == 0
    assert_same_rows(Run.open(full).rows, Run.open(cut).rows)


@pytest.mark.slow
def test_labels_alone(work, tmp_path, capsys):
    run = tmp_path / "run"
    assert (
        cli(
            words(
                work,
                run,
                "--attack",
                "square",
                model="&answers=labels",
                attack="hop-skip-jump?steps=2",
            )
        )
        == 0
    )
    err = capsys.readouterr().err
    assert (
        "note: forest: left out Square, 5000 steps: it needs scores, and the "
        "model gives labels only" in err
    )
    records = Run.open(run).rows
    of = {
        name: set(records.outcome[records.attack == name].tolist())
        for name in ("hop-skip-jump?steps=2", "square")
    }
    assert Outcome.BROKEN in of["hop-skip-jump?steps=2"] and not of["square"]
    checks = {
        check["code"]: check["passed"] for check in Run.open(run).manifest["checks"]["forest"]
    }
    assert checks["random-answers"] is True and checks["zero-gradients"] is None
    assert cli(words(work, tmp_path / "no", model="&answers=labels")) == 2
    line = capsys.readouterr().err
    assert (
        line.count("\n") == 1
        and "no attack can run on forest (square?steps=20: it needs scores" in line
    )
    assert line.endswith("ask for --attack hop-skip-jump, which needs labels only\n")


@pytest.mark.slow
def test_a_benchmark_set_of_a_table(work, tmp_path):
    data, model, out = (*words(work, "")[2:3], *words(work, "")[8:9], tmp_path / "set")
    options = [
        "--distortions",
        "gaussian-noise+salt-and-pepper",
        "--steps",
        "40",
        "--levels",
        "1,1.5",
        "--samples",
        "8",
    ]
    assert cli(["benchmark", "--data", data, "--model", model, *options, "--out", str(out)]) == 0
    scored = tmp_path / "scored"
    assert (
        cli(
            [
                "audit",
                "--data",
                f"bench:{out}",
                "--model",
                model,
                "--eps",
                "0",
                "--out",
                str(scored),
            ]
        )
        == 0
    )
    records = Run.open(scored).rows
    assert len(records) and set(records.outcome.tolist()) == {Outcome.MISCLASSIFIED}, (
        "asked in the units of the table"
    )


@pytest.mark.slow
def test_classes_in_another_order_are_matched_by_name(work, tmp_path, capsys):
    assert cli(words(work, tmp_path / "run", data="&classes=malignant+benign")) == 0
    assert "matched by name: its answers 1, 0 are malignant, benign" in capsys.readouterr().err
    run = Run.open(tmp_path / "run")
    assert run.manifest["models"][0]["class_order"] == [1, 0]
    clean = run.rows
    assert np.mean(clean.clean_pred == clean.label) > 0.8
    assert cli(["verify", str(tmp_path / "run")]) == 0


@pytest.mark.slow
def test_classes_that_do_not_cover_each_other_are_refused(work, tmp_path, capsys):
    assert cli(words(work, tmp_path / "run", model="&class_names=benign+unknown")) == 2
    line = capsys.readouterr().err
    assert "it has no 'malignant'" in line and "class_names=" in line


# ONNX


def network(path, noise=0.0):
    """Rows of four values to logits of two classes, with random numbers added where there is noise."""
    helper = onnx.helper
    weight = np.array([[4, -4], [2, -2], [-3, 3], [1, -1]], dtype=np.float32)
    bias = np.array([-2, 2], dtype=np.float32)
    nodes = [helper.make_node("Gemm", ["x", "weight", "bias"], ["logits"])]
    if noise:
        nodes += [
            helper.make_node("RandomNormalLike", ["logits"], ["noise"], scale=noise),
            helper.make_node("Add", ["logits", "noise"], ["noisy"]),
        ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info(
                "noisy" if noise else "logits", onnx.TensorProto.FLOAT, None
            )
        ],
        [
            onnx.numpy_helper.from_array(weight, "weight"),
            onnx.numpy_helper.from_array(bias, "bias"),
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return torch.from_numpy(weight), torch.from_numpy(bias)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Vectors with the labels that the network gives them, and the network in ONNX and in torch."""
    folder = tmp_path_factory.mktemp("onnx")
    weight, bias = network(folder / "net.onnx")
    network(folder / "noisy.onnx", noise=1.0)
    x = np.random.default_rng(0).random((30, 4), dtype=np.float32)
    y = (torch.from_numpy(x) @ weight + bias).argmax(1).numpy()
    np.savez(folder / "data.npz", x=x, y=y)
    (folder / "net.py").write_text(
        "import torch\n\n\ndef net():\n    layer = torch.nn.Linear(4, 2)\n"
        f"    layer.weight.data = torch.tensor({weight.T.tolist()})\n    "
        f"layer.bias.data = torch.tensor({bias.tolist()})\n"
        "    return layer\n",
        encoding="utf-8",
    )
    return folder


def same_records(records, *models):
    """Verdicts and queries to the letter, scores within 1e-4."""
    rows = [records.model == name for name in models]
    assert rows[0].sum() == rows[1].sum() > 0 and (records.outcome == Outcome.BROKEN).any()
    for name in (
        "sample_id",
        "outcome",
        "attacked",
        "broken",
        "adv_pred",
        "forwards",
        "queries_to_success",
    ):
        assert (
            getattr(records, name)[rows[0]].tolist() == getattr(records, name)[rows[1]].tolist()
        ), name
    for name in ("clean_confidence", "adv_confidence", "adv_margin", "margin", "linf", "l2"):
        first, second = (np.ma.filled(getattr(records, name)[row], 0) for row in rows)
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-4, err_msg=name)


def test_an_onnx_file_gives_the_records_of_the_module(vectors, tmp_path):
    run = tmp_path / "run"
    models = [
        "--model",
        f"onnx:{vectors / 'net.onnx'}",
        "--model",
        f"torch:{vectors / 'net.py'}:net?name=module",
    ]
    options = [
        "--data",
        f"npz:{vectors / 'data.npz'}",
        "--samples",
        "12",
        "--eps",
        "0:0.3:3",
        "--attack",
        "square?steps=40",
    ]
    assert cli(["audit", *models, *options, "--out", str(run)]) == 0
    records = Run.open(run).rows
    assert len(records) == 2 * 12 * 2, "a clean row and one of the stage"
    same_records(records, "net", "module")


@pytest.mark.slow
def test_a_network_that_the_example_exports(root, tmp_path, shared):
    """MNIST's cnn4 as an ONNX file and as a module, on real digits."""
    weights = shared / "mnist_weights" / "cnn4_pgd.safetensors"
    source = root / "examples" / "models" / "mnist.py"
    to_onnx, network = import_file(root / "examples" / "to_onnx.py"), import_file(source).cnn4()
    to_onnx.load_weights(network, to_onnx.read_weights(weights), str(weights))
    to_onnx.export(network, (1, 28, 28), tmp_path / "cnn4.onnx")
    models = [
        "--model",
        f"onnx:{tmp_path / 'cnn4.onnx'}",
        "--model",
        f"torch:{source}:cnn4?weights={weights}&name=module",
    ]
    options = [
        "--data",
        f"npz:{shared / 'mnist' / 'mnist_test.npz'}",
        "--samples",
        "24",
        "--eps",
        "0.3,0.4",
    ]
    assert (
        cli(
            [
                "audit",
                *models,
                *options,
                "--attack",
                "square?steps=60",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    same_records(Run.open(tmp_path / "run").rows, "cnn4", "module")


def test_a_file_that_answers_differently_twice_is_noticed(vectors, tmp_path, capsys):
    options = [
        "--data",
        f"npz:{vectors / 'data.npz'}",
        "--eps",
        "0.01",
        "--attack",
        "square?steps=5",
    ]
    assert (
        cli(
            [
                "audit",
                "--model",
                f"onnx:{vectors / 'noisy.onnx'}",
                *options,
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    assert (
        "warning: noisy: the model answers differently to the same input" in capsys.readouterr().err
    )
    assert [warning["code"] for warning in Run.open(tmp_path / "run").manifest["warnings"]] == [
        "random-answers"
    ]
