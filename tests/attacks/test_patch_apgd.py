"""Patch-APGD on models whose best square is known."""

import itertools

import pytest
import torch

from _helpers import Recorder, distance, run_attack
from brinell.attacks.patch_apgd import PatchAPGD
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.testing.linear import LinearModel

IMAGE = Domain(kind="image", shape=(2, 6, 7))


def best_gains(weight, x, side):
    """(n,): what a linear logit gains by the best square of this side, tried one by one."""
    best = torch.full((len(x),), -torch.inf)
    height, width = (min(side, length) for length in x.shape[2:])
    rooms = [range(x.shape[2] - height + 1), range(x.shape[3] - width + 1)]
    for row, column in itertools.product(*rooms):
        window = (..., slice(row, row + height), slice(column, column + width))
        slope, values = weight[window], x[window]
        gain = torch.maximum(slope * (1 - values), -slope * values)
        best = torch.maximum(best, gain.sum((1, 2, 3)))
    return best


def test_finds_the_best_square_of_a_linear_model():
    """It succeeds where the best of all squares does, and only there, whatever the gap."""
    n = 40
    weight = Streams.of(1, torch.arange(1)).normal(*IMAGE.shape)[0]
    x = Streams.of(2, torch.arange(n)).uniform(*IMAGE.shape)
    eps = torch.arange(n) % 9
    gain = torch.stack([best_gains(weight, x, side) for side in range(1, 9)])
    gain = torch.where(eps > 0, gain.gather(0, (eps - 1).clamp_min(0)[None])[0], 0)
    # Half of the samples need a little more than the best square gives them.
    share = torch.where(Streams.of(3, torch.arange(n)).uniform(1)[:, 0] < 0.5, 0.999, 1.001)
    gap = share * gain + 1e-3 * (eps == 0)

    start = (x * weight).flatten(1).sum(1)
    for row in range(n):
        model = Recorder(
            lambda z, row=row: torch.stack(
                [torch.zeros(len(z)), (z * weight).flatten(1).sum(1) - start[row] - gap[row]], 1
            ),
            IMAGE,
        )
        attack = PatchAPGD(candidates=1, places=1, steps=1)
        ledger = run_attack(attack, model, x[row : row + 1], [0], float(eps[row]), "patch")
        assert bool(ledger.fooled) == bool(gain[row] > gap[row])
        change = torch.cat(model.calls or [x[:0]]) - x[row]
        assert (distance("patch").size(change) <= eps[row]).all()


def test_margin_of_a_linear_model_is_that_of_all_squares():
    model = LinearModel(
        Streams.of(4, torch.arange(2)).normal(*IMAGE.shape).flatten(1), torch.zeros(2), IMAGE
    )
    x = Streams.of(5, torch.arange(12)).uniform(*IMAGE.shape)
    y = model.predict(x).argmax(1)
    slope = (model.weight[1] - model.weight[0]).view(IMAGE.shape)
    for row, margin in enumerate(model.margin(x, y, "patch").tolist()):
        towards = slope if y[row] == 0 else -slope
        gap = float((model.predict(x[row : row + 1]) * torch.tensor([1.0, -1.0])).sum().abs())
        sides = [
            side for side in range(1, 8) if float(best_gains(towards, x[row : row + 1], side)) > gap
        ]
        assert margin == min(sides, default=float("inf"))


@pytest.mark.parametrize(("steps", "finds"), [(1, False), (60, True)])
def test_finds_content_between_the_bounds(steps, finds):
    """Only content near a grey pattern fools: no corner of the bounds does, and no single step."""
    pattern = 0.35 + 0.3 * Streams.of(6, torch.arange(1)).uniform(*IMAGE.shape)[0]
    x = torch.full((4, *IMAGE.shape), 0.5)
    x[:, :, 2:5, 3:6] = Streams.of(7, torch.arange(4)).uniform(2, 3, 3)

    def function(z):
        miss = ((z - pattern)[:, :, 2:5, 3:6]).square().flatten(1).sum(1)
        return torch.stack([miss, torch.full_like(miss, 0.02)], 1)

    model = Recorder(function, IMAGE)
    attack = PatchAPGD(candidates=4, places=4, steps=steps)
    ledger = run_attack(attack, model, x, [0] * 4, 3.0, "patch")
    assert ledger.fooled.tolist() == [finds] * 4


def test_places_are_drawn_by_what_they_promise():
    """The first place is the best one; of the others, a place of twice the worth comes before
    another two times in three.
    """
    weight = torch.zeros(1, 1, 12)
    weight[..., 0], weight[..., 6], weight[..., 11] = 3.0, 2.0, 1.0
    domain = Domain(kind="image", shape=(1, 1, 12))
    model = Recorder(
        lambda z: torch.stack([torch.full((len(z),), 9.0), (z * weight).flatten(1).sum(1)], 1),
        domain,
    )
    n = 500
    attack = PatchAPGD(candidates=2, places=1, steps=1)
    run_attack(attack, model, torch.zeros(n, 1, 1, 12), [0] * n, 1.0, "patch")
    # The clean inputs come first, then both candidates of each sample.
    places = torch.cat(model.calls)[n : 3 * n].flatten(1).argmax(1).view(n, 2)
    assert (places[:, 0] == 0).all()
    share = (places[:, 1] == 6).float().mean()
    assert abs(float(share) - 2 / 3) < 4.5 * (2 / 9 / n) ** 0.5
