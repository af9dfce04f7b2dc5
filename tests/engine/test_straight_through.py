"""Gradients through roundings and detachments, wherever they stand in a model's code."""

import pytest
import torch
from torch import nn

from _helpers import batch_of, distance
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.engine.context import CheckContext
from brinell.engine.repair import find_repair, repair_candidates, with_straight_through
from brinell.models._straight_through import StraightThrough
from brinell.models._torch_model import TorchModel

FOUR = Domain(kind="vector", shape=(4,))


def seeded(make):
    net = make().eval()
    draw = torch.Generator().manual_seed(0)
    for weights in net.parameters():
        weights.data = torch.rand(weights.shape, generator=draw) - 0.5
    return net


def unseeing(x):
    with torch.no_grad():
        return 3 * x


@torch.no_grad()
def decorated(x):
    return 3 * x


def gradient(function, point, attach):
    x = torch.tensor(point, requires_grad=True)
    with StraightThrough(attach=attach) as mode:
        out = function(x)
    torch.testing.assert_close(out, function(x.detach())), "values stay as they are"
    grad = torch.autograd.grad(out.sum(), x)[0] if out.requires_grad else torch.zeros_like(x)
    return grad.tolist(), mode.changed_calls


def test_gradients_by_hand():
    for function, attach, slope, is_caught in [
        (lambda x: torch.round(2 * x), False, [2.0, 2.0], 1),
        (lambda x: (2 * x).floor() + x.ceil() + torch.trunc(x), False, [4.0, 4.0], 3),
        (torch.sign, False, [1.0, 0.0], 1),
        (lambda x: 3 * x.detach(), False, [0.0, 0.0], 0),
        (lambda x: 3 * x.detach(), True, [3.0, 3.0], 1),
        (lambda x: 3 * x.data, True, [3.0, 3.0], 1),
        (unseeing, True, [3.0, 3.0], 2),
        (decorated, True, [3.0, 3.0], 2),
        (lambda x: x.square(), True, [0.6, 2.4], 0),
    ]:
        result = gradient(function, [0.3, 1.2], attach)
        assert result[0] == pytest.approx(slope) and result[1] == is_caught


def test_decisions_rise_with_what_they_compare():
    for function, is_caught in [
        (lambda x: (x > 0.5).float(), 1),
        (lambda x: 1 - (x < 0.5).to(torch.float32), 1),
        (lambda x: torch.where(x >= 0.5, 2.0, 1.0), 1),
        (lambda x: 3.0 * (x > 0.5) * torch.ones(2), 1),
        (
            lambda x: torch.nn.functional.one_hot(torch.stack([-x, x], 1).argmax(1), 2).float()[
                :, 1
            ],
            1,
        ),
    ]:
        x = torch.tensor([0.3, 1.2], requires_grad=True)
        with StraightThrough(attach=False, decide=True) as mode:
            out = function(x)
        torch.testing.assert_close(out, function(x.detach()))
        assert mode.changed_calls == is_caught and (torch.autograd.grad(out.sum(), x)[0] > 0).all()


def test_the_decision_of_a_single_number_stays_finite():
    x = torch.tensor([0.7], requires_grad=True)
    with StraightThrough(attach=True, decide=True):
        value = torch.where(x < 0.5, x * 2, x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert value.item() == pytest.approx(0.7) and bool(torch.isfinite(slope).all())


def test_a_one_hot_answer_gets_a_gradient():
    net = seeded(Middle).last
    model = TorchModel(nn.Sequential(net, OneHot()), Domain(kind="vector", shape=(16,)))
    x = torch.rand(64, 16, generator=torch.Generator().manual_seed(0))
    repaired = repair_candidates(model, x)[
        "the identity at every rounding and detachment, and smooth decisions"
    ]
    leaf = x.clone().requires_grad_()
    answers = repaired.predict(leaf)
    torch.testing.assert_close(answers, model.predict(x))
    expected = x.clone().requires_grad_()
    soft = 10 * net(expected).softmax(1)
    torch.testing.assert_close(
        *(
            torch.autograd.grad(out[:, 0].sum(), point)[0]
            for out, point in ((answers, leaf), (soft, expected))
        )
    )


class OneHot(nn.Module):
    def forward(self, x):
        return 10 * torch.nn.functional.one_hot(x.argmax(1), x.shape[1]).float()


class Middle(nn.Module):
    """Rounds between two layers, in its own forward pass and in no module."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(torch.round(5 * self.first(x)) / 5)


@pytest.mark.parametrize("hidden", [False, True], ids=["module", "callable"])
def test_a_rounding_in_no_module_is_gone_around(hidden):
    net = seeded(Middle)
    model = TorchModel(nn.Sequential(net) if not hidden else Hiding(net), FOUR)
    x = torch.rand(64, 4, generator=torch.Generator().manual_seed(0))
    batch = batch_of(x, net(x).argmax(1))
    context = CheckContext(
        model, batch, distance("linf"), 0.2, Streams.of(0, batch.ids), batch_size=64
    )
    repaired = find_repair(context)
    assert repaired.substitute == "the identity at every rounding" and all(context.costs)
    leaf = x.clone().requires_grad_()
    answers = repaired.model.predict(leaf)
    torch.testing.assert_close(answers, net(x))
    straight = net.last(net.first(leaf))
    torch.testing.assert_close(
        *(torch.autograd.grad(out[:, 0].sum(), leaf)[0] for out in (answers, straight))
    )


class Hiding(nn.Module):
    """Keeps its network where no module is looked for."""

    def __init__(self, net):
        super().__init__()
        self.modules_ = [net]

    def forward(self, x):
        return self.modules_[0](x)


def test_detachments_are_another_way_than_roundings():
    class MiddleAndEnd(Middle):
        def forward(self, x):
            return super().forward(x) + self.last(self.first(x).detach())

    model = TorchModel(seeded(MiddleAndEnd), FOUR)
    descriptions = list(repair_candidates(model, torch.rand(8, 4)))
    assert descriptions[:2] == [
        "the identity at every rounding",
        "the identity at every rounding and detachment",
    ]
    x = torch.rand(5, 4, requires_grad=True)
    attached, rounded = (
        torch.autograd.grad(with_straight_through(model, attach=attach).predict(x).sum(), x)[0]
        for attach in (True, False)
    )
    torch.testing.assert_close(attached, 2 * rounded)
