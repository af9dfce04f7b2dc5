"""Models and samples at the ends of what can be asked: one line or a right figure, never a crash."""

import itertools
import re

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _defences import Noisy, Quantised, WrongGradient
from _helpers import Recorder, mlp, plan_of, run_audit, states_of, threshold, workspace
from brinell.analysis.indicators import checks_of, not_made
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import ModelError, RequestError
from brinell.core.model import Access
from brinell.core.record import Outcome, has_broken
from brinell.engine.attack_names import CASCADES
from brinell.models._torch_model import TorchModel
from brinell.studies.register import write_page

X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(4, dtype=int)


def closed(access=Access.SCORES):
    """The threshold model without its gradients."""
    model = Recorder(lambda x: threshold(0.5)(x).detach())
    model.access = access
    return model


# A model without gradients


def test_what_cannot_run_on_a_model_is_answered_by_what_can():
    for model, attack, says in (
        (
            closed(),
            ("fgsm", "fab"),
            (
                "(fgsm, fab: it needs gradients, and the model gives scores only)",
                "--attack black-box",
            ),
        ),
        (
            closed(Access.LABELS),
            ("black-box", "fgsm"),
            ("labels only", "--attack hop-skip-jump, which needs labels only"),
        ),
        (closed(), ("fgsm", "square?within=0.1"), ("no attack before it can run",)),
        (Recorder(threshold(0.5)), ("fgsm?within=0.1",), ("no attack before it can run",)),
    ):
        with pytest.raises(RequestError) as error:
            plan_of(model, X, Y, attack=attack)
        assert all(words in str(error.value) for words in says) and "\n" not in str(error.value)


def test_the_black_box_cascade_runs_on_it(tmp_path):
    run = run_audit(
        tmp_path / "run", closed(), X, Y, eps="0.05,0.25", attack=("black-box",), queries=400
    )
    assert run.manifest["stages"][0]["settings"]["steps"] == 5000
    states = states_of(run)
    broken = [
        states["recorder", "square?steps=5000", sample, 0.25] == "broken" for sample in range(4)
    ]
    assert broken == [True, True, False, True], "margins are 0.12, 0.02, 0.30, 0.19"
    write_page(run.path)
    page = (run.path / "report.html").read_text()
    missing_checks = {
        check.code for check in not_made(checks_of(run.rows, run.manifest, "recorder"))
    }
    assert missing_checks >= {
        "zero-gradients",
        "gradient-mismatch",
        "black-box-better",
    } and missing_checks.isdisjoint({"random-answers"})
    left_out = sum(check.passed is None for check in checks_of(run.rows, run.manifest, "recorder"))
    assert f"{left_out} not made" in page and "black-box-better" in page


def test_stages_that_can_run_do(tmp_path):
    """A cascade skips its gradient stages, and the black-box attack finds no more than no attack."""
    result = brinell.audit(
        closed(), (X, Y), eps="0.25", attack=("slides",), queries=300, out=tmp_path / "run"
    ).models[0]
    assert [stage.skipped is None for stage in result.stages] == [False, False, False, True]
    assert result.robust_accuracy[0].k == 1 and not result.warnings


def test_the_line_and_the_exit_code(tmp_path, capsys, monkeypatch):
    """No model of the command line hides its gradients yet, so one that does stands in for it."""
    work = workspace(tmp_path)
    hidden = property(lambda model: Access.SCORES, lambda model, access: None)
    monkeypatch.setattr(TorchModel, "access", hidden, raising=False)
    words = [
        "audit",
        "--data",
        f"npz:{work / 'data.npz'}",
        "--model",
        f"torch:{work / 'model.py'}:parabola",
        "--eps",
        "0.1",
    ]
    assert cli([*words, "--attack", "pgd", "--out", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and "--attack black-box" in err
    assert (
        cli([*words, "--attack", "black-box", "--queries", "50", "--out", str(tmp_path / "run")])
        == 0
    )
    out, err = capsys.readouterr()
    assert "not made" in out and "Traceback" not in err


# Few classes


@pytest.mark.parametrize(
    "cascades", [["standard"], pytest.param(list(CASCADES), marks=pytest.mark.slow)], ids=len
)
def test_every_cascade_runs_on_few_classes(cascades, tmp_path_factory):
    for classes, cascade in zip(itertools.cycle([2, 3]), cascades, strict=False):
        tmp_path = tmp_path_factory.mktemp("row")
        model = TorchModel(mlp(6, classes), Domain(kind="signal", shape=(1, 6)), classes)
        x = torch.rand(6, 1, 6, generator=torch.Generator().manual_seed(1))
        y = model.predict(x).argmax(1)
        counts = {"sparse": "l0", "patch": "patch"}
        budgets = {"norm": "linf", "eps": "0.02,0.1"}
        if cascade in counts:
            budgets = {"norm": counts[cascade], "eps": "1:2:2"}
        run = run_audit(tmp_path / "run", model, x, y, attack=(cascade,), queries=20, **budgets)
        records = run.rows
        assert not (records.outcome == Outcome.FAILED).any()
        fooled = has_broken(records)
        assert fooled.any() and (records.adv_pred[fooled] != records.label[fooled]).all()
        assert set(records.adv_pred[fooled].tolist()) <= set(range(classes))


# Models that mislead


@pytest.fixture(scope="module")
def vectors():
    x = torch.rand(30, 6, generator=torch.Generator().manual_seed(2))
    return x, mlp(6, 3)(x).argmax(1)


def test_a_model_that_misleads_is_audited_and_marked(tmp_path_factory, capsys, vectors):
    for defence, code in [
        (lambda net: Noisy(net, 0.3), "random-answers"),
        (lambda net: WrongGradient(net, "zeros"), "zero-gradients"),
        (lambda net: Quantised(net, 4), "zero-gradients"),
    ]:
        tmp_path = tmp_path_factory.mktemp("row")
        x, y = vectors
        run = tmp_path / "run"
        model = defence(mlp(6, 3))
        result = brinell.audit(
            model, (x, y), eps="0.1", attack=("apgd-ce?steps=5", "square?steps=50"), out=run
        ).models[0]
        assert code in {warning.code for warning in result.warnings} and code in str(result.caveat)
        assert result.complete and result.robust_accuracy[0].n == 30
        assert code in (run / "report.html").read_text()
        assert cli(["gate", str(run), "--robust", "0"]) == 1
        assert re.search(f"^FAIL  no warning {code}: ", capsys.readouterr().out, flags=re.MULTILINE)


# Samples of which everything, or nothing, falls


class Wall(nn.Module):
    """Two classes whose boundary lies at 0.5 of the first value."""

    def __init__(self, steep=20):
        super().__init__()
        self.steep = steep

    def forward(self, x):
        z = self.steep * (x[:, 0] - 0.5)
        return torch.stack([-z, z], 1)


def test_nothing_or_everything_falls(tmp_path_factory, capsys):
    for eps, remaining_accuracy, cascade in [("0.01", 4, "slides"), ("0.4", 0, "standard")]:
        tmp_path = tmp_path_factory.mktemp("row")
        run = tmp_path / "run"
        result = brinell.audit(
            Wall(), (X - 0.01, Y), eps=eps, attack=cascade, queries=40, out=run
        ).models[0]
        rate = result.robust_accuracy[0]
        assert (rate.k, rate.n, result.complete) == (remaining_accuracy, 4, True)
        assert f"{25 * remaining_accuracy:.1f}" in (run / "report.html").read_text()
        assert cli(["verify", str(run)]) == 2, "a model in memory is named as such"
        assert cli(["gate", str(run), "--robust", "0"]) == 1, (
            "four samples are too few for the checks"
        )
        assert cli(["gate", str(run), "--robust", "0", "--without-checks"]) == 0


# Models that fail on some inputs


class Fragile(nn.Module):
    """Raises on every batch that holds an input for which a test says so."""

    def __init__(self, breaks):
        super().__init__()
        self.net, self.breaks = Wall(), breaks

    def forward(self, x):
        if bool(self.breaks(x).any()):
            raise ValueError("this one is too much")
        return self.net(x)


def test_a_model_that_raises_on_one_sample_costs_that_sample(tmp_path, capsys):
    run = tmp_path / "run"
    expected = brinell.audit(
        Wall(), (X - 0.01, Y), eps="0.15", attack="apgd-ce?steps=5", out=tmp_path / "known"
    ).models[0]
    model = Fragile(lambda x: (x - torch.tensor([0.19, 0.49])).abs().amax(1) < 1e-3)
    result = brinell.audit(
        model, (X - 0.01, Y), eps="0.15", attack="apgd-ce?steps=5", out=run
    ).models[0]
    assert (expected.robust_accuracy[0].k, expected.robust_accuracy[0].n) == (2, 4)
    assert (result.robust_accuracy[0].k, result.robust_accuracy[0].n, result.complete) == (
        1,
        3,
        False,
    )
    (message,) = [warning.text for warning in result.warnings if warning.code == "failed-samples"]
    assert (
        "1 of 4 samples could not be judged; the first: 2 in clean" in message
        and "this one is too much" in message
    )
    assert cli(["gate", str(run), "--robust", "0"]) == 1


def test_a_model_that_raises_always_stops_the_run(tmp_path):
    calls = []

    def later(x):
        calls.append(len(x))
        return torch.full((len(x),), len(calls) > 4)

    with pytest.raises(
        ModelError, match="failed on a batch of .*this one is too much.*what was computed is kept"
    ):
        brinell.audit(
            Fragile(later),
            (X - 0.01, Y),
            eps="0.15",
            attack="apgd-ce?steps=5",
            out=tmp_path / "run",
        )
    assert len(calls) < 20
