"""DDN against its paper's algorithm, and against exact distances."""

import math

import pytest
import torch

from _helpers import Recorder, mlp, run_attack, threshold
from brinell.attacks.ddn import DDN
from brinell.core.domain import Domain

SIX = Domain(kind="vector", shape=(6,))


def test_costs_what_it_says():
    """On a model that is never fooled, so that every step is taken."""
    attack = DDN(steps=6)
    module = mlp(6, 4)
    model = Recorder(lambda x: module(x) + torch.tensor([1e3, 0, 0, 0]), SIX, classes=4)
    ledger = run_attack(attack, model, torch.full((3, 6), 0.5), [0] * 3, 0.3, "l2")
    costs = zip(ledger.costs.forwards.tolist(), ledger.costs.backwards.tolist(), strict=True)
    assert {*costs} == {attack.cost(4)}


def ddn_of_the_paper(function, x0, y, steps, gamma):
    """Algorithm 1 for one sample, transcribed: every point that is looked at, in order."""
    delta, eps, points = torch.zeros_like(x0), 1.0, [x0]
    for k in range(steps):
        leaf = points[-1].clone().requires_grad_()
        logits = function(leaf[None])
        (g,) = torch.autograd.grad(
            torch.nn.functional.cross_entropy(logits, torch.tensor([y])), leaf
        )
        alpha = 0.01 + 0.99 * (1 + math.cos(math.pi * k / steps)) / 2
        delta = points[-1] - x0 + alpha * g / g.norm()
        eps = min(
            eps * ((1 - gamma) if logits.argmax() != y else (1 + gamma)),
            torch.maximum(x0, 1 - x0).norm().item(),
        )
        points.append((x0 + eps * delta / delta.norm()).clamp(0, 1))
    return torch.stack(points)


def test_ddn_goes_where_algorithm_1_goes():
    for seed in range(4):
        module = mlp(6, 4, seed)
        model = Recorder(module, SIX, classes=4)
        x0 = torch.rand(6, generator=torch.Generator().manual_seed(seed))
        y = int(module(x0[None]).argmax())
        run_attack(DDN(steps=30), model, x0[None], [y], 3.0, "l2")
        torch.testing.assert_close(
            torch.cat(model.calls), ddn_of_the_paper(module, x0, y, 30, 0.05), atol=1e-4, rtol=0
        )


def test_ddn_shrinks_and_grows_the_sphere():
    """The boundary is 0.1 away: from an adversarial input to 0.95 of its radius, from another one
    to 1.05 of it.
    """
    model = Recorder(threshold(0.5))
    run_attack(DDN(steps=200, init_norm=0.105), model, [[0.4, 0.4]], [0], 1.0, "l2")
    sizes = (torch.cat(model.calls)[:4] - 0.4).norm(dim=1)
    assert sizes.tolist() == pytest.approx(
        [0, 0.105 * 1.05, 0.105 * 1.05 * 0.95, 0.105 * 1.05 * 0.95**2], abs=1e-5
    )


def test_ddn_leaves_a_flat_place_in_a_random_direction():
    """No gradient at the clean input, which lies on a plateau of the first value; the boundary is
    beyond.
    """
    model = Recorder(lambda x: threshold(0.6)(x.clamp_min(0.45)))
    x = [[0.4, 0.4]] * 16
    ledger = run_attack(DDN(steps=50, init_norm=0.1), model, x, [0] * 16, 1.0, "l2")
    assert 0 < ledger.fooled.sum() and len(model.calls[1].unique(dim=0)) == 16
