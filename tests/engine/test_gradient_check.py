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
from brinell.engine.gradient_check import (
    MIN_VISIBLE,
    GradientCheck,
    disagreement,
    even_frequencies,
    even_values,
    plain_signs,
)
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


def verdict_of(net, change, n=64, **options):
    """Whether the quick look doubts the gradient, and what the full check finds."""
    x, y = inputs(net, n)
    check, _ = check_of(TorchModel(Before(net, change), IMAGES), x, y, **options)
    return check.is_doubtful(), check.full_check()


# Known answers


def test_disagreement_by_hand():
    for real, predicted, expected in [
        ([1.0, -2.0], [1.0, -2.0], 0.0),
        ([1.0, -2.0], [0.0, 0.0], 1.0),
        ([1.0, -2.0], [-1.0, 2.0], 2.0),
        ([3.0, 1.0], [4.0, 1.0], 1 / 27),  # (3 - 4)^2 over 9 + 1 + 16 + 1
    ]:
        size = disagreement(torch.tensor([real]), torch.tensor([predicted]), torch.zeros(1))
        assert size.item() == pytest.approx(expected)
    actual, predicted = torch.tensor([[0.5, 0], [3.0, 4], [3.0, 4]]), torch.zeros(3, 2)
    predicted[2] = torch.tensor([3.0, 3.5])
    size = disagreement(actual, predicted, torch.ones(3))
    assert size[0].isnan(), "no change above rounding"
    assert size[1].item() == pytest.approx(0.64), "an error of 5, of which 1 is rounding, over 5"
    assert size[2] == 0, "an error of 0.5"


def test_every_value_contributes_alike():
    strength = torch.tensor([4.0, 2.0, 1.0, 0.0]).expand(3, 4)
    noise = torch.rand(40_000, 4, generator=torch.Generator().manual_seed(0))
    steps = even_values(strength)(noise)
    # The mean is 7/4, and a quarter of it the least: chances are the squares of 7/16 over each size.
    chances = torch.tensor([49 / 4096, 49 / 1024, 49 / 256, 1.0])
    torch.testing.assert_close(steps.abs().mean(0), chances, atol=0.01, rtol=0)
    torch.testing.assert_close(steps.mean(0), torch.zeros(4), atol=0.02, rtol=0)
    assert set(steps.unique().tolist()) == {-1.0, 0.0, 1.0}


def test_steps_avoid_the_waves_of_which_the_gradient_is_made():
    wave = torch.cos(2 * torch.pi * torch.arange(8) / 8).expand(5, 1, 8, 8).contiguous()
    noise = torch.rand(400, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    power = torch.fft.rfft2(even_frequencies(wave)(noise)).abs().square().mean((0, 1))
    assert power[0, 1] < 0.5 * power.median()
    plain = torch.fft.rfft2(plain_signs(noise)).abs().square().mean((0, 1))
    assert plain[0, 1] > 0.7 * plain.median()


def test_a_smooth_network_passes_at_every_budget(net):
    for norm in ["linf", "l2", "l1"]:
        for eps in (1e-3, 0.03, 0.3, 5.0, torch.inf):
            doubtful, agreement = verdict_of(net, lambda x: x, eps=eps, norm=norm)
            assert not doubtful and not agreement.fails, (norm, eps)
            assert agreement.wrong == 0 and agreement.disagreement < 0.02, (norm, eps)


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
    agreement = check.full_check()
    assert agreement.samples < MIN_VISIBLE and not agreement.fails
    check, _ = check_of(TorchModel(Half(net), IMAGES), x, y, eps=0.5)
    agreement = check.full_check()
    assert agreement.samples >= MIN_VISIBLE and not agreement.fails


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
        for n in (16, 64):
            doubtful, agreement = verdict_of(net, change, n)
            assert doubtful and agreement.fails, (name, n)
    _, agreement = verdict_of(
        net, lambda x: x + (torch.round(x * 255) / 255 - x).detach(), eps=0.02
    )
    assert not agreement.fails, "a rounding finer than the steps of attacks"


def by_place(rng):
    """A random half of the values."""
    return masked((torch.rand(3, 8, 8, generator=rng) < 0.5).float())


def by_patch(rng):
    """A random half of the patches of 2x2."""
    coarse = (torch.rand(3, 4, 4, generator=rng) < 0.5).float()
    return masked(coarse.repeat_interleave(2, 1).repeat_interleave(2, 2))


def by_frequency(rng):
    """A random half of the frequencies of each channel."""
    keep = (torch.rand(3, 8, 5, generator=rng) < 0.5).float()

    def change(x):
        part = torch.fft.irfft2(torch.fft.rfft2(x) * keep, s=(8, 8))
        return part + (x - part).detach()

    return change


def by_sample(rng):
    """Some half of the inputs, told by a value at random."""
    place = int(torch.randint(0, 64, (1,), generator=rng))
    return lambda x: torch.where((x.flatten(1)[:, place] > 0.5)[:, None, None, None], x.detach(), x)


def by_filter(rng):
    """A share of what is left of a median over windows at random, whose gradient passes straight
    through.
    """
    side = 3 if float(torch.rand(1, generator=rng)) < 0.5 else 5

    def change(x):
        windows = nn.functional.pad(x, (side // 2,) * 4, mode="reflect").unfold(2, side, 1)
        median = windows.unfold(3, side, 1).flatten(4).median(-1).values
        return x + (0.5 * (median - x)).detach()

    return change


@pytest.mark.parametrize("kind", [by_place, by_patch, by_frequency, by_sample, by_filter])
def test_a_missing_part_is_found_whatever_its_pattern(net, kind):
    rng = torch.Generator().manual_seed(11)
    for number in range(4):
        doubtful, agreement = verdict_of(net, kind(rng), 32)
        assert doubtful and agreement.fails, (number, agreement)


def test_a_gradient_with_a_small_error_passes(net):
    """Less than a tenth of the effect: an attack that follows it loses little."""
    for share in (0.02, 0.1):
        _, agreement = verdict_of(net, lambda x, share=share: x - share * x + share * x.detach())
        assert not agreement.fails and agreement.disagreement < 0.02


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
