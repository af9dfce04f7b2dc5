"""Finite differences tell a gradient from what only looks like one, and find a way around it."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import brinell
from _helpers import batch_of, distance
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.streams import Streams
from brinell.datasets.digits import Digits
from brinell.engine.context import CheckContext
from brinell.engine.gradient_check import GradientCheck, agreement
from brinell.engine.repair import find_repair, with_surrogate
from brinell.models._torch_model import TorchModel
from brinell.models.digits_cnn import DigitsCnn

IMAGES = Domain(kind="image", shape=(3, 8, 8))


class Before(nn.Module):
    """A network behind something that is done to its inputs."""

    def __init__(self, net, change):
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x):
        return self.net(self.change(x))


def masked(mask):
    """The identity, with a gradient where the mask is 1."""
    return lambda x: x * mask + (x * (1 - mask)).detach()


def only(*index):
    """1 but at the chosen entries of the first axis."""
    mask = torch.ones(3, 1, 1)
    mask[list(index)] = 0
    return mask


def seeded(module):
    """A module with random weights, the same each time."""
    generator = torch.Generator().manual_seed(0)
    for weights in module.parameters():
        weights.data = (
            (torch.rand(weights.shape, generator=generator) - 0.5) * 2 / weights[0].numel() ** 0.5
        )
    return module.requires_grad_(False)


@pytest.fixture(scope="module")
def net():
    """A smooth network on pictures of 8x8 in three channels."""
    return seeded(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(512, 4))
    )


def inputs(net, n=64):
    x = torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return x, net(x).argmax(1)


def check_of(model, x, y, eps=8 / 255, norm="linf"):
    batch = batch_of(x, y)
    context = CheckContext(model, batch, distance(norm), eps, Streams.of(0, batch.ids))
    return GradientCheck(context, context.oracle, context.margin.grad), context.ledgers[0]


def verdict_of(net, change, **options):
    x, y = inputs(net)
    check, _ = check_of(TorchModel(Before(net, change), IMAGES), x, y, **options)
    return check.is_doubtful(), check.full_check()


# Known answers


def test_disagreement_by_hand():
    for real, predicted, expected in [
        ([1.0, -2.0, 0.5], [1.0, -2.0, 0.5], 0.0),
        ([1.0, -2.0, 0.5], [0.0, 0.0, 0.0], 1.0),
        ([1.0, -2.0, 0.5], [-1.0, 2.0, -0.5], 2.0),
        ([3.0, 1.0], [4.0, 1.0], 0.2 / (5 + 2**0.5)),  # (3 - 4)^2 / 5 + 0 over 5 + sqrt(2)
    ]:
        result = agreement(torch.tensor(real), torch.tensor(predicted), torch.zeros(len(real)))
        assert result.disagreement == pytest.approx(expected) and result.samples == len(real)
    result = agreement(
        torch.tensor([1e-7, 0.0]), torch.tensor([-1e-7, 0.0]), torch.full((2,), 1e-6)
    )
    assert result.samples == 0 and result.disagreement != result.disagreement


def test_a_smooth_network_passes_at_every_budget(net):
    for norm in ["linf", "l2", "l1"]:
        for eps in (1e-3, 0.03, 0.3, 5.0, torch.inf):
            doubtful, (disagreement, wrong) = verdict_of(net, lambda x: x, eps=eps, norm=norm)
            assert not doubtful and not wrong and disagreement < 0.02, (norm, eps)


class Half(nn.Module):
    """A network whose weights and answers are bf16."""

    def __init__(self, net):
        super().__init__()
        self.net = deepcopy(net).bfloat16()

    def forward(self, x):
        return self.net(x.bfloat16()).float()


def test_what_half_precision_rounds_away_is_not_judged(net):
    """Steps within a small budget change such answers by less than they are rounded; within a large
    one they can be seen.
    """
    x, y = inputs(net)
    check, _ = check_of(TorchModel(Half(net), IMAGES), x, y, eps=0.5 / 255)
    assert check.is_doubtful()
    disagreement, wrong = check.full_check()
    assert disagreement != disagreement and not wrong
    check, _ = check_of(TorchModel(Half(net), IMAGES), x, y, eps=0.5)
    assert not check.full_check()[1]


# Planted faults


def left_half(x):
    mask = torch.ones(8, 8)
    mask[:4, :4] = 0
    return masked(mask)(x)


def dots(x):
    index = torch.arange(8)
    return masked(((index[:, None] + index[None]) % 2 == 0).float())(x)


FAULTS = {
    "a channel without": masked(only(2)),
    "two channels without": masked(only(0, 1)),
    "a corner without": left_half,
    "every second pixel without": dots,
    "opposite in a channel": lambda x: x * (2 * only(1) - 1) + 2 * (x * (1 - only(1))).detach(),
    "half of it detached": lambda x: x / 2 + x.detach() / 2,
    "changes from pixel to pixel": lambda x: (
        (low := nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)) + (x - low).detach()
    ),
    "eight levels, straight through": lambda x: x + (torch.round(x * 7) / 7 - x).detach(),
    "ripples": lambda x: x + 0.01 * torch.sin(1000 * x),
}


def test_a_wrong_gradient_is_found(net):
    for name, change in FAULTS.items():
        doubtful, (_, wrong) = verdict_of(net, change)
        assert doubtful and wrong, name
    _, (_, wrong) = verdict_of(
        net, lambda x: x + (torch.round(x * 255) / 255 - x).detach(), eps=0.02
    )
    assert not wrong, "a rounding finer than the steps of attacks"


# The way around


def test_a_repair_answers_alike_and_has_the_intact_gradient(net):
    for name in ["a channel without", "every second pixel without", "half of it detached"]:
        model, (x, y) = TorchModel(Before(net, FAULTS[name]), IMAGES), inputs(net)
        repaired = find_repair(
            CheckContext(
                model, batch_of(x, y), distance("linf"), 8 / 255, Streams.of(0, torch.arange(64))
            )
        )
        assert repaired.disagreement < 0.02
        leaf, intact = x.clone().requires_grad_(), x.clone().requires_grad_()
        answers = repaired.model.predict(leaf)
        torch.testing.assert_close(answers, net(x))
        pairs = ((answers, leaf), (net(intact), intact))
        torch.testing.assert_close(
            *(torch.autograd.grad(out.square().sum(), of)[0] for out, of in pairs)
        )


def test_a_surrogate_lends_its_gradient_and_nothing_else(net):
    model, surrogate = TorchModel(Before(net, torch.round), IMAGES), TorchModel(net, IMAGES)
    x = inputs(net, 4)[0].requires_grad_()
    combined = with_surrogate(model, surrogate)
    answers = combined.predict(x)
    torch.testing.assert_close(answers, model.predict(x))
    torch.testing.assert_close(
        torch.autograd.grad(answers[:, 1].sum(), x)[0],
        torch.autograd.grad(net(x)[:, 1].sum(), x)[0],
    )
    assert combined.digest() == model.digest()


# End to end


@pytest.mark.slow
@pytest.mark.nightly
def test_an_audit_goes_around_a_blind_block():
    data = Digits()()
    intact = DigitsCnn()(data.domain).module
    mask = torch.zeros(1, 8, 8)
    mask[..., 0] = 1  # only the first column has a gradient
    x, y = data.load(range(60)), torch.from_numpy(data.labels()[:60])
    intact_result, blind = (
        brinell.audit(net, (x, y), eps="0.15").models[0]
        for net in (intact, Before(intact, masked(mask)))
    )
    assert abs(blind.robust_accuracy[-1].k - intact_result.robust_accuracy[-1].k) <= 1
    failed = {check.code: check.text for check in blind.checks if check.passed is False}
    assert "gradient-mismatch" in failed
    assert "gradient-mismatch" not in {
        check.code for check in intact_result.checks if check.passed is False
    }
    assert any("attacked with the identity" in remark.text for remark in blind.remarks)
    gained = [stage for stage in blind.stages if "gradient=repaired" in stage.attack and stage.drop]
    assert gained, "the stages that go around the gradient found what others had not"


def test_a_surrogate_that_nothing_follows_is_refused():
    with pytest.raises(RequestError, match="no attack follows it"):
        brinell.audit(
            "digits-cnn", "digits", eps="0.1", samples=4, attack=("fgsm",), surrogate="digits-cnn"
        )
    with pytest.raises(RequestError, match="and none is named: add"):
        brinell.audit(
            "digits-cnn", "digits", eps="0.1", samples=4, attack=("fgsm?gradient=surrogate",)
        )
