"""Agents that learn on pictures with masks and boxes, on models whose answers are known."""

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import brinell
from _helpers import Recorder
from _pictures import make_pictures
from _refusals import refused
from _spots import Spots, entries, spots
from brinell.cli import run as cli
from brinell.core.detection import BoxForm
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError
from brinell.core.model import ModelInfo
from brinell.core.patches import PatchGrid
from brinell.rlab.agent import find_agent
from brinell.rlab.prior import describe
from brinell.rlab.train import TrainConfig

SHORT = {"eps": "4", "norm": "l2"}
PLACED = "distortions=contrast+occlusion&patch=8&steps=30"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr("brinell.studies.agent.run.CONFIG", TrainConfig(probes=6, fits=60, slots=8))


def objects_data(n=18, classes=3):
    """Pictures with one object each, and one without."""
    rng = np.random.default_rng(0)
    pictures = [[(int(rng.integers(4)), int(rng.integers(classes)))] for _ in range(n)]
    x, objects = spots(*pictures, [])
    return brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])


class Threshold(nn.Module):
    """Class 1 where the first channel is above a half."""

    def forward(self, x):
        lead = x[:, :1] - 0.5
        return torch.cat([-lead, lead], 1)


def test_every_training_query_is_counted(tmp_path):
    data, network = objects_data(), Spots()
    domain = Domain(kind="image", shape=data.domain.shape, levels=data.domain.levels)
    model = Recorder(lambda x: network(x).flatten(1), domain, classes=28)
    model.info = ModelInfo(output=BoxForm(candidates=4, classes=3))
    result = brinell.train_agent(
        model, data, out=tmp_path / "p.safetensors", attack=f"rlab?{PLACED}", steps=30, **SHORT
    )
    counted = result.training_queries
    assert result.inputs == 18 and not result.surrogates
    assert counted["first_looks"] == 18 + 1 and counted["probes"] == 14 * 7 and counted["steps"] > 0
    assert sum(counted.values()) == model.queries
    assert result.validation is not None and result.validation.inputs == 3


@pytest.mark.slow
def test_the_policy_attacks_pictures_with_boxes(tmp_path):
    data = objects_data()
    policy = tmp_path / "p.safetensors"
    brinell.train_agent(Spots(), data, out=policy, attack=f"rlab?{PLACED}", steps=0, **SHORT)
    attack = f"rlab?policy={policy}&distortions=contrast+occlusion&patch=8&steps=60"
    result = brinell.audit(
        Spots(), data, norm="l2", eps=[8], criterion="missed", attack=attack, out=tmp_path / "run"
    )
    assert result.robust_accuracy[-1].value < 0.5
    with safe_open(policy, "np") as file:
        assert "missed:0.5" not in str(
            file.metadata()
        )  # the default is resolved by the data, not written as a wish


@pytest.mark.slow
def test_the_prior_learns_which_channel_the_masks_depend_on(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "brinell.studies.agent.run.CONFIG", TrainConfig(probes=24, fits=400, slots=8)
    )
    x, masks = make_pictures(40)
    data = brinell.data(x, masks=masks, classes=["dark", "bright"])
    policy = tmp_path / "p.safetensors"
    noise = "rlab?distortions=gaussian-noise&patch=3&steps=30"
    brinell.train_agent(
        Threshold(), data, out=policy, attack=noise, steps=0, criterion="pixels:0.5", **SHORT
    )
    prior = find_agent(str(policy)).prior
    share = prior.channel_covariance().diagonal() / prior.channel_covariance().trace()
    assert share[0] > 0.6, "the first channel alone decides the class of a pixel"


def test_inputs_without_an_effect_leave_the_prior_as_it_is():
    from brinell.rlab.prior import Prior, Probes, likelihood

    grid = PatchGrid((3, 8, 8), (4, 4))
    x = torch.rand(2, 3, 8, 8)
    moments = torch.eye(3).expand(2, 5, 1, 3, 3).clone()
    effect = torch.zeros(2, 5)
    effect[1] = torch.rand(5)
    probes = Probes(
        describe(x, grid),
        torch.zeros(2, 5, 1, dtype=torch.int64),
        moments,
        effect,
        torch.zeros(2, 5, 0),
    )
    prior = Prior(3)
    value = likelihood(prior, probes)
    assert value[0] == 0 and value[1] != 0
    value[0].backward()
    assert all(
        parameter.grad is None or not parameter.grad.any() for parameter in prior.parameters()
    )


CRITERIA = [
    ({"criterion": "pixels:0.5"}, "criterion is 'pixels:0.5': write"),
    ({"criterion": "missed+false"}, "one kind of error ends the search"),
]


def test_a_criterion_of_other_answers_is_refused(tmp_path, subtests):
    for number, (settings, message) in enumerate(CRITERIA):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(BrinellError, match=message):
                brinell.train_agent(
                    Spots(), objects_data(), out=folder / "p.safetensors", **SHORT | settings
                )
            assert not (folder / "p.safetensors").exists()


def test_pictures_without_objects_are_no_data(tmp_path, capsys):
    x, _ = make_pictures(9)
    masks = np.full(x.shape[:3], 1, dtype=np.uint8)
    masks[-1] = 0
    data, settings = (
        brinell.data(x, masks=masks, classes=["dark", "bright"]),
        {**SHORT, "samples": 4},
    )
    with pytest.raises(BrinellError, check=refused("studies.agent.run._open_subject")):
        brinell.train_agent(
            Threshold(), data, out=tmp_path / "p.safetensors", criterion="gone:dark", **settings
        )
    assert (
        cli(["train", "agent", "--out", str(tmp_path / "q.safetensors"), "--criterion", "pixels"])
        == 2
    )
    assert "--criterion is for masks and boxes" in capsys.readouterr().err


def test_data_and_model_of_other_answers_do_not_go_together(tmp_path):
    x, masks = make_pictures(9)
    with pytest.raises(BrinellError, match="answers one class for each input"):
        brinell.train_agent(
            nn.Sequential(nn.Flatten(), nn.Linear(432, 2)),
            brinell.data(x, masks=masks, classes=["dark", "bright"]),
            out=tmp_path / "p.safetensors",
            **SHORT,
        )
    with pytest.raises(BrinellError, match="answers masks"):
        brinell.train_agent(
            Threshold(), brinell.data(x, np.zeros(9)), out=tmp_path / "p.safetensors", **SHORT
        )
