"""SimBA against its paper: orthonormal directions, low frequencies first, and linear models whose
answer is known.
"""

import math

import pytest
import torch

from _helpers import Recorder, run_attack, slope
from brinell.attacks import simba
from brinell.attacks._shared import cosines
from brinell.attacks.simba import SimBA
from brinell.core.domain import Domain
from brinell.core.streams import Streams

IMAGE = Domain(kind="image", shape=(2, 5, 4))
DOMAINS = [
    IMAGE,
    Domain(kind="signal", shape=(2, 15)),
    Domain(kind="video", shape=(1, 3, 4, 3)),
    Domain(kind="vector", shape=(30,)),
]


def unbeaten(domain):
    """A linear model that is never fooled; every value has a slope of its own."""
    return Recorder(
        lambda x: torch.stack([torch.full((len(x),), 1e3), x.flatten(1) @ slope(domain)], 1), domain
    )


def queries_of(domain, norm, eps, steps, **settings):
    """Clean inputs, and (steps + 1, n, *shape) of what was asked about."""
    x, model = Streams.of(4, torch.arange(3)).uniform(*domain.shape) * 0.2 + 0.4, unbeaten(domain)
    ledger = run_attack(SimBA(steps=steps, **settings), model, x, [0] * 3, eps, norm)
    assert ledger.costs.forwards.tolist() == [steps + 1] * 3
    return x, torch.stack(model.calls)


def test_pixels_reach_the_corner_of_the_linf_ball(subtests):
    """Two queries a value at most, and every value stands at the end at which its slope points:
    nothing is higher.
    """
    for domain in DOMAINS:
        with subtests.test(domain=domain):
            values = math.prod(domain.shape)
            x, calls = queries_of(domain, "linf", 0.1, 2 * values + 1)
            heights = (calls - x).flatten(2) @ slope(domain)
            torch.testing.assert_close(
                heights.amax(0), (0.1 * slope(domain).abs().sum()).expand(3), atol=1e-4, rtol=0
            )


def test_every_direction_is_taken_with_the_sign_that_helps(subtests):
    """Steps so short that the ball cuts nothing off: of an orthonormal basis all directions add up
    to sqrt(d) steps.
    """
    for basis in ["pixel", "dct"]:
        for domain in DOMAINS:
            with subtests.test(basis=basis, domain=domain):
                values = math.prod(domain.shape)
                share = 0.9 / math.sqrt(values)
                x, calls = queries_of(
                    domain, "l2", 0.3, 2 * values + 1, basis=basis, step_size=share
                )
                best = (calls - x).flatten(2)[
                    (calls - x).flatten(2).matmul(slope(domain)).argmax(0), torch.arange(3)
                ]
                # Once all are used they are begun anew, so one step more may be in it.
                torch.testing.assert_close(
                    best.norm(dim=1), torch.full((3,), 0.27), atol=0.3 * share, rtol=0
                )
                steps = (calls[1:] - calls[0]).flatten(2)
                first = steps[0]
                torch.testing.assert_close(
                    first.norm(dim=1), torch.full((3,), 0.3 * share), atol=1e-5, rtol=0
                )


def test_cosines_are_orthonormal(subtests):
    for side in [1, 2, 7, 32]:
        with subtests.test(side=side):
            waves = cosines(side)
            torch.testing.assert_close(waves @ waves.T, torch.eye(side), atol=1e-5, rtol=0)
            assert ((waves[:, 1:] * waves[:, :-1]) < 0).sum(1).tolist() == list(
                range(side)
            )  # frequency f crosses zero f times


def test_low_frequencies_come_first():
    """Of 32 values an eighth are 4 and a thirty-second is 1: a square of 4 x 4 first, then a rim of
    1 after another.
    """
    blocks = simba._blocks((32, 32)).reshape(32, 32)
    assert (blocks[:4, :4] == 0).all() and (blocks == 0).sum() == 16
    assert blocks[4, 0] == 1 and blocks[2, 4] == 1 and blocks[31, 0] == 28 and blocks[5, 9] == 6
    domain = Domain(kind="image", shape=(1, 32, 32))
    waves = cosines(32)
    x, calls = queries_of(domain, "l2", 1.0, 16, basis="dct")
    spectrum = waves @ (calls - x)[:, :, 0] @ waves.T
    assert (
        spectrum[:, :, 4:].abs().max() < 1e-4
        and spectrum[:, :, :, 4:].abs().max() < 1e-4
        and spectrum.abs().max() > 0.1
    )


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_steps_that_change_nothing_are_left_out(norm):
    """Black inputs, where every second step runs into the bound."""
    model = unbeaten(IMAGE)
    run_attack(
        SimBA(steps=45),
        model,
        torch.zeros(2, 2, 5, 4),
        [0, 0],
        0.2 if norm == "linf" else 5.0,
        norm,
    )
    for sample in torch.stack(model.calls).flatten(2).unbind(1):
        best = sample[0]
        for call in sample[1:]:
            assert not torch.equal(call, best)
            best = call if call @ slope(IMAGE) > best @ slope(IMAGE) else best
