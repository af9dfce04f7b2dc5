"""Distances in an embedding: by hand where the embedding is the input itself or a scaled one, then
whatever the network is.
"""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from _helpers import batch_of, distance, plan_of, run_attack, run_audit, verify
from _refusals import refused
from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.errors import ContractError, RequestError
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams, initial
from brinell.core.threat import Relative, Threat, extent, size, tolerance
from brinell.distances import _embedding as embedding
from brinell.distances.embedding import Embedding
from brinell.testing.linear import LinearModel, linear_problem

SHAPE = (6,)
VECTOR = Domain(kind="vector", shape=SHAPE)


def written(path, layers, state=None, *, domain=VECTOR, scale=1.0, **head):
    network = embedding.build(layers)
    initial(network, torch.Generator().manual_seed(3))
    state = network.state_dict() if state is None else state
    facts = {
        "format": 1,
        "kind": "embedding",
        "layers": layers,
        "domain": domain.to_json(),
        "scale": scale,
    } | head
    save_file(state or {"none": torch.zeros(1)}, path, {"brinell": json.dumps(facts)})
    return Embedding(path=str(path))


def scaled(path, by, domain):
    """x -> by * x, as a file."""
    values = int(torch.Size(domain.shape).numel())
    layers = [["flatten"], ["linear", values, values, False]]
    return written(path, layers, {"1.weight": by * torch.eye(values)}, domain=domain, scale=1 / by)


@pytest.fixture
def curved(tmp_path):
    """A network with bends, on a sphere."""
    layers = [["centre", 0.5, 0.3], ["linear", 6, 16], ["relu"], ["linear", 16, 3], ["unit"]]
    return written(tmp_path / "curved.safetensors", layers, scale=2.0)


def test_no_file_is_l2():
    """Worked by hand: (0.3, 0.4) is 0.5 away; within 0.25 of the clean input lies half of that, a
    ten-thousandth less.
    """
    x0, x = torch.full((1, 2), 0.5), torch.tensor([[0.8, 0.9]])
    assert size(Embedding(), x, x0).item() == pytest.approx(0.5)
    threat = Threat(
        distance=Embedding(), eps=torch.tensor([0.25]), domain=Domain(kind="vector", shape=(2,))
    )
    torch.testing.assert_close(
        threat.project(x, x0) - x0, torch.tensor([[0.15, 0.2]]), rtol=2e-4, atol=0
    )
    assert threat.project(x0.clone(), x0).tolist() == x0.tolist()


@pytest.mark.parametrize("attack", ["pgd", "apgd"])
@pytest.mark.parametrize("by", [1.0, 4.0])
def test_a_scaled_copy_of_the_input_scales_the_budget(tmp_path, attack, by):
    """Linear models: nothing falls below `by` times the exact L2 margin, all a twentieth above, as
    in L2.
    """
    problem = linear_problem("image", "l2")
    embedding = scaled(tmp_path / "scaled.safetensors", by, problem.model.domain)
    for factor in (0.95, 1.05):
        eps = factor * problem.margin
        batch = problem.batch
        threat = Threat(distance=embedding, eps=by * eps, domain=problem.model.domain)
        ledger = Ledger(problem.model, batch, threat)
        plugins.build("attack", attack, {})(
            ledger.oracle(), batch, threat, Streams.of(0, batch.ids).fold("test")
        )
        plain = run_attack(
            plugins.build("attack", attack, {}), problem.model, batch.x, batch.y, eps, "l2"
        )
        assert ledger.fooled.tolist() == plain.fooled.tolist() == [factor > 1] * len(batch)
        if factor > 1:
            torch.testing.assert_close(
                ledger.best.distance,
                by * (ledger.best.closest - batch.x).flatten(1).norm(dim=1),
                rtol=1e-4,
                atol=1e-5,
            )


@given(st.integers(0, 10**6), st.floats(1e-3, 1.5), st.floats(0.01, 3))
@settings(deadline=None, max_examples=40)
def test_what_is_projected_is_within_ball_and_bounds(tmp_path_factory, seed, eps, length):
    folder = tmp_path_factory.getbasetemp() / "shared-curved.safetensors"
    layers = [["centre", 0.5, 0.3], ["linear", 6, 16], ["relu"], ["linear", 16, 3], ["unit"]]
    embedding = Embedding(path=str(folder)) if folder.exists() else written(folder, layers)
    streams = Streams.of(seed, torch.arange(9))
    x0 = streams.uniform(*SHAPE)
    x = x0 + length * streams.fold("x").normal(*SHAPE)
    before = x.clone()
    threat = Threat(distance=embedding, eps=torch.full((9,), eps), domain=VECTOR)
    projected = threat.project(x, x0)
    assert torch.equal(x, before) and VECTOR.excess(projected) <= VECTOR.slack
    assert (size(embedding, projected, x0) <= eps).all()
    for rows in (slice(0, 1), slice(4, 9)):
        assert (
            size(embedding, projected[rows], x0[rows])
            <= threat.eps[rows] + threat.tolerance()[rows]
        ).all()
    within_ball = (size(embedding, x0 + 0.01 * (x - x0), x0) < 0.9 * eps) & (
        VECTOR.clamp(x0 + 0.01 * (x - x0)) == x0 + 0.01 * (x - x0)
    ).all(1)
    close_points = (x0 + 0.01 * (x - x0))[within_ball]
    assert torch.equal(
        Threat(distance=embedding, eps=threat.eps[within_ball], domain=VECTOR).project(
            close_points, x0[within_ball]
        ),
        close_points,
    )


def test_a_point_on_the_way_is_taken_where_newton_fails(tmp_path, monkeypatch):
    """Without Newton steps: the segment alone, at whose end the boundary is met."""
    monkeypatch.setattr("brinell.distances.embedding.NEWTON", 0)
    x0, x = torch.full((1, 2), 0.5), torch.tensor([[0.8, 0.9]])
    threat = Threat(
        distance=Embedding(), eps=torch.tensor([0.25]), domain=Domain(kind="vector", shape=(2,))
    )
    torch.testing.assert_close(
        threat.project(x, x0) - x0, torch.tensor([[0.15, 0.2]]), rtol=2e-3, atol=0
    )
    threat = Threat(
        distance=Embedding(), eps=torch.tensor([0.0]), domain=Domain(kind="vector", shape=(2,))
    )
    assert torch.equal(threat.project(x, x0), x0)


def test_the_ledger_judges_by_the_embedding(tmp_path):
    """A step of 0.3 in the first value is 0 or 1.2 away, by whether the embedding sees it."""
    blind = written(
        tmp_path / "blind.safetensors",
        [["linear", 2, 1, False]],
        {"0.weight": torch.tensor([[0.0, 4.0]])},
        domain=Domain(kind="vector", shape=(2,)),
    )
    model = LinearModel(
        torch.tensor([[-1.0, 0.0], [1.0, 0.0]]),
        torch.tensor([0.6, -0.6]),
        Domain(kind="vector", shape=(2,)),
    )
    batch = batch_of([[0.4, 0.5]], [0])
    ledger = Ledger(
        model, batch, Threat(distance=blind, eps=torch.tensor([0.1]), domain=model.domain)
    )
    assert ledger.oracle().labels(batch.ids, torch.tensor([[0.7, 0.5]])).item() == 1
    assert ledger.fooled.all() and ledger.best.distance.item() == 0
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger._check_reach")):
        ledger.oracle().labels(batch.ids, torch.tensor([[0.4, 0.8]]))


def test_relative_distances_are_told_apart():
    assert isinstance(Embedding(), Relative) and not isinstance(distance("l2"), Relative)
    assert extent(Embedding(), VECTOR) == float("inf") and extent(distance("linf"), VECTOR) == 1
    assert tolerance(torch.tensor([1.0]), Embedding(), VECTOR).item() == pytest.approx(1e-5)


@pytest.mark.slow
def test_audit_and_verify(tmp_path, curved):
    """A whole run: attack, smallest budget, records with pixel norms beside, another look; other
    attacks left out.
    """
    weight = Streams.of(1, torch.arange(1)).normal(3, 6)[0]
    model = LinearModel(weight, -weight.sum(1) / 2, VECTOR)
    x = 0.3 + 0.4 * Streams.of(2, torch.arange(20)).uniform(6)
    y = model.predict(x).argmax(1)
    ask = {
        "norm": f"embedding:{curved.path}",
        "eps": "0:0.8:5",
        "attack": ("pgd?steps=10", "apgd-ce", "fab"),
    }
    run = run_audit(tmp_path / "run", model, x, y, **ask)
    records = run.rows
    assert set(records.distance.tolist()) == {"embedding"}
    fooled = records.outcome == "broken"
    assert 0 < fooled.sum() < len(records)
    smallest = {}
    for row in np.flatnonzero(fooled)[np.argsort(-records.broken[fooled], kind="stable")].tolist():
        smallest[int(records.sample_id[row]), str(records.attack[row])] = (
            float(records.broken[row]),
            float(records.l2[row]),
        )
    for (sample, attack), (eps, l2) in smallest.items():
        stored = torch.as_tensor(run.adversarial("linear", attack, [sample])[sample])[None]
        reach = size(curved, stored, x[sample][None]).item()
        assert reach <= eps * (1 + 1e-4)
        assert (stored - x[sample]).norm().item() == pytest.approx(l2, rel=1e-4)
    assert "fab" not in records.attack
    plan = plan_of(model, x, y, **ask)
    assert verify(run, plan).passed
    rescaled = written(curved.path, [["linear", 6, 3]], scale=2.0)
    assert rescaled.digest() != curved.digest()
    assert not verify(run, plan_of(model, x, y, **ask)).passed


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        ("embedding", "names no file"),
        (
            "embedding:nowhere.safetensors",
            "there is no file nowhere.safetensors: make it with brinell train metric",
        ),
        (
            "embedding:{tmp}/other.safetensors",
            r"embeds inputs of shape \(6,\), and these are \(2,\)",
        ),
        ("embedding:{tmp}/torn.safetensors", "damaged or no safetensors file"),
        ("embedding:{tmp}/weights.safetensors", "holds no embedding"),
        ("embedding:{tmp}/odd.safetensors", "there is no layer 'exec'"),
        ("embedding:{tmp}/nan.safetensors", "not finite"),
        ("embedding:{tmp}/misfit.safetensors", "another network than it says"),
    ],
)
def test_bad_files_are_named(tmp_path, norm, message):
    good = written(tmp_path / "other.safetensors", [["linear", 6, 2]])
    (tmp_path / "torn.safetensors").write_bytes((tmp_path / "other.safetensors").read_bytes()[:50])
    save_file({"w": torch.zeros(2)}, tmp_path / "weights.safetensors")
    domain = Domain(kind="vector", shape=(2,))
    state = {"0.weight": torch.zeros(2, 2), "0.bias": torch.zeros(2)}
    written(
        tmp_path / "nan.safetensors",
        [["linear", 2, 2]],
        {name: value + float("nan") for name, value in state.items()},
        domain=domain,
    )
    facts = {
        "format": 1,
        "kind": "embedding",
        "layers": [["exec", "1"]],
        "domain": domain.to_json(),
        "scale": 1.0,
    }
    save_file(state, tmp_path / "odd.safetensors", {"brinell": json.dumps(facts)})
    written(tmp_path / "misfit.safetensors", [["linear", 2, 3]], state, domain=domain)
    assert good.embed(torch.zeros(1, 6)).shape == (1, 2)
    model = LinearModel(torch.eye(2), torch.zeros(2), domain)
    with pytest.raises(RequestError, match=message):
        plan_of(model, [[0.4, 0.6]], [1], norm=norm.format(tmp=tmp_path), eps="0.1")
