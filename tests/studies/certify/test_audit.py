"""`brinell audit --certify`: attacked and certified in one run, and every command that reads it."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.core.errors import RequestError
from brinell.core.intervals import clopper_pearson_low
from brinell.store.proofs import TABLE

EPS = (0.02, 0.05)
ATTACK = {"eps": "0.02,0.05", "attack": "apgd-ce?steps=20", "certify": True}


@pytest.fixture(scope="module")
def subject():
    """A linear model, its data, and the largest budget at which each sample is robust."""
    generator = torch.Generator().manual_seed(5)
    net = nn.Linear(8, 3).eval()
    net.weight.data = torch.randn(3, 8, generator=generator)
    net.bias.data = -0.5 * net.weight.data.sum(1)
    x = 0.2 + 0.6 * torch.rand(30, 8, generator=generator)
    y = net(x).argmax(1)
    y[:3] = (y[:3] + 1) % 3
    scores, weight = net(x).detach().double(), net.weight.detach().double()
    sizes = (weight[:, None] - weight[None]).abs().sum(2)
    margins = (scores.gather(1, y[:, None]) - scores) / sizes[y].clamp_min(1e-9)
    margins[torch.arange(30), y] = torch.inf
    return net, brinell.data(x.numpy(), y.numpy(), kind="vector"), margins.amin(1).numpy()


@pytest.fixture(scope="module")
def run(subject, tmp_path_factory):
    """A certified audit, and its result."""
    net, data, _ = subject
    folder = tmp_path_factory.mktemp("audit") / "run"
    return folder, brinell.audit(net, data, out=folder, **ATTACK)


def test_both_bounds_are_in_the_result_and_on_the_page(subject, run):
    _, _, radius = subject
    folder, result = run
    (model,) = result.models
    for certified, undecided, robust, eps in zip(
        model.certified, model.open, model.robust_accuracy, EPS, strict=True
    ):
        assert certified.k == int((radius > eps).sum())
        assert certified.k + undecided.k == robust.k
    assert sum(c.certified[0].k for c in model.per_class) == model.certified[0].k
    assert (
        json.loads(json.dumps(result.payload()))["models"][0]["certified"][0]["k"]
        == model.certified[0].k
    )
    assert brinell.open(folder).models[0].certified == model.certified
    assert "A proof holds for every input" in (folder / "report.html").read_text()


def test_a_gate_sees_the_proofs(subject, run, tmp_path):
    net, data, _ = subject
    folder, result = run
    rate = result.models[0].certified[0]
    low = clopper_pearson_low(rate.k, rate.n, 0.025)
    for share, passed in ((low - 0.01, True), (low + 0.01, False)):
        verdict = brinell.gate(folder, certified=share, eps=0.02, without_checks=True)
        assert verdict.checks[0].passed is passed and verdict.checks[0].low == low


@pytest.mark.slow
def test_a_verification_proves_again_and_finds_a_forged_proof(subject, run, tmp_path):
    import shutil

    net, data, _ = subject
    folder, _ = run
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    verified = brinell.verify(copy, net, data, trust=copy)
    assert verified.passed and any(
        "brinell certify was carried out again" in claim for claim in verified.verified_claims
    )
    content = TABLE.read(copy / "certify")
    rows = content.rows
    broken = np.flatnonzero(rows.outcome == "broken")[0]
    for name, value in (("outcome", "open"), ("method", "")):
        column = np.array(getattr(rows, name), dtype=object)
        column[broken] = value
        object.__setattr__(rows, name, column.astype(str))
    TABLE.write(copy / "certify", content.manifest, rows)
    with pytest.raises(RequestError, match="proofs of other samples, budgets or attacks"):
        brinell.open(copy)
    shutil.rmtree(copy)
    shutil.copytree(folder, copy)
    content = TABLE.read(copy / "certify")
    rows = content.rows
    proven = np.flatnonzero((rows.outcome == "certified") & (rows.eps == EPS[1]))[0]
    column = np.array(rows.proven_at)
    column[proven] = EPS[0] / 2
    object.__setattr__(rows, "proven_at", column)
    TABLE.write(copy / "certify", content.manifest, rows)
    refused = brinell.verify(copy, net, data, trust=copy)
    assert not refused.passed and any(
        problem.location.startswith("certify/") for problem in refused.problems
    )


class Centred(nn.Module):
    """A layer that has no bound."""

    def forward(self, x):
        return x.sort(dim=1).values


def test_what_cannot_be_certified_is_refused_before_an_attack(subject, tmp_path):
    net, data, _ = subject
    settings = {**ATTACK, "out": tmp_path / "run"}
    with pytest.raises(RequestError, match="does not go with --targeted"):
        brinell.audit(net, data, targeted="0", **settings)
    with pytest.raises(RequestError, match="has bounds in linf and l2, and none in l1"):
        brinell.audit(net, data, norm="l1", **{**settings, "attack": "square"})
    with pytest.raises(RequestError, match="of one model, and 2 are named"):
        brinell.audit([net, nn.Linear(8, 3).eval()], data, **settings)
    with pytest.raises(RequestError, match="cannot be bounded"):
        brinell.audit(nn.Sequential(Centred(), net).eval(), data, **settings)
    assert not (tmp_path / "run").exists()


def test_conditions_of_a_gate_decide_the_exit_code(subject, tmp_path):
    net, data, _ = subject
    brinell.audit(net, data, out=tmp_path / "run", **ATTACK)
    verdict = brinell.gate(tmp_path / "run", certified=0.99, robust=0.01)
    assert {
        check.code: check.passed
        for check in verdict.checks
        if check.code in ("certified", "robust")
    } == {
        "certified": False,
        "robust": True,
    }
    assert verdict.exit_code == 1


def test_the_search_over_budgets_finds_what_each_budget_alone_proves(subject):
    from brinell import plugins
    from brinell.bounds._proofs import Proofs, Prover
    from brinell.bounds._trace import trace

    net, data, radius = subject
    x, y = data.load(range(30))[3:], torch.as_tensor(data.labels())[3:]
    prover, method = (
        Prover.of(trace(net, x[:4]), data.domain, "linf"),
        plugins.build("bound", "crown", {}),
    )
    levels = np.linspace(0.01, 0.12, 9).tolist()
    proofs, limit = Proofs.none(len(x)), torch.full((len(x),), 9)
    proofs.extend(prover, "crown", method, x, y, levels, limit)
    expected = [
        int((eps_proven).sum()) - 1
        for eps_proven in (radius[3:, None] > np.array(levels) * (1 + 1e-5))
    ]
    assert proofs.level.tolist() == expected and len(set(expected)) > 4
    repetition = Proofs.none(len(x))
    repetition.extend(
        prover, "crown", method, x, y, levels, torch.full((len(x),), 3)
    )  # counterexamples are known from there on
    assert repetition.level.tolist() == [min(level, 2) for level in expected]
