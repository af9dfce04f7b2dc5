"""Training an agent: from a request to a policy file that the attack reads, with every query
counted.
"""

import json

import pytest
import torch
from safetensors import safe_open
from tests._helpers import Recorder, run_attack, threat_of

import brinell
from _refusals import refused
from brinell import plugins
from brinell.cli import run
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.oracle import Batch
from brinell.core.patches import PatchGrid
from brinell.rlab.agent import find_agent, load
from brinell.rlab.distort import variants
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.train import TrainConfig, train

DOMAIN = Domain(kind="image", shape=(2, 6, 6))
SHORT = {"probes": 4, "fits": 20, "slots": 8, "seconds": 60.0}


def _linear(n=12, seed=0):
    """A linear model that looks at one corner, and inputs that it gets right by a little."""
    rng = torch.Generator().manual_seed(seed)
    weight = torch.zeros(2, 6, 6)
    weight[:, :3, :3] = torch.randn(2, 3, 3, generator=rng)

    def logits(x):
        z = 4 * ((x - 0.5) * weight).sum((1, 2, 3)) + 0.5
        return torch.stack([z, -z], 1)

    x = 0.5 + 0.05 * torch.randn(n, 2, 6, 6, generator=rng)
    model = Recorder(logits, DOMAIN)
    y = logits(x).argmax(1)
    return model, Batch(ids=torch.arange(n), x=x, y=y)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr("brinell.studies.agent.run.CONFIG", TrainConfig(probes=4, fits=20, slots=8))


def _train(model, batch, **config):
    noise = plugins.build("distortion", "gaussian-noise", {})
    return train(
        model,
        batch,
        threat_of(0.5, "l2", DOMAIN, n=len(batch)),
        Placement(
            grid=PatchGrid.over(DOMAIN, 2),
            variants=variants([noise], DOMAIN, (1, 2), 2),
            rules=Rules(steps=20),
        ),
        TrainConfig(**(SHORT | config)),
    )


@pytest.mark.parametrize("steps", [0, 100])
def test_every_training_query_is_counted(steps):
    model, batch = _linear()
    agent = _train(model, batch, steps=steps)
    counted = agent.about["training_queries"]
    assert counted["probes"] == 9 * 5, (
        "the clean input and four probes of those that are neither set aside nor held out"
    )
    assert sum(counted.values()) == model.queries
    assert (counted["steps"] > 60) == bool(agent.about["curve"]) == (steps > 0)


@pytest.mark.slow
def test_training_for_steps_repeats_exactly():
    agents = [_train(*_linear(), steps=200) for _ in range(2)]
    first, second = (
        agent.about | {"curve": [point | {"seconds": 0} for point in agent.about["curve"]]}
        for agent in agents
    )
    assert first == second and first["curve"][-1]["updates"] > 0


@pytest.mark.slow
def test_the_prior_finds_the_corner_that_matters():
    model, batch = _linear(n=64)
    agent = _train(model, batch, probes=12, fits=300, steps=0)
    # Where a patch lies says nothing of which corner it is in, and its content nothing at all: the
    # channels it can learn.
    assert agent.prior.covariance_for(2) is not None
    assert agent.prior.covariance_for(3) is None


def test_too_few_inputs_are_refused():
    model, batch = _linear(n=4)
    with pytest.raises(RequestError, check=refused("rlab.train.train")):
        _train(model, batch, steps=0)


def test_fewer_inputs_than_slots_fill_as_many():
    model, batch = _linear(n=9)
    agent = _train(model, batch, slots=64, steps=100)
    assert sum(agent.about["training_queries"].values()) == model.queries
    assert 100 <= agent.about["curve"][-1]["steps"] < 400 and agent.about["config"]["slots"] == 64


@pytest.mark.slow
def test_a_policy_file_is_what_the_attack_plays(tmp_path):
    out = tmp_path / "agent.safetensors"
    brinell.train_agent(
        samples=20, attack="rlab?patch=2&draws=2&steps=20", out=out, steps=300, surrogates=0
    )
    with safe_open(out, "pt") as file:
        facts = json.loads(file.metadata()["brinell"])["about"]
    assert facts["training_queries"]["first_looks"] == 20 + 16, (
        "the kind of answers is recognised by 16"
    )
    assert facts["request"]["model"] == "digits-cnn"
    agent = load(out)
    attack = plugins.build(
        "attack", "rlab", {"policy": str(out), "patch": "2", "draws": "2", "steps": "60"}
    )
    model, batch = _linear(n=3)
    ledger = run_attack(attack, model, batch.x, batch.y, 1.0, "l2")
    assert ledger.fooled.any()
    assert (attack.digest() == plugins.build("attack", "rlab", {"policy": "greedy"}).digest()) == (
        facts["kept"] == "greedy"
    )
    assert (agent.network is not None) == (facts["kept"] == "network")


BAD_REQUESTS = [
    (["--attack", "square"], "agents are trained for rlab"),
    (["--eps", "1, 2"], "write one budget above 0"),
    (["--eps", "0"], "write one budget above 0"),
    (["--steps", "-1"], "steps is -1"),
]


def test_bad_requests_end_in_one_line(tmp_path, capsys, subtests):
    for number, (arguments, message) in enumerate(BAD_REQUESTS):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            out = folder / "agent.safetensors"
            assert run(["train", "agent", "--out", str(out), *arguments]) == 2
            error_lines = capsys.readouterr().err.strip().splitlines()
            assert len(error_lines) == 1
            assert message in error_lines[0]
            assert not out.exists()
    assert run(["train", "agent", "--out", str(tmp_path / "agent.pkl")]) == 2
    assert "end it with .safetensors" in capsys.readouterr().err
    (tmp_path / "other.safetensors").write_bytes(b"not a policy")
    for name in ("other", "missing"):
        with pytest.raises(RequestError, match="is no policy"):
            find_agent(str(tmp_path / f"{name}.safetensors"))


@pytest.mark.slow
def test_train_agent_prints_json(tmp_path, capsys):
    out = tmp_path / "agent.safetensors"
    arguments = [
        "--samples",
        "80",
        "--steps",
        "0",
        "--attack",
        "rlab?patch=2&draws=2&steps=20",
        "--surrogates",
        "0",
        "--json",
    ]
    assert run(["train", "agent", "--out", str(out), *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["policy"] == str(out)
    assert answer["training_queries"]["first_looks"] == 80 + 16
    validation = answer["validation"]
    assert validation["inputs"] == answer["inputs"] // 5 and set(validation["queries"]) == {
        "policy",
        "greedy",
        "default",
        "Square",
    }
    assert validation["verdict"].startswith("on 1") and answer["kept"] in ("prior", "greedy")
    assert answer["training_queries"]["validation"] > 3 * validation["inputs"]
