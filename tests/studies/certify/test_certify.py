"""`brinell certify` on models whose margins are known, and on models that cannot be bounded."""

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _refusals import refused
from brinell.core.errors import RequestError
from brinell.core.intervals import clopper_pearson_low

EPS = (0.02, 0.05, 0.1)


@pytest.fixture
def linear():
    """A linear model, inputs whose balls stay within the bounds, labels, and the exact margin of
    each over the L1 norm."""
    generator = torch.Generator().manual_seed(3)
    net = nn.Linear(8, 3).eval()
    net.weight.data = torch.randn(3, 8, generator=generator)
    net.bias.data = -0.5 * net.weight.data.sum(1)
    x = 0.2 + 0.6 * torch.rand(40, 8, generator=generator)
    y = net(x).argmax(1)
    y[:4] = (y[:4] + 1) % 3
    weight = net.weight.detach().double()
    radius = np.full(len(x), np.inf)
    for k in range(len(x)):
        for j in range(3):
            if j != y[k]:
                row = weight[y[k]] - weight[j]
                radius[k] = min(
                    radius[k], float(row @ (x[k].double() - 0.5)) / float(row.abs().sum())
                )
    return net, x.numpy(), y.numpy(), radius


def test_a_linear_model_is_certified_exactly(linear, tmp_path):
    net, x, y, radius = linear
    result = brinell.certify(
        net,
        brinell.data(x, y, kind="vector"),
        eps=",".join(map(str, EPS)),
        attack="apgd-ce?steps=20",
        out=tmp_path / "run",
    )
    assert (
        result.facts.eps == [0.0, *EPS]
        and result.n == len(x)
        and result.clean.k == int((radius > 0).sum())
    )
    for certified, robust, undecided, eps in zip(
        result.certified, result.robust, result.open, result.facts.eps, strict=True
    ):
        truth = int((radius > eps).sum())
        assert certified.k == truth, f"at {eps}"
        assert certified.k + undecided.k == robust.k >= truth
    assert sum(band.n for band in result.per_class) == result.n
    undecided = sum(rate.k for rate in result.open[1:])
    assert (
        sum(result.closed.values()) + undecided == result.clean.k * len(EPS)
        and result.closed["crown"] > 0
    )
    assert (tmp_path / "run" / "report.html").exists()


def test_a_counterexample_of_each_broken_sample_is_kept(linear, tmp_path):
    from brinell.store.files import read_arrays
    from brinell.store.proofs import TABLE

    net, x, y, _ = linear
    brinell.certify(
        net,
        brinell.data(x, y, kind="vector"),
        eps="0.1",
        attack="apgd-ce?steps=20",
        out=tmp_path / "run",
    )
    rows = TABLE.read(tmp_path / "run").rows
    broken = {str(k) for k in rows.sample_id[rows.outcome == "broken"]}
    examples = read_arrays(tmp_path / "run" / "counterexamples-0.safetensors")
    assert broken and broken <= set(examples)
    for name in broken:
        example = torch.as_tensor(examples[name])
        assert float((example - torch.as_tensor(x[int(name)])).abs().max()) <= 0.1 + 1e-6
        assert int(net(example[None]).argmax()) != y[int(name)]


class Sorted(nn.Module):
    """A network with an operation that has no bound here."""

    def forward(self, x):
        return x.sort(dim=1).values[:, :3]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_cannot_be_bounded_is_refused_before_any_attack(linear, tmp_path):
    net, x, y, _ = linear
    data = brinell.data(x, y, kind="vector")
    with pytest.raises(
        RequestError, match="cannot be bounded: there is no bound for the operation sort"
    ):
        brinell.certify(Sorted().eval(), data, out=tmp_path / "run")
    traced = torch.jit.trace(Sorted().eval(), torch.rand(2, 8))
    with pytest.raises(RequestError, match="cannot be bounded: "):
        brinell.certify(traced, data, out=tmp_path / "run")
    with pytest.raises(RequestError, match="cannot be bounded: "):
        brinell.certify(nn.Linear(8, 3).double().eval(), data, out=tmp_path / "run")
    with pytest.raises(RequestError, match="cannot be bounded: "):
        brinell.certify(
            torch.export.export(nn.Linear(8, 3).eval(), (torch.rand(2, 8),)),
            data,
            out=tmp_path / "run",
        )
    with pytest.raises(RequestError, match="a bound needs its layers"):
        brinell.certify(
            lambda v: net(torch.as_tensor(v)).detach().numpy(), data, out=tmp_path / "run"
        )
    with pytest.raises(RequestError, check=refused("studies.certify.run.make_plan")):
        brinell.certify(net, data, eps="0", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_gate_holds_proofs_against_a_threshold(linear, tmp_path):
    net, x, y, radius = linear
    folder = tmp_path / "run"
    data = brinell.data(x, y, kind="vector")
    result = brinell.certify(net, data, eps="0.02,0.05", attack="apgd-ce?steps=20", out=folder)
    rate = result.certified[1]
    low = clopper_pearson_low(rate.k, rate.n, 0.025)
    for share, passed in ((low - 0.01, True), (low + 0.01, False)):
        verdict = brinell.gate(folder, certified=share, eps=0.02)
        assert verdict.passed is passed and verdict.checks[0].observed == pytest.approx(
            float((radius > 0.02).mean())
        )
    assert not brinell.gate(folder, certified=0.0, eps=0.3).passed
    assert brinell.gate(folder, clean=0.1, robust=0.1, certified=0.1).checks[-1].passed
    with pytest.raises(RequestError, check=refused("studies.gate.run._gate_rates")):
        brinell.gate(folder, certified=0.1, baseline=folder)
    brinell.audit(net, data, eps=0.02, attack="fgsm", out=tmp_path / "audit")
    with pytest.raises(RequestError, match="audit without proofs"):
        brinell.gate(tmp_path / "audit", certified=0.1)
