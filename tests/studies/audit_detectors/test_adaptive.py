"""The attack that knows the detector, on models whose answer can be worked out by hand."""

from typing import NamedTuple

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
from brinell.studies.audit_detectors.run import evade

PLANE = Domain(kind="vector", shape=(2,), low=-1.0, high=1.0)
X = torch.tensor([[-0.2, 0.0], [-0.2, 0.1], [-0.9, 0.0]])
Y = torch.zeros(3, dtype=torch.int64)


def model():
    """Class 1 to the right of the vertical axis."""
    layer = nn.Linear(2, 2)
    layer.weight.data = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    layer.bias.data.zero_()
    return TorchModel(layer, PLANE)


class SearchOutcome(NamedTuple):
    x: torch.Tensor
    wrong: torch.Tensor
    score: torch.Tensor
    succeeded: torch.Tensor
    steps: torch.Tensor


def run(suspicion, threshold, eps=0.5, norm="linf", **settings):
    threat = Threat(
        distance=plugins.build("distance", norm, {}),
        eps=torch.full((3,), eps),
        domain=PLANE,
        criterion=Undetected(suspicion, threshold),
    )
    ledger = Ledger(model(), Batch(ids=torch.arange(3), x=X, y=Y), threat)
    x = evade(
        ledger.oracle(),
        ledger.batch,
        ledger.threat,
        Streams.of(0, torch.arange(3)),
        steps=60,
        **settings,
    )
    wrong = model().predict(x).argmax(1) != Y
    return SearchOutcome(x, wrong, suspicion(x), ledger.fooled, ledger.costs.backwards)


def test_finds_the_corner_that_both_leave_open(subtests):
    """An alarm below y = 0.2 everywhere: the way out is right and up. The third point cannot turn
    within eps.
    """
    for norm in ["linf", "l2"]:
        with subtests.test(str(norm)):
            outcome = run(lambda x: -x[:, 1], -0.2, norm=norm)
            assert outcome.wrong.tolist() == outcome.succeeded.tolist() == [True, True, False]
            assert (outcome.score[:2] <= -0.2).all() and (outcome.x[:2, 0] > 0).all()
            size = (outcome.x - X).abs().amax(1) if norm == "linf" else (outcome.x - X).norm(dim=1)
            assert (size <= 0.5 + 1e-5).all()


def test_no_way_out():
    """Everything to the right raises the alarm: it errs, or stays unnoticed, never both; the least
    suspicious error is kept.
    """
    outcome = run(lambda x: x[:, 0], 0.0)
    assert outcome.wrong.tolist() == [True, True, False]
    assert (outcome.score[:2] > 0).all() and (outcome.score[:2] < 0.1).all()
    assert (outcome.steps == 60).all() and not outcome.succeeded.any()


def test_what_must_stay_stays():
    free = torch.tensor([[False, True]] * 3)
    outcome = run(lambda x: x[:, 1] * 0, 1.0, free=free)
    assert not outcome.wrong.any() and torch.equal(outcome.x[:, 0], X[:, 0])


def test_stops_where_it_is_done():
    outcome = run(lambda x: x[:, 1] * 0, 1.0)
    assert (outcome.steps[:2] < 60).all() and outcome.steps[2] == 60
