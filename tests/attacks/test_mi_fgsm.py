"""MI-FGSM: momentum worked by hand, resizing and smoothing as what they are, and the same rows
whatever the company.
"""

import pytest
import torch

from _helpers import Recorder, run_attack
from brinell import plugins
from brinell.attacks.mi_fgsm import MIFGSM, padded, smoothed
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.streams import Streams

IMAGE = Domain(kind="image", shape=(1, 6, 6))


def turning(x):
    """Logits whose gradient to the first value points down until it reaches 0.45, and up below; the
    second value counts less.
    """
    z = torch.stack([(x[:, 0] - 0.45) ** 2 - 5, 0.1 * x[:, 1] - 5], 1).sum(1)
    return torch.stack([0 * z, z], 1)


def test_momentum_by_hand():
    """Three steps of 0.1 from 0.5 along the sums of normalised gradients; nothing is ever
    adversarial.
    """
    gradients = []
    for decay in (1.0, 0.0):
        model = Recorder(turning)
        run_attack(MIFGSM(steps=3, decay=decay), model, [[0.4, 0.5]], [0], 0.3)
        gradients.append(torch.stack([call[0] for call in model.calls]))
    # d z / d x0 = 2 (x0 - 0.45) < 0 at 0.4: x0 falls, x1 rises, by a third of eps each time.
    expected = torch.tensor([[0.4, 0.5], [0.3, 0.6], [0.2, 0.7], [0.1, 0.8]])
    assert all(torch.allclose(gradient, expected, atol=1e-6) for gradient in gradients)
    # From 0.5 the gradient of x0 is 0.1 and then, at 0.6 and 0.7, larger; with momentum the sum of
    # the shares decides.
    model = Recorder(lambda x: torch.stack([0 * x[:, 0], -((x[:, 0] - 0.55) ** 2) - 5], 1))
    run_attack(MIFGSM(steps=3, decay=1.0), model, [[0.5, 0.5]], [0], 0.3)
    with_momentum = torch.stack([call[0, 0] for call in model.calls])
    # Shares of a single moving value are 1, -1, ...: the sums are 1, 0, and so the second step
    # stands still.
    assert torch.allclose(with_momentum, torch.tensor([0.5, 0.6, 0.6, 0.5]), atol=1e-6)
    model.calls.clear()
    run_attack(MIFGSM(steps=3, decay=0.0), model, [[0.5, 0.5]], [0], 0.3)
    assert torch.allclose(
        torch.stack([call[0, 0] for call in model.calls]),
        torch.tensor([0.5, 0.6, 0.5, 0.6]),
        atol=1e-6,
    )


def test_resizing():
    x = torch.arange(36.0).reshape(1, 1, 6, 6)
    assert torch.allclose(padded(x, torch.ones(1), torch.rand(1, 2)), x, atol=1e-4)
    # At half its side, on the left and below: each pixel shows the mean of four, and the rest is
    # padding.
    half = padded(x, torch.tensor([0.5]), torch.tensor([[0.0, 1.0]]))
    means = torch.nn.functional.avg_pool2d(x, 2)
    assert torch.allclose(half[:, :, 3:, :3], means, atol=1e-4)
    assert half[:, :, :3].abs().max() == 0 and half[:, :, :, 3:].abs().max() == 0
    video = x.reshape(1, 1, 1, 6, 6).repeat(1, 1, 2, 1, 1)
    assert torch.allclose(
        padded(video, torch.tensor([0.5]), torch.tensor([[0.0, 1.0]]))[:, :, 1], half, atol=1e-4
    )


def test_smoothing():
    spot = torch.zeros(1, 1, 7, 7)
    spot[0, 0, 3, 3] = 1
    kernel = smoothed(spot, 5)[0, 0]
    assert kernel.sum() == pytest.approx(1, abs=1e-5) and torch.allclose(kernel, kernel.T)
    # exp(-9/8) at one step and exp(-9/2) at two, before the sum is made 1.
    assert kernel[3, 4] / kernel[3, 3] == pytest.approx(0.3247, abs=1e-3)
    assert kernel[3, 5] / kernel[3, 3] == pytest.approx(0.0111, abs=1e-3)
    assert kernel[3, 6] == 0


def test_a_gradient_is_led_back_through_the_resizing():
    """Of a linear model the gradient at a resized input is the transposed map of the weights: by
    differences of the whole.
    """
    weight = torch.linspace(-1, 1, 36).reshape(1, 1, 6, 6)
    model = Recorder(
        lambda x: torch.stack([0 * x.sum((1, 2, 3)), (x * weight).sum((1, 2, 3)) - 20], 1), IMAGE
    )
    attack = MIFGSM(steps=1, diverse=1.0, shrink=0.5)
    x = torch.full((1, 1, 6, 6), 0.5)
    ledger = run_attack(attack, model, x, [0], 0.1)
    first_call, last = model.calls
    assert int(ledger.costs.forwards) == 2 and (first_call != x).any()
    rng = Streams.of(0, torch.arange(1)).fold("test").fold(0)
    share = 0.5 + 0.5 * rng.fold("share").uniform(1)[:, 0]
    place = rng.fold("place").uniform(2)
    assert torch.allclose(first_call, padded(x, share, place), atol=1e-6)
    slopes = torch.stack(
        [(padded(e, share, place) * weight).sum() for e in torch.eye(36).reshape(36, 1, 1, 6, 6)]
    )
    assert torch.allclose(last - x, 0.1 * slopes.sign().reshape(1, 1, 6, 6), atol=1e-6)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="its side is odd"):
        MIFGSM(kernel=4)
    with pytest.raises(RequestError, match="not a vector: leave diverse and kernel out"):
        MIFGSM(diverse=0.5).check(Domain(kind="vector", shape=(4,)))
    with pytest.raises(RequestError, match="kernel is 9, larger"):
        MIFGSM(kernel=9).check(IMAGE)
    assert plugins.load("attack", "mi-fgsm") is MIFGSM
