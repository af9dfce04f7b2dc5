"""The attack that knows the detector, on models whose answer can be worked out by hand."""

import pytest
import torch
from torch import nn

from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.models._torch_model import TorchModel
from brinell.studies.detection.adaptive import evade

PLANE = Domain(kind="vector", shape=(2,), low=-1.0, high=1.0)
X = torch.tensor([[-0.2, 0.0], [-0.2, 0.1], [-0.9, 0.0]])
Y = torch.zeros(3, dtype=torch.int64)


def model():
    """Class 1 to the right of the vertical axis."""
    layer = nn.Linear(2, 2)
    layer.weight.data = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    layer.bias.data.zero_()
    return TorchModel(layer, PLANE)


def run(suspicion, threshold, eps=0.5, norm="linf", **more):
    threat = Threat(distance=plugins.build("distance", norm, {}), eps=torch.full((3,), eps), domain=PLANE)
    return evade(model(), suspicion, threshold, X, Y, threat=threat, rng=Streams.of(0, torch.arange(3)), steps=60, **more)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_finds_the_corner_that_both_leave_open(norm):
    """An alarm below y = 0.2 everywhere: the way out is right and up. The third point cannot turn within eps."""
    found = run(lambda x: -x[:, 1], -0.2, norm=norm)
    assert found.fooled.tolist() == [True, True, False]
    assert (found.score[:2] <= -0.2).all() and (found.x[:2, 0] > 0).all()
    size = (found.x - X).abs().amax(1) if norm == "linf" else (found.x - X).norm(dim=1)
    assert (size <= 0.5 + 1e-5).all()


def test_no_way_out():
    """Everything to the right raises the alarm: it errs, or stays unnoticed, never both; the least suspicious error is kept."""
    found = run(lambda x: x[:, 0], 0.0)
    assert found.fooled.tolist() == [True, True, False]
    assert (found.score[:2] > 0).all() and (found.score[:2] < 0.1).all()
    assert (found.steps == 60).all()


def test_what_must_stay_stays():
    free = torch.tensor([[False, True]] * 3)
    found = run(lambda x: x[:, 1] * 0, 1.0, free=free)
    assert not found.fooled.any() and torch.equal(found.x[:, 0], X[:, 0])


def test_stops_where_it_is_done():
    found = run(lambda x: x[:, 1] * 0, 1.0)
    assert (found.steps[:2] < 60).all() and found.steps[2] == 60
