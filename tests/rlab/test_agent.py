"""Policies as files: what comes back is what was saved, and what is no policy is refused in one
line.
"""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from brinell.core.errors import RequestError
from brinell.core.streams import Streams
from brinell.rlab.agent import Agent, choose_policy, find_agent, fingerprint, load
from brinell.rlab.episodes import PATCH_FEATURES, WHOLE_FEATURES, Observation
from brinell.rlab.policy import Greedy, Learned, PatchNetwork
from brinell.rlab.prior import Prior


def learned(seed=0, families=3):
    """An agent whose every weight differs."""
    draw = torch.Generator().manual_seed(seed)
    prior, network = Prior(3), PatchNetwork(families, width=8)
    with torch.no_grad():
        for module in (prior, network):
            for values in module.parameters():
                values.copy_(torch.randn(values.shape, generator=draw))
    return Agent(prior=prior, network=network, about={"steps": 10, "data": "digits"})


def turn_of(patches=7, families=3, n=2):
    rng = Streams.of(5, torch.arange(n))
    features = {
        "patch": rng.normal(patches, PATCH_FEATURES),
        "whole": rng.fold("w").normal(WHOLE_FEATURES),
    }
    all_allowed = torch.ones(n, patches, dtype=torch.bool)
    return Observation(
        features, (all_allowed, all_allowed, torch.ones(n, families, dtype=torch.bool))
    )


def test_round_trip(tmp_path):
    agent, path = learned(), tmp_path / "agent.safetensors"
    agent.save(path)
    loaded = load(path)
    assert (
        loaded.about == agent.about and loaded.network.families == 3 and loaded.network.width == 8
    )
    for part, loaded_part in ((agent.prior, loaded.prior), (agent.network, loaded.network)):
        assert part.state_dict().keys() == loaded_part.state_dict().keys()
        assert all(
            torch.equal(value, loaded_part.state_dict()[name])
            for name, value in part.state_dict().items()
        )
    rng = Streams.of(1, torch.arange(2))
    choices = [
        policy_agent.policy((2, 1, 1)).act(turn_of(), rng) for policy_agent in (agent, loaded)
    ]
    assert all(torch.equal(*pair) for pair in zip(*choices, strict=True))
    assert fingerprint(str(path)) == fingerprint(str(path)) != fingerprint("greedy")


def test_a_prior_alone_is_a_policy(tmp_path):
    path = tmp_path / "prior.safetensors"
    Agent(prior=learned().prior).save(path)
    loaded = load(path)
    assert (
        loaded.network is None
        and isinstance(loaded.policy((2, 1, 1)), Greedy)
        and loaded.about == {}
    )


def test_names():
    assert isinstance(find_agent("greedy").policy((1, 1, 1)), Greedy)
    assert (
        isinstance(find_agent("prior").policy((1, 1, 1)), Greedy)
        and find_agent("prior").prior.covariance_for(3) is not None
    )
    assert (
        isinstance(find_agent("dqn").policy((1, 1, 1)), Learned)
        and find_agent("dqn").reward == "dilution"
    )
    assert len({fingerprint(name) for name in ("greedy", "prior", "dqn")}) == 3


def test_the_default_is_decided_by_the_kind_of_data(subtests):
    for kind, name in [
        ("image", "prior"),
        ("signal", "greedy"),
        ("video", "greedy"),
        ("vector", "greedy"),
    ]:
        with subtests.test(kind=kind, name=name):
            assert (
                choose_policy("default", kind).name == name
                and "docs/results/rlab.md" in choose_policy("default", kind).reason
            )
            assert choose_policy("dqn", kind) == ("dqn", "it was asked for")


def test_the_file_decides_the_fingerprint_and_not_its_name(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        learned(seed).save(tmp_path / name)
    a, b, c = (fingerprint(str(tmp_path / name)) for name in "abc")
    assert a == b != c


def test_ranked_picks_by_value():
    network = PatchNetwork(1, width=4)
    policy = Learned(network=network, choices=(7, 7, 1), temperature=1.0)
    choices = policy.act(turn_of(families=1), Streams.of(0, torch.arange(2)))
    assert sorted(choices[0][0].tolist()) == list(range(7)), (
        "all alike: chance decides, without replacement"
    )
    assert choices[0][0].tolist() != choices[0][1].tolist()


def rewritten(path, out, head=None, tensors=None):
    """The same file with something else in its header or its tensors."""
    save_file(
        tensors or load_file(path),
        out,
        metadata=None if head is None else {"brinell": json.dumps(head)},
    )
    return out


def head_of(**changes):
    return {"families": 3, "width": 8, "scale": 1.0, "about": {}} | changes


def test_what_is_no_policy_is_refused(tmp_path):
    good = tmp_path / "good.safetensors"
    learned().save(good)
    with pytest.raises(
        RequestError,
        match=r"there is no policy '.*nowhere': name default, prior, dqn, greedy or a file",
    ):
        load(tmp_path / "nowhere")
    torch.save({"a": torch.zeros(1)}, tmp_path / "pickle.pt")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "short").write_bytes(good.read_bytes()[:-100])
    save_file({"a": torch.zeros(1)}, tmp_path / "weights")
    rewritten(good, tmp_path / "bare")
    for name in ("pickle.pt", "text", "short", "weights", "bare"):
        with pytest.raises(
            RequestError, match=r"is no policy: name a file that `brinell train agent` wrote"
        ) as error:
            load(tmp_path / name)
        assert "\n" not in str(error.value)


def test_a_damaged_policy_is_refused(tmp_path):
    good = tmp_path / "good.safetensors"
    learned().save(good)
    tensors = load_file(good)
    lacking = {name: value for name, value in tensors.items() if name != "network.value.weight"}
    cases = {
        "list": rewritten(good, tmp_path / "list", head=[1]),
        "empty": rewritten(good, tmp_path / "empty", head={}),
        "wide": rewritten(good, tmp_path / "wide", head=head_of(width=9)),
        "families": rewritten(good, tmp_path / "families", head=head_of(families="many")),
        "lacking": rewritten(good, tmp_path / "lacking", head=head_of(), tensors=lacking),
        "rootless": rewritten(
            good, tmp_path / "rootless", head=head_of(), tensors={"x": torch.zeros(1)}
        ),
        "nan": rewritten(
            good,
            tmp_path / "nan",
            head=head_of(),
            tensors=tensors | {"prior.root": torch.full((3, 3), torch.nan)},
        ),
    }
    for path in cases.values():
        with pytest.raises(RequestError, match=r"is damaged \(.*\): train it anew") as error:
            load(path)
        assert "\n" not in str(error.value)
