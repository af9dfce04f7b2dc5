"""Use of a result at a prompt or in a notebook."""

import json
import subprocess
import sys
import warnings
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _helpers import mlp
from brinell.core.errors import BrinellError, BrinellWarning
from brinell.store.run import Run
from brinell.studies import register

X = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
NET = mlp(16, 3)
with torch.no_grad():
    Y = NET(X).argmax(1)


class Rounding(nn.Module):
    """No gradient anywhere."""

    def forward(self, x):
        return NET((x * 8).round() / 8)


MODELS = {"net": NET, "rounding": Rounding()}
CALL = {"eps": [0, 0.05, 0.3], "attack": ["fgsm", "pgd?steps=4"]}


@pytest.fixture(scope="module")
def audit_with_warnings(tmp_path_factory):
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        result = brinell.audit(MODELS, X, Y, out=tmp_path_factory.mktemp("runs") / "run", **CALL)
    return result, caught_warnings


@pytest.fixture(scope="module")
def result(audit_with_warnings):
    return audit_with_warnings[0]


def test_failed_checks_are_warnings_where_the_call_stands(audit_with_warnings):
    result, caught_warnings = audit_with_warnings
    failed = [
        model_result.name
        for model_result in result.models
        for check in model_result.checks
        if check.passed is False
    ]
    lines = [
        str(warning.message)
        for warning in caught_warnings
        if issubclass(warning.category, BrinellWarning)
    ]
    assert "rounding" in failed and sum(
        line.startswith("rounding: ") for line in lines
    ) >= failed.count("rounding")
    assert all(
        warning.filename == __file__
        for warning in caught_warnings
        if issubclass(warning.category, BrinellWarning)
    )
    assert any(
        "--attack black-box" in line for line in lines
    )  # as on the page: a command that one types


def test_a_repr_is_a_line(result):
    text = repr(result)
    assert (
        len(text) < 500
        and "\n" not in text
        and "\n" not in str(result)
        and "rounding" in str(result)
    )
    for part in (result.models[0], brinell.gate(result, clean=0.1, model="net")):
        assert len(repr(part)) < 320


def test_every_result_prints_its_answer(result):
    """A result has lines for a terminal, and prints its sentences or the first two lines: a gate
    its verdict and what fails.
    """
    for study in register.studies().values():
        answer = study.resolve(study.result)
        assert hasattr(answer, "lines") and "lines" not in answer.model_fields, study.verb
    for demanded, verdict in ((0.1, "gate passed, "), (1.0, "gate failed, ")):
        gate = brinell.gate(result, clean=demanded, model="net", without_checks=True)
        first, *others = str(gate).splitlines()
        assert first.startswith(verdict) and (
            demanded < 1 or others[0].startswith("FAIL  clean accuracy")
        )


def test_robust_reads_one_budget(result):
    rates = result.models[0].robust_accuracy
    assert (
        result.robust(model="net") == rates[-1] and result.robust(eps=0.05, model="net") == rates[1]
    )
    assert (
        result.robust("0.05", "net") == rates[1]
        and result.robust(np.float32(0.3), "net") == rates[2]
    )
    assert result.clean("net").value == 1.0
    for call, words in (
        (
            lambda: result.robust(0.07, "net"),
            "eps 0.07 is no budget of this run, which has 0, 0.05, 0.3",
        ),
        (lambda: result.robust(), "several models: name one of net, rounding"),
        (lambda: result.robust(model="xyz"), "no model 'xyz'; it has net, rounding"),
        (lambda: result.x_adv("net", attack="apgd"), "no attack 'apgd'; it has fgsm, pgd"),
        (lambda: result.to_pandas("rates"), "no table 'rates'; it has .*stages"),
    ):
        with pytest.raises(BrinellError, match=words):
            call()


def test_stored_inputs_are_adversarial_and_the_closest(result):
    examples = result.x_adv("net")
    broken = 30 - result.robust(model="net").k
    assert len(examples.ids) == len(examples.x) == len(examples.attack) == broken > 3 and list(
        examples.ids
    ) == sorted(examples.ids)
    with torch.no_grad():
        assert (NET(torch.from_numpy(examples.x)).argmax(1) != Y[examples.ids]).all()
    distance = np.abs(examples.x - X[examples.ids].numpy()).max((1, 2, 3))
    assert (distance <= examples.eps + 1e-6).all()
    within_budget = result.x_adv("net", eps=0.05)
    assert len(within_budget.ids) == 30 - result.robust(0.05, "net").k and set(
        within_budget.ids
    ) == set(examples.ids[examples.eps == 0.05])
    first = result.x_adv("net", attack="fgsm")
    assert set(first.attack) == {"fgsm"} and len(first.ids) <= broken
    assert result.x_adv("net", eps=0).x.shape == (0, 1, 4, 4)


def test_of_several_stages_the_closest_counts(tmp_path):
    attacks = ["pgd?steps=6&alone=true", "fgsm?alone=true"]
    result = brinell.audit(
        NET, X, Y, eps=[0.02, 0.04, 0.06, 0.08, 0.12], attack=attacks, out=tmp_path / "run"
    )
    first_examples, second_examples = (result.x_adv(attack=attack) for attack in attacks)
    budgets = [
        dict(zip(examples.ids.tolist(), examples.eps.tolist(), strict=True))
        for examples in (first_examples, second_examples)
    ]
    assert any(budgets[0][sample] < eps for sample, eps in budgets[1].items()), (
        "the two attacks are equally strong"
    )
    all_examples = result.x_adv()
    assert all_examples.eps.tolist() == [
        min(by_sample.get(sample, np.inf) for by_sample in budgets)
        for sample in all_examples.ids.tolist()
    ]


def test_data_frames(result, monkeypatch):
    pandas = pytest.importorskip("pandas")
    rows = result.to_pandas()
    assert len(rows) == len(Run.open(result.folder).rows) and set(rows.model) == {
        "net",
        "rounding",
    }
    dense = result.to_pandas(dense=True)
    assert len(dense) == 2 * 30 * 2 * len(result.models[0].eps) and set(dense.state) == {
        "broken",
        "robust",
    }
    assert rows[rows.attack == "clean"].groupby("model").size().tolist() == [30, 30]
    rates = result.to_pandas("robust_accuracy")
    assert rates["0.3 k"].tolist() == [model.robust_accuracy[-1].k for model in result.models]
    for table in ("per_class", "stages", "checks.csv"):
        assert isinstance(result.to_pandas(table), pandas.DataFrame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        BrinellError, match=r"pandas is not installed, .*pip install 'brinell\[pandas\]'"
    ):
        result.to_pandas()


def test_a_notebook_shows_the_answer_and_the_page(result):
    html = result._repr_html_()
    assert (
        html.count("srcdoc=") == 1
        and "&lt;!doctype html" in html.lower()
        and "<iframe sandbox=" in html
    )
    assert result.report().sentences[0] in unescape(html)


def test_compare_gate_and_report_take_results_and_folders(result, tmp_path):
    first, second = (
        brinell.compare(run, out=tmp_path / str(index))
        for index, run in enumerate((result, result.folder))
    )
    assert first.models == second.models and first.pairs == second.pairs
    assert brinell.gate(
        result, robust=0.0, eps=0.05, model="net", allow="classes-without-samples"
    ).checks
    assert not brinell.gate(result.folder, robust=0.99, model="net"), "a gate that fails is false"
    page = Path(brinell.report(result))
    assert page.name == "report.html" and str(page.parent) == result.folder
    for call, words in (
        (
            lambda: brinell.gate(result, model="net"),
            "a gate needs a condition: --clean, --robust, --worst-class, "
            "--certified, --unmet or --baseline",
        ),
        (lambda: brinell.gate(result, robust=0.1), "holds several models: name one of"),
        (lambda: brinell.report(3), "an object of type int is no run: give the folder"),
        (lambda: brinell.compare(["nowhere", result], out=tmp_path / "no"), "nowhere"),
    ):
        with pytest.raises(BrinellError, match=words):
            call()


def test_progress_is_told_where_somebody_looks_or_asks(tmp_path, capsys):
    brinell.audit(NET, X, Y, out=tmp_path / "silent", eps=0.05, attack="fgsm")
    assert capsys.readouterr() == ("", "")
    brinell.audit(NET, X, Y, out=tmp_path / "told", eps=0.05, attack="fgsm", progress=True)
    assert "FGSM" in capsys.readouterr().err
    brinell.audit(NET, X, Y, out=tmp_path / "off", eps=0.05, attack="fgsm", progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_every_call_is_exported_and_none_costs_an_import():
    names = "audit attack epsilon compare gate verify report benchmark data".split()
    program = f"""
import sys, brinell
light = "torch" not in sys.modules and "pydantic" not in sys.modules
import brinell.studies.audit.run
brinell.plugins.names, brinell.testing.check_attack
calls = [getattr(brinell, name) for name in {names}]
import json
print(json.dumps([light, [call.__name__ for call in calls], sorted(set({names}) - set(dir(brinell)))]))
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    light, loaded, missing = json.loads(answer.stdout or "[0, 0, 0]")
    assert light and loaded == names and not missing, answer.stderr
