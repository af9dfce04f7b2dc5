"""Where attacks ended: planted plateaus are found at random shapes and few samples, and sound models
have none.
"""

import random

import pytest
import torch
from torch import nn

import brinell
from _defences import Wrapper
from _helpers import batch_of, distance, mlp, threat_of
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.engine.adaptive import conditions
from brinell.engine.context import NotMadeError
from brinell.engine.plateau import check_plateaus, way_to_others
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))
X = torch.rand(60, 6, generator=torch.Generator().manual_seed(4))
Y = mlp(6, 3)(X).argmax(1)


class Front(Wrapper):
    """The margin of a network through a function, below and above the class alike."""

    def __init__(self, net, function):
        super().__init__(net)
        self.function = function

    def forward(self, x):
        z = self.net(x)
        top = z.topk(2, 1)
        lead = top.values[:, :1] - top.values[:, 1:]
        first = nn.functional.one_hot(top.indices[:, 0], z.shape[1])
        return first * (self.function(lead) + 0.0 * z)


def clipped(rng):
    """A lead cut off at a small value."""
    most = rng.uniform(0.001, 0.05)
    return lambda lead: lead.clamp(max=most)


def with_dead_zone(rng):
    """A lead that rises at first, stands still for long, and rises again."""
    low, width = rng.uniform(0.001, 0.02), rng.uniform(3, 9)
    return lambda lead: lead.clamp(max=low) + (lead - low - width).clamp(min=0)


def cold(rng):
    """A lead at a low temperature, which rounding makes flat."""
    temperature = rng.uniform(200, 1000)
    return lambda lead: torch.tanh(temperature * lead)


class SharpVotes(nn.Module):
    """The mean probability of networks at a low temperature, as logits."""

    def __init__(self, nets, temperature):
        super().__init__()
        self.nets, self.temperature = nn.ModuleList(nets), temperature

    def forward(self, x):
        votes = [(self.temperature * net(x)).softmax(1) for net in self.nets]
        return torch.stack(votes).mean(0).clamp_min(1e-6).log()


def finding_on(net, n=24, eps=0.02, norm="linf", seed=0):
    """The finding on the first n samples that a network has right."""
    net = net.eval().requires_grad_(False)
    index = (net(X).argmax(1) == Y).nonzero()[:, 0]
    batch, rivals = batch_of(X[index[:n]], Y[index[:n]]), batch_of(X[index], Y[index])
    threat = threat_of([eps] * len(batch), norm, SIX)
    model, rng = TorchModel(net, SIX), Streams.of(seed, batch.ids)
    return check_plateaus(model, batch, threat, rivals, rng, 64)


def test_the_way_to_others_by_hand():
    threat = threat_of([0.1, 0.1], domain=Domain(kind="vector", shape=(2,)))
    x, rivals = torch.tensor([[0.2, 0.4], [0.9, 0.9]]), batch_of([[0.5, 0.5], [0.2, 0.3]], [1, 0])
    assert way_to_others(threat, x, torch.tensor([0, 1]), rivals).tolist() == pytest.approx(
        [0.3, 0.7]
    )
    single = batch_of([[0.5, 0.5]], [0])
    # No other class: the corners (1, 1) and, from the other input, none nearer than (0, 0).
    assert way_to_others(threat, x, torch.tensor([0, 0]), single).tolist() == pytest.approx(
        [0.8, 0.9]
    )


def test_a_sound_network_has_no_plateau_whatever_the_budget():
    for norm, eps in (("linf", 1e-5), ("linf", 0.05), ("l2", 1e-3), ("l2", 0.1), ("l1", 0.1)):
        for n in (8, 40):
            finding, forwards, _ = finding_on(mlp(6, 3), n, eps, norm)
            assert finding.passed is True and finding.figure == 0, (norm, eps, finding.text)
            assert 0 < forwards <= 12 * n


@pytest.mark.parametrize("plant", [clipped, with_dead_zone, cold])
def test_a_planted_plateau_is_found_on_few_samples(plant):
    for seed in range(4):
        shape = plant(random.Random(seed))
        for n in (10, 40):
            finding, *_ = finding_on(Front(mlp(6, 3), shape), n)
            assert finding.passed is False, (seed, n, finding.text)
            assert finding.error_rate <= 1e-3


def test_a_sharp_ensemble_is_found():
    for seed in range(3):
        temperature = random.Random(seed).uniform(300, 2000)
        net = SharpVotes([mlp(6, 3) for _ in range(3)], temperature)
        finding, *_ = finding_on(net, eps=0.005)
        assert finding.passed is False, finding.text


def test_a_model_without_gradients_is_not_judged():
    batch = batch_of(X[:4], Y[:4])
    model = TorchModel(mlp(6, 3), SIX)
    model.access = type(model.access).SCORES
    with pytest.raises(NotMadeError, match="scores only"):
        threat = threat_of([0.1] * 4, domain=SIX)
        check_plateaus(model, batch, threat, batch, Streams.of(0, batch.ids), 64)
    assert distance("l0").name == "l0"
    with pytest.raises(NotMadeError, match="promises nothing"):
        finding_on(mlp(6, 3), 4, 2.0, "l0")


def sharp_network(temperature):
    """Votes of a network and of rivals near it, none of which decides alone."""
    nets, rng = [mlp(6, 3) for _ in range(3)], torch.Generator().manual_seed(0)
    for net in nets[1:]:
        for weights in net.parameters():
            weights.data += 0.3 * weights.std() * torch.randn(weights.shape, generator=rng)
    return SharpVotes(nets, temperature)


def test_an_audit_says_where_attacks_ended(tmp_path):
    for number, (net, passed) in enumerate(((mlp(6, 3), True), (sharp_network(1e3), False))):
        labels = net(X).argmax(1)
        result = brinell.audit(
            net.eval(), (X, labels), eps=0.005, attack="apgd-ce?steps=5", out=tmp_path / str(number)
        )
        check = next(check for check in result.models[0].checks if check.code == Code.PLATEAU)
        assert check.passed is passed, check.text


def test_a_plateau_starts_attacks_that_need_no_slope():
    assert conditions([Code.PLATEAU], incomplete=False, repaired=None) == {"masked", "detached"}
