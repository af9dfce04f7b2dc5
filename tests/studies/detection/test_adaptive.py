"""The attack that knows the detector, on models whose answer can be worked out by hand."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from brinell import plugins
from brinell.core.criterion import Undetected
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.models._torch_model import TorchModel
from brinell.studies.detection.run import evade

PLANE = Domain(kind="vector", shape=(2,), low=-1.0, high=1.0)
X = torch.tensor([[-0.2, 0.0], [-0.2, 0.1], [-0.9, 0.0]])
Y = torch.zeros(3, dtype=torch.int64)


def model():
    """Class 1 to the right of the vertical axis."""
    layer = nn.Linear(2, 2)
    layer.weight.data = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    layer.bias.data.zero_()
    return TorchModel(layer, PLANE)


class Found(NamedTuple):
    x: torch.Tensor
    wrong: torch.Tensor
    score: torch.Tensor
    succeeded: torch.Tensor
    steps: torch.Tensor


def run(suspicion, threshold, eps=0.5, norm="linf", **more):
    threat = Threat(
        distance=plugins.build("distance", norm, {}),
        eps=torch.full((3,), eps),
        domain=PLANE,
        criterion=Undetected(suspicion, threshold),
    )
    ledger = Ledger(model(), Batch(ids=torch.arange(3), x=X, y=Y), threat)
    x = evade(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, torch.arange(3)), steps=60, **more)
    wrong = model().predict(x).argmax(1) != Y
    return Found(x, wrong, suspicion(x), ledger.fooled, ledger.costs.backwards)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_finds_the_corner_that_both_leave_open(norm):
    """An alarm below y = 0.2 everywhere: the way out is right and up. The third point cannot turn within eps."""
    found = run(lambda x: -x[:, 1], -0.2, norm=norm)
    assert found.wrong.tolist() == found.succeeded.tolist() == [True, True, False]
    assert (found.score[:2] <= -0.2).all() and (found.x[:2, 0] > 0).all()
    size = (found.x - X).abs().amax(1) if norm == "linf" else (found.x - X).norm(dim=1)
    assert (size <= 0.5 + 1e-5).all()


def test_no_way_out():
    """Everything to the right raises the alarm: it errs, or stays unnoticed, never both; the least suspicious error is kept."""
    found = run(lambda x: x[:, 0], 0.0)
    assert found.wrong.tolist() == [True, True, False]
    assert (found.score[:2] > 0).all() and (found.score[:2] < 0.1).all()
    assert (found.steps == 60).all() and not found.succeeded.any()


def test_what_must_stay_stays():
    free = torch.tensor([[False, True]] * 3)
    found = run(lambda x: x[:, 1] * 0, 1.0, free=free)
    assert not found.wrong.any() and torch.equal(found.x[:, 0], X[:, 0])


def test_stops_where_it_is_done():
    found = run(lambda x: x[:, 1] * 0, 1.0)
    assert (found.steps[:2] < 60).all() and found.steps[2] == 60
