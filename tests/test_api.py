"""The Python call, on a module in memory."""

import inspect
import json
import subprocess
import sys

import jsonschema
import pytest
import torch
from torch import nn

import brinell
from _helpers import mlp
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import ModelError, RequestError
from brinell.datasets._memory import from_arrays
from brinell.inputs import models_of
from brinell.store.run import Run
from brinell.testing import linear_problem

RNG = torch.Generator().manual_seed(0)
X = torch.rand(20, 3, 4, 4, generator=RNG)
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
QUICK = {"eps": "0,0.05,0.1", "attack": ("fgsm", "pgd?steps=2")}


class Network(nn.Module):
    """Batch norm and dropout, which behave otherwise while training."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Flatten(),
        )
        self.head = nn.Linear(64, 3)
        rng = torch.Generator().manual_seed(1)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=rng) * 0.5
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        return self.head(self.body(x))


def labels_of(module, x):
    with torch.no_grad():
        return module.eval()(x).argmax(1)


@pytest.fixture
def network():
    return Network()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["brinell.engine.plan", "brinell.cli"])
def test_the_call_is_there_whatever_was_imported_before(first):
    """No package of the name of the call puts itself in its place, and a second look finds it too."""
    program = (
        f"import {first}, brinell; f = brinell.audit; g = brinell.audit\ntry: "
        "brinell.audit(1, 2, xyzzy=3)\n"
    )
    program += (
        "except brinell.core.errors.RequestError as error: print(error)\nfrom "
        "brinell.engine import plan\nbrinell.audit.__doc__"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == "there is no setting 'xyzzy'\n", answer.stderr


def test_the_result_is_what_the_command_line_prints(tmp_path, network, root):
    y = labels_of(network, X)
    result = brinell.audit(network, (X, y), out=tmp_path / "run", **QUICK)
    answer = result.payload()
    jsonschema.validate(answer, json.loads((root / "docs" / "schema" / "audit.json").read_text()))
    assert (
        answer["models"][0]["name"] == "Network"
        and answer["n"] == 20
        and answer["models"][0]["clean_accuracy"]["value"] == 1.0
    )
    robust = [rate["k"] for rate in answer["models"][0]["robust_accuracy"]]
    assert robust[0] == 20 and robust == sorted(robust, reverse=True) and robust[-1] < 20
    assert (tmp_path / "run" / "report.html").exists()
    run = Run.open(result.folder)
    assert run.manifest["models"][0]["architecture"] == "Network"
    assert run.manifest["models"][0]["parameters"] == sum(p.numel() for p in network.parameters())


def test_the_module_is_left_as_it_was(tmp_path, network):
    network.train()
    network.body[1].eval()
    network.head.weight.requires_grad_(False)
    network.head.bias.grad = torch.ones(3)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    flags = [(module.training) for module in network.modules()]
    wants = [
        (p.requires_grad, None if p.grad is None else p.grad.clone()) for p in network.parameters()
    ]
    brinell.audit(network, (X, torch.zeros(20, dtype=torch.int64)), out=tmp_path / "run", **QUICK)
    assert [module.training for module in network.modules()] == flags
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    for parameter, (needs, grad) in zip(network.parameters(), wants, strict=True):
        assert parameter.requires_grad == needs
        assert (parameter.grad is None) == (grad is None) and (
            grad is None or torch.equal(parameter.grad, grad)
        )
    assert network.modes and not any(network.modes), "the module was asked in training mode"
    assert torch.is_grad_enabled()


def test_an_audit_that_ends_in_an_error_leaves_the_module_too(tmp_path, network):
    network.train()
    with pytest.raises(RequestError):
        brinell.audit(
            network,
            (X, torch.zeros(20, dtype=torch.int64)),
            out=tmp_path / "run",
            **QUICK | {"eps": "x"},
        )
    assert network.training and network.head.training


def test_preprocessing_is_foolboxs(network, subtests):
    """Subtract, divide, then flip, all in the space of the network."""
    rows = [
        {"mean": MEAN, "std": STD, "axis": -3},
        {"mean": 0.5, "std": 0.25},
        {"flip_axis": -3},
        {"mean": MEAN, "std": STD, "axis": -3, "flip_axis": -3},
    ]
    network.eval()
    for preprocessing in rows:
        with subtests.test(preprocessing=preprocessing):
            axes = (-1, 1, 1) if "axis" in preprocessing else ()
            mean, std = (
                torch.tensor(preprocessing.get(key, start)).reshape(axes)
                for key, start in (("mean", 0.0), ("std", 1.0))
            )
            x = (X - mean) / std
            expected = network(x.flip(-3) if "flip_axis" in preprocessing else x)
            (model,) = models_of(
                network, brinell.data(X, torch.arange(20) % 3), "", preprocessing=preprocessing
            )
            torch.testing.assert_close(model.predict(X), expected)


def test_preprocessing_that_makes_no_sense(tmp_path_factory, network, subtests):
    rows = [
        ({"mena": 0.5}, "preprocessing has no 'mena'"),
        ({"mean": MEAN}, "gives 3 values of mean and no axis; for images it is axis=-3"),
        ({"std": 0.0}, "divides by a std of 0"),
        ({"mean": [0.1, 0.2], "axis": -3}, "mean= has 2 values, and the inputs have"),
        ({"mean": MEAN, "axis": 1}, "preprocessing along axis 1"),
    ]
    for preprocessing, message in rows:
        with subtests.test(preprocessing=preprocessing):
            tmp_path = tmp_path_factory.mktemp("case")
            with pytest.raises(RequestError, match=message):
                brinell.audit(
                    network,
                    (X, torch.zeros(20)),
                    preprocessing=preprocessing,
                    out=tmp_path / "run",
                    **QUICK,
                )


def test_bytes_become_the_unit_interval(tmp_path, network):
    pixels = (X * 255).round().to(torch.uint8)
    y = labels_of(network, pixels / 255)
    result = brinell.audit(network, (pixels, y), out=tmp_path / "run", **QUICK)
    assert result.models[0].clean_accuracy.value == 1.0
    assert Run.open(result.folder).manifest["data"]["domain"]["levels"] == 256


def test_a_target_and_a_domain_of_ones_own(tmp_path):
    problem = linear_problem("signal", "l2")
    data = from_arrays(problem.batch.x, problem.batch.y, domain=problem.model.domain)
    largest = float(problem.margin.max()) * 1.05
    result = brinell.audit(
        problem.model,
        data,
        norm="l2",
        eps=f"{largest}",
        attack="apgd-ce?steps=10",
        out=tmp_path / "run",
    )
    assert result.models[0].robust_accuracy[-1].k == 0


def test_a_module_on_data_named_by_a_spec(tmp_path):
    module = mlp(64, 10)
    result = brinell.audit(
        module, "digits", samples=12, eps="0.1", attack="fgsm", out=tmp_path / "run"
    )
    assert result.n == 12


@pytest.mark.slow
def test_verify(tmp_path, network):
    y = labels_of(network, X)
    settings = {"preprocessing": {"mean": MEAN, "std": STD, "axis": -3}}
    result = brinell.audit(
        network, (X, y), out=tmp_path / "run", eps=0.05, attack="fgsm", **settings
    )
    assert brinell.verify(result.folder, network, (X, y), **settings).passed
    assert not brinell.verify(result.folder, network, (X, y)), (
        "without the preprocessing it is another model"
    )
    with torch.no_grad():
        network.head.bias += 1
    assert not brinell.verify(result.folder, network, (X, y), **settings).passed
    with pytest.raises(RequestError, match=r"pass it to brinell.verify\(folder, model, data\)"):
        brinell.verify(result.folder)


def test_resume(tmp_path, network):
    y = labels_of(network, X)
    first = brinell.audit(network, (X, y), out=tmp_path / "run", **QUICK)
    network.modes.clear()
    resumed = brinell.audit(network, (X, y), out=tmp_path / "run", resume=True, **QUICK)
    assert len(network.modes) <= 5, (
        "what was there was computed again"
    )  # one for the shape, four for signs
    assert resumed.models[0].robust_accuracy == first.models[0].robust_accuracy
    with pytest.raises(RequestError, check=refused("studies.job.refuse_request")):
        brinell.audit(network, (1 - X, y), out=tmp_path / "run", resume=True, **QUICK)


def test_data_that_cannot_be_audited(tmp_path_factory, network, subtests):
    rows = [
        (X + 1, torch.zeros(20), "outside the bounds"),
        (X * torch.nan, torch.zeros(20), "NaN or infinity"),
        (X, torch.zeros(19), "19 labels for 20 inputs"),
        (X, torch.full((20,), 3), "tells 3 classes apart, and the data has labels from 3 to 3"),
        (X, 1 + torch.eye(20), "one whole number per sample"),
        (X[:0], torch.zeros(0), "nothing to audit|empty"),
        (X[:, :1], torch.zeros(20), "Network cannot take the data"),
    ]
    for x, y, message in rows:
        with subtests.test(x=x):
            tmp_path = tmp_path_factory.mktemp("case")
            with pytest.raises((RequestError, ModelError), match=message):
                brinell.audit(network, (x, y), out=tmp_path / "run", **QUICK)


def test_a_module_that_writes_into_its_input(tmp_path):
    """`x -= mean` in a forward would move the clean inputs and every measured distance with them."""

    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp(48, 3)

        def forward(self, x):
            x -= 0.1
            return self.inner(x)

    with pytest.raises(RequestError, match="writes into its input"):
        brinell.audit(InPlace(), (X, torch.zeros(20)), out=tmp_path / "run", **QUICK)


def test_half_precision_modules(tmp_path):
    module = mlp(48, 3).to(torch.bfloat16)
    result = brinell.audit(module, (X, labels_of(mlp(48, 3), X)), out=tmp_path / "run", **QUICK)
    assert result.models[0].clean_accuracy.value > 0.7


def test_import_costs_nothing():
    program = (
        "import sys, brinell; print(brinell.__version__, 'torch' in sys.modules, "
        "'numpy' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == f"{brinell.__version__} False False\n", answer.stderr
    with pytest.raises(AttributeError, match="has no attribute 'adit'"):
        brinell.adit  # noqa: B018
    assert Domain(kind="vector", shape=(1,)).levels is None


def test_a_result_of_one_model_answers_by_itself(audit_run):
    """Its figures, and `dir` with our names alone; a call names fourteen parameters at most."""
    result = brinell.open(audit_run)
    model = result.models[0]
    assert (result.robust_accuracy, result.per_class, result.verdict) == (
        model.robust_accuracy,
        model.per_class,
        model.verdict,
    )
    assert {"robust_accuracy", "robust", "clean", "payload"} <= set(
        dir(result)
    ) and "model_dump" not in dir(result)
    parameters = inspect.signature(brinell.audit).parameters.values()
    assert (
        sum(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters) <= 14
    )
