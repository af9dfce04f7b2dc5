"""Open samples as queries for outside verifiers, and what is believed of their answers."""

import random
import re
import string
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.bounds import _abcrown, _verifiers
from brinell.bounds._queries import read_query
from brinell.bounds._verifiers import PROOF, SILENT, WITNESS
from brinell.core.errors import BrinellWarning, RequestError
from brinell.models._onnx_session import session_of
from brinell.store.files import read_arrays
from brinell.store.proofs import TABLE
from brinell.studies.board.examination import examine
from brinell.studies.certify import solvers

pytest.importorskip("onnxruntime")
EPS = "0.002,0.02,0.05,0.1"


@pytest.fixture(scope="module")
def subject():
    """A network of two inputs whose proofs leave samples open, and its data."""
    generator = torch.Generator().manual_seed(1)
    layers = [nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)]
    for layer in layers[::2]:
        layer.weight.data = (
            torch.randn(layer.weight.shape, generator=generator) * 4 / layer.in_features**0.5
        )
        layer.bias.data = torch.randn(layer.bias.shape, generator=generator) * 0.5
    net = nn.Sequential(*layers).eval()
    x = 0.1 + 0.8 * torch.rand(24, 2, generator=generator)
    with torch.no_grad():
        layers[-1].bias -= net(x).mean(0)  # every class wins somewhere
    return net, x, net(x).argmax(1)


def certify(subject, out, **settings):
    """A certification by cheap bounds, which leave much open, against weak attacks."""
    net, x, y = subject
    data = brinell.data(x.numpy(), y.numpy(), kind="vector")
    settings = {"eps": EPS, "method": "crown-ibp", "attack": "square?steps=1", **settings}
    return brinell.certify(net, data, out=out, **settings)


def tool(folder, text, name="tool"):
    """A verifier that is a script of Python or of the shell."""
    file = folder / name
    head = (
        "#!/bin/sh\n"
        if text.startswith("echo") or text.startswith("sleep") or text.startswith("exit")
        else f"#!{sys.executable}\n"
    )
    file.write_text(head + text)
    file.chmod(0o755)
    return str(file)


def outcomes(folder):
    """Outcome and method by sample and budget."""
    rows = TABLE.read(folder).rows
    return {
        (int(s), float(e)): (str(o), str(m))
        for s, e, o, m in zip(rows.sample_id, rows.eps, rows.outcome, rows.method, strict=True)
    }


def test_a_point_of_a_query_satisfies_it_exactly_when_the_model_errs(
    subject, tmp_path, monkeypatch
):
    net, x, y = subject
    errors = []

    def look(command, query, network, seconds, inputs):
        sample, eps = re.match(
            r"; sample (\d+) of class \d, Linf eps ([\d.]+)", query.read_text()
        ).groups()
        sample, eps = int(sample), float(eps)
        cases, session = read_query(query).cases, session_of(network.removeprefix("N="))
        low, high = (np.clip(x[sample].double().numpy() + sign * eps, 0, 1) for sign in (-1, 1))
        np.testing.assert_allclose([cases[0].low, cases[0].high], [low, high], atol=2e-5 * eps)
        assert (cases[0].low <= low).all() and (cases[0].high >= high).all()
        points = low + (high - low) * np.stack(
            np.meshgrid(*[np.linspace(0, 1, 9)] * 2), -1
        ).reshape(-1, 2)
        points = np.clip(points.astype(np.float32), cases[0].low, cases[0].high).astype(np.float32)
        scores = np.concatenate(
            [session.run(None, {"X": point[None]})[0] for point in points]
        ).astype(np.float64)
        satisfied = np.any([case.holds(points.astype(np.float64), scores) for case in cases], 0)
        wrong = (net(torch.from_numpy(points)).argmax(1) != y[sample]).numpy()
        np.testing.assert_array_equal(satisfied, wrong)
        errors.append(int(wrong.sum()))
        return _verifiers.ToolAnswer(SILENT, "it was only looked at")

    monkeypatch.setattr(solvers, "run_tool", look)
    with pytest.warns(BrinellWarning, match="it was only looked at"):
        certify(subject, tmp_path / "run", solver=tool(tmp_path, "exit 0"))
    assert len(errors) > 5 and sum(errors) > 2


@pytest.mark.slow
def test_an_honest_verifier_closes_what_is_open(subject, tmp_path, monkeypatch):
    """It looks at a grid, in this process."""

    def look(command, query, network, seconds, inputs):
        assert (
            command == (str(tmp_path / "grid.py"),)
            and network.startswith("N=")
            and seconds > 0
            and len(inputs) == 2
        )
        cases = read_query(query).cases
        grid = (
            np.stack(np.meshgrid(*np.linspace(cases[0].low, cases[0].high, 41).T), -1)
            .reshape(-1, 2)
            .astype(np.float32)
        )
        with torch.no_grad():
            scores = subject[0](torch.from_numpy(grid)).double().numpy()
        errors = np.any([case.holds(grid.astype(np.float64), scores) for case in cases], 0)
        return (
            _verifiers.ToolAnswer(WITNESS, "", tuple(grid[errors][0].tolist()))
            if errors.any()
            else _verifiers.ToolAnswer(PROOF)
        )

    before = certify(subject, tmp_path / "before")
    command = tool(tmp_path, "exit 0", "grid.py")
    monkeypatch.setattr(solvers, "run_tool", look)
    result = certify(subject, tmp_path / "run", solver=command)
    stated = [a.k - b.k for a, b in zip(result.with_verifiers, result.certified, strict=True)]
    assert sum(rate.k for rate in before.open) > 5
    assert [rate.k for rate in result.open] == stated, "only they close it"
    check_marks(result, tmp_path)
    assert result.closed["solver:grid.py"] > 0 and sum(rate.k for rate in result.robust) < sum(
        rate.k for rate in before.robust
    )
    kinds = {
        outcome for outcome in outcomes(tmp_path / "run").values() if outcome[0] == "certified"
    }
    assert ("certified", "solver:grid.py") in kinds and ("certified", "crown-ibp") in kinds
    net, x, y = subject
    stored = read_arrays(tmp_path / "run" / "counterexamples-0.safetensors")
    for (sample, eps), (outcome, _) in outcomes(tmp_path / "run").items():
        if outcome == "broken":
            example = torch.as_tensor(stored[str(sample)])
            assert (
                int(net(example[None]).argmax()) != y[sample]
                and float((example - x[sample]).abs().max()) <= eps * 1.001
            )
    Path(command).unlink()  # a verification takes the answers from the folder, and runs no program
    data = brinell.data(x.numpy(), y.numpy(), kind="vector")
    verified = brinell.verify(tmp_path / "run", net, data)
    assert verified.passed, verified.problems
    assert any("outside verifiers" in claim for claim in verified.unverified_claims)


def test_a_proof_that_a_counterexample_contradicts_is_refused(subject, tmp_path):
    certify(subject, tmp_path / "before")
    with pytest.warns(
        BrinellWarning, match="tool: it proves what a stored counterexample contradicts"
    ):
        result = certify(subject, tmp_path / "run", solver=tool(tmp_path, "echo unsat"))
    assert "solver:tool" not in result.closed and len(result.faults) == 1
    assert outcomes(tmp_path / "run") == outcomes(tmp_path / "before")


SILENT_TOOLS = {
    "exit 3": "ended with code 3",
    "echo unsat; exit 1": "its answer does not count",
    "echo perhaps": "none of sat, unsat and unknown",
    "echo unsat; echo sat": "several answers",
    "echo sat": "sat without an input",
    "echo 'sat ((X_0 0.5) (X_1 0.5))'": "none of sat, unsat and unknown",
    "echo sat; echo '((X_0 1e999) (X_1 nan))'": "sat without an input",
    "echo timeout": "it answered timeout",
    "sleep 30": "did not end within",
}


def test_an_answer_that_does_not_count_is_silent(tmp_path, monkeypatch, subtests):
    monkeypatch.setattr(_verifiers, "GRACE", 0.1)
    for text, reason in SILENT_TOOLS.items():
        with subtests.test(text):
            seconds = 0.1 if text.startswith("sleep") else 20.0
            answer = _verifiers.run_tool(
                [tool(tmp_path, text)],
                tmp_path / "query",
                "N=net.onnx",
                seconds,
                ["X[0,0]", "X[0,1]"],
            )
            assert answer.verdict == SILENT and reason in answer.reason


def test_an_answer_that_does_not_count_leaves_samples_open(subject, tmp_path):
    certify(subject, tmp_path / "before", eps="0.05")
    wrong = tool(tmp_path, "echo sat; echo '((X_0 0.5) (X_1 99))'")
    with pytest.warns(BrinellWarning, match="no counterexample, as the model answers") as failure:
        result = certify(subject, tmp_path / "run", eps="0.05", solver=wrong)
    assert outcomes(tmp_path / "run") == outcomes(tmp_path / "before")
    assert len(result.faults) == 1 and "solver:tool" not in result.closed
    assert sum(issubclass(warning.category, BrinellWarning) for warning in failure) == 1


def test_no_nonsense_is_an_answer(subtests):
    """Random texts with words of answers in them: a proof needs a line that says so, and no line
    that says otherwise.
    """
    for seed in range(40):
        with subtests.test(str(seed)):
            generator = random.Random(seed)
            words = [
                "sat",
                "unsat",
                "UNSAT ",
                "(X_0 0.5)",
                "(X_1 -1e3)",
                "unsat.",
                "holds",
                "",
                "\0",
                "x" * 9,
                "((X[0,0] .",
                "violated",
            ]
            lines = [
                generator.choice(words)
                if generator.random() < 0.7
                else "".join(generator.choices(string.printable, k=12))
                for _ in range(5)
            ]
            text = generator.choice(["\n", " ", "\r\n"]).join(lines)
            answer = _verifiers.ToolAnswer(*_verifiers.read_answer(text, ["X[0,0]", "X[0,1]"]))
            said = {line.strip().lower() for line in text.splitlines()}
            if answer.verdict == PROOF:
                assert said & {"unsat", "holds"} and not said & {
                    "sat",
                    "violated",
                    "unknown",
                    "timeout",
                }
            elif answer.verdict == WITNESS:
                assert said & {"sat", "violated"} and len(answer.x) == 2
            else:
                assert answer.verdict == SILENT and answer.reason


def test_what_no_verifier_can_be_asked_is_refused_before_anything_runs(subject, tmp_path):
    with pytest.raises(RequestError, match="names 'no-such-tool', and there is no such program"):
        certify(subject, tmp_path / "run", solver="no-such-tool")
    with pytest.raises(RequestError, match="a ball in l2 is not a box"):
        certify(subject, tmp_path / "run", solver=tool(tmp_path, "echo unsat"), norm="l2")
    assert not (tmp_path / "run").exists()


def check_marks(result, folder):
    """What outside verifiers prove has columns of its own with a mark, and a board leaves it out."""
    rows = TABLE.read(folder / "run").rows
    is_ours = (rows.outcome == "certified") & ~np.char.startswith(
        rows.method.astype(str), "solver:"
    )
    counts = [int((is_ours & (rows.eps == rate.eps)).sum()) for rate in result.certified]
    assert [rate.k for rate in result.certified] == counts
    for block in result.report().blocks:
        names = [*getattr(block, "columns", ()), *(s.name for s in getattr(block, "series", ()))]
        assert all(name.endswith("†") for name in names if "verifiers" in name)
    brinell.board(folder / "run", out=folder / "site", level="rows")
    (figures,) = examine(folder / "run", "rows", None)
    assert [rate.k for rate in figures.certified] == counts[1:]


# alpha-beta-CROWN in memory: a stand-in of its package, which looks at a grid


PACKAGE = '''
"""The names of the package that are used, over a solver that evaluates a grid of two inputs."""

from types import SimpleNamespace

import torch

print("a banner of the package")


class ConfigBuilder:
    @classmethod
    def from_defaults(cls):
        return cls()

    def set(self, **settings):
        assert settings == {"general__device": "cpu", "bab__timeout": 60.0}
        return self


class VerificationSpec:
    @classmethod
    def build_spec(cls, *, lower, upper, clauses):
        spec = cls()
        spec.lower, spec.upper, (spec.errors,) = lower.float(), upper.float(), clauses
        assert spec.lower.shape == spec.upper.shape == (1, 2) and (lower < upper).all()
        return spec


class ABCrownSolver:
    def __init__(self, spec, computing_graph, *, config):
        assert isinstance(config, ConfigBuilder)
        assert any(isinstance(part, torch.nn.Linear) for part in computing_graph.modules())
        self.spec, self.module = spec, computing_graph

    def solve(self):
        print("progress")
        torch.rand(3)
        ANSWER
        share = torch.cartesian_prod(*[torch.linspace(0, 1, 41)] * 2)
        x = self.spec.lower + share * (self.spec.upper - self.spec.lower)
        scores = self.module(x).detach().double()
        errors = torch.zeros(len(x), dtype=torch.bool)
        for rows, limits in self.spec.errors:
            errors |= (scores @ rows.double().T <= limits).all(1)
        if errors.any():
            found = x[errors][:1][None]
            return SimpleNamespace(status="unsafe-pgd", stats={"attack_examples": found})
        return SimpleNamespace(status="safe-incomplete", stats={})
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts the stand-in, with a line of its own before each answer, where it can be imported."""

    def write(answer="pass"):
        folder = tmp_path / "packages"
        folder.mkdir(exist_ok=True)
        (folder / "abcrown.py").write_text(PACKAGE.replace("ANSWER", answer))
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "abcrown", raising=False)

    yield write
    sys.modules.pop("abcrown", None)


@pytest.mark.slow
def test_it_closes_what_is_open_and_its_proofs_are_marked(subject, tmp_path, install, capsys):
    before = certify(subject, tmp_path / "before")
    install()
    state = torch.random.get_rng_state()
    result = certify(subject, tmp_path / "run", solver="abcrown")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert "banner" not in capsys.readouterr().out
    assert sum(rate.k for rate in before.open) > 5
    assert result.closed["solver:abcrown"] > 0
    stated = [a.k - b.k for a, b in zip(result.with_verifiers, result.certified, strict=True)]
    assert [rate.k for rate in result.open] == stated, "only it closes what is open"
    check_marks(result, tmp_path)

    # Its counterexamples are inputs that the model gets wrong within the budget.
    net, x, y = subject
    stored = read_arrays(tmp_path / "run" / "counterexamples-0.safetensors")
    broken = [
        key for key, (outcome, _) in outcomes(tmp_path / "run").items() if outcome == "broken"
    ]
    assert broken
    for sample, eps in broken:
        example = torch.as_tensor(stored[str(sample)])
        assert int(net(example[None]).argmax()) != y[sample]
        assert float((example - x[sample]).abs().max()) <= eps * 1.001

    # A verification takes the answers from the folder, without the package.
    (tmp_path / "packages" / "abcrown.py").unlink()
    sys.modules.pop("abcrown")
    data = brinell.data(x.numpy(), y.numpy(), kind="vector")
    verified = brinell.verify(tmp_path / "run", net, data)
    assert verified.passed, verified.problems
    assert any("outside verifiers" in claim for claim in verified.unverified_claims)


ANSWERS = {
    'return SimpleNamespace(status="verified", stats={})': (PROOF, ""),
    'return SimpleNamespace(status="safe-mip", stats={})': (PROOF, ""),
    'return SimpleNamespace(status="unknown", stats={})': (SILENT, "it answered unknown"),
    'return SimpleNamespace(status="unsafe-bab", stats={})': (
        SILENT,
        "it answered unsafe without an input",
    ),
    'raise MemoryError("no memory")': (SILENT, "it failed .*no memory.*"),
    'return SimpleNamespace(status="unsafe-bab", stats={"attack_examples": self.spec.lower})': (
        WITNESS,
        "",
    ),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_it_answers_is_a_proof_an_input_or_nothing(answer, install):
    install(answer)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3))
    solver = _abcrown.Solver(module, 3, torch.device("cpu"), 60.0)
    low = np.array([0.1, 0.2])
    result = solver.ask(low, low + 0.3, 1)
    verdict, reason = ANSWERS[answer]
    assert result.verdict == verdict
    assert re.fullmatch(reason, result.reason)
    if verdict == WITNESS:
        assert result.x == pytest.approx((0.1, 0.2))


def test_a_box_in_float32_holds_that_in_float64():
    generator = np.random.default_rng(0)
    bound = generator.uniform(0, 1, 1000)
    assert (_abcrown._beyond(bound, -np.inf).double().numpy() <= bound).all()
    assert (_abcrown._beyond(bound, np.inf).double().numpy() >= bound).all()
    gap = _abcrown._beyond(bound, np.inf) - _abcrown._beyond(bound, -np.inf)
    assert gap.max() <= 2**-23


def test_a_false_proof_is_refused(subject, tmp_path, install):
    install('return SimpleNamespace(status="verified", stats={})')
    with pytest.warns(BrinellWarning, match="abcrown: it proves what a stored counterexample"):
        result = certify(subject, tmp_path / "run", solver="abcrown")
    assert "solver:abcrown" not in result.closed and len(result.faults) == 1


def test_without_its_package_the_name_is_a_program_s(subject, tmp_path, install):
    with pytest.raises(RequestError, match="names 'abcrown', and there is no such program"):
        certify(subject, tmp_path / "run", solver="abcrown")
    install()
    with pytest.raises(RequestError, match="a ball in l2 is not a box"):
        certify(subject, tmp_path / "run", solver="abcrown", norm="l2")
    assert not (tmp_path / "run").exists()
