"""C&W, DDN and DeepFool against their papers' algorithms, and against exact distances."""

import math

import pytest
import torch

from _helpers import Recorder, mlp, run_attack, threshold
from brinell.attacks.cw import CW
from brinell.attacks.ddn import DDN
from brinell.attacks.deepfool import DeepFool
from brinell.core.domain import Domain

SIX = Domain(kind="vector", shape=(6,))
EXACT = [
    (DDN(), "l2"),
    (DeepFool(), "l2"),
    (DeepFool(), "linf"),
    (CW(steps=120, searches=7, step_size=0.002, init_c=0.003), "l2"),
]
"""Each attack and norm, with settings that come near to the exact distance of a linear model."""
SHORT = [
    (DDN(steps=6), "l2"),
    (DeepFool(steps=3), "l2"),
    (DeepFool(steps=3, candidates=1), "linf"),
    (CW(steps=4, searches=3, abort_early=False), "l2"),
]


def test_costs_what_it_says(subtests):
    """On a model that is never fooled, so that every step is taken."""
    for attack, norm in SHORT:
        with subtests.test(attack=attack, norm=norm):
            module = mlp(6, 4)
            model = Recorder(
                lambda x, module=module: module(x) + torch.tensor([1e3, 0, 0, 0]), SIX, classes=4
            )
            ledger = run_attack(attack, model, torch.full((3, 6), 0.5), [0] * 3, 0.3, norm)
            assert {
                *zip(ledger.costs.forwards.tolist(), ledger.costs.backwards.tolist(), strict=True)
            } == {attack.cost(4)}


# DDN


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


# DeepFool


TWO_RIVALS = [(-1.1, [1.0, 1.0, 0.0]), (-1.06, [0.0, 0.0, 2.0])]
"""From 0.5 everywhere: class 1 leads after 0.05 in Linf or 0.0707 in L2, class 2 after 0.03 in
either."""


def linear(rows):
    offsets, weights = (
        torch.tensor([row[0] for row in rows]),
        torch.tensor([row[1] for row in rows]),
    )
    return lambda x: torch.cat([torch.zeros(len(x), 1), offsets + x @ weights.T], 1)


def test_deepfool_steps_onto_the_nearest_boundary(subtests):
    """Worked by hand: |f| / |w|_q along the direction of the norm, 1.02 times as far and a
    ten-thousandth farther at least.
    """
    for rows, norm, step in [
        (TWO_RIVALS, "linf", [0, 0, 1.02 * 0.03]),
        (TWO_RIVALS, "l2", [0, 0, 1.02 * 0.03]),
        (TWO_RIVALS[:1], "linf", [1.02 * 0.05, 1.02 * 0.05, 0]),
        (TWO_RIVALS[:1], "l2", [1.02 * 0.05, 1.02 * 0.05, 0]),
        ([(-1.002, [1.0, 1.0, 0.0])], "linf", [0.001 + 1e-4, 0.001 + 1e-4, 0]),
    ]:
        with subtests.test(rows=rows, norm=norm, step=step):
            model = Recorder(linear(rows), Domain(kind="vector", shape=(3,)), classes=len(rows) + 1)
            ledger = run_attack(DeepFool(), model, [[0.5] * 3], [0], 1.0, norm)
            assert ledger.fooled.all() and len(model.calls) == 2, (
                "one step does on a linear model, and then it is done"
            )
            torch.testing.assert_close(
                model.calls[1][0] - 0.5, torch.tensor(step), atol=1e-6, rtol=0
            )


def test_deepfool_with_one_candidate_looks_at_the_most_likely_other_class():
    model = Recorder(
        linear([(-0.86, [1.0, 0.0, 0.0]), (-2.12, [1.0, 1.0, 1.0])]),
        Domain(kind="vector", shape=(3,)),
        classes=3,
    )
    run_attack(DeepFool(candidates=1), model, [[0.5] * 3], [0], 1.0, "linf")
    torch.testing.assert_close(model.calls[-1][0], torch.tensor([0.5 + 1.02 * 0.36, 0.5, 0.5]))


def test_deepfool_crosses_where_the_bounds_cut_its_steps():
    """The steeper of two values can hardly move, so that each step closes little of the gap;
    overshoot alone never would.
    """
    model = Recorder(
        linear([(-1.1, [5.0, 1.0])]), Domain(kind="vector", shape=(2,), high=(0.101, 1.0))
    )
    ledger = run_attack(DeepFool(steps=200), model, [[0.1, 0.0]], [0], 1.0, "l2")
    assert ledger.fooled.all() and ledger.best.distance[0] == pytest.approx(0.595, rel=0.02)


# C&W


def objective_of(function, x0, y, c):
    """Value and gradient, and whether the point is adversarial, of the objective of the paper."""

    def objective(x):
        leaf = x.clone().requires_grad_()
        z = function(leaf[None])[0]
        lead = z[y] - torch.cat([z[:y], z[y + 1 :]]).max()
        value = ((leaf - x0) ** 2).sum() + c * lead.clamp_min(0)
        return torch.autograd.grad(value, leaf)[0], bool(lead < 0)

    return objective


def searched(run, searches, first):
    """The points of several runs, each over a c of its own: tenfold until one leads to an
    adversarial input, then bisected.
    """
    c, low, high, all_points = first, 0.0, math.inf, []
    for _ in range(searches):
        points, has_succeeded = run(c)
        low, high = (low, c) if has_succeeded else (c, high)
        c, all_points = 10 * c if math.isinf(high) else (low + high) / 2, [*all_points, *points]
    return torch.stack(all_points)


def cw_of_the_paper(function, x0, y, steps, searches, first):
    """Section V with Adam from torch, for one sample: every point after the clean one, run by run."""

    def run(c):
        objective, points, success = objective_of(function, x0, y, c), [], False
        w = torch.atanh((2 * x0 - 1) * (1 - 1e-6)).requires_grad_()
        adam = torch.optim.Adam([w], lr=0.01)
        for _ in range(steps):
            grad, _ = objective(((w.tanh() + 1) / 2).detach())
            adam.zero_grad()
            ((w.tanh() + 1) / 2).backward(grad)
            adam.step()
            points.append(((w.tanh() + 1) / 2).detach())
            success |= objective(points[-1])[1]
        return points, success

    return searched(run, searches, first)


def hard(module):
    """Logits a hundred times as large, so that the first c of the paper already matters."""
    return lambda x: 100 * module(x)


def test_cw_goes_where_the_paper_goes():
    for seed in range(2):
        function = hard(mlp(6, 4, seed))
        model = Recorder(function, SIX, classes=4)
        x0 = torch.rand(6, generator=torch.Generator().manual_seed(seed))
        y = int(function(x0[None]).argmax())
        run_attack(CW(steps=20, searches=5, abort_early=False), model, x0[None], [y], 3.0, "l2")
        expected = cw_of_the_paper(function, x0, y, 20, 5, 0.001)
        torch.testing.assert_close(torch.cat(model.calls[1:]), expected, atol=1e-4, rtol=0)


def test_a_sample_whose_objective_falls_no_more_leaves_alone():
    """The first sample settles at once, where the model is flat; the second one goes on."""

    def function(x):
        lead = torch.where(x[:, 0] < 0.3, -0 * x[:, 0] - 1, 50 * (x[:, 0] - 0.6))
        return torch.stack([-lead, lead], 1)

    attack = CW(steps=120, searches=4)
    ledger = run_attack(attack, Recorder(function), [[0.1, 0.4], [0.5, 0.4]], [0, 0], 1.0, "l2")
    most = attack.cost(2)[0]
    assert (
        ledger.costs.forwards[0] < most / 4
        and 2 * ledger.costs.forwards[0] < ledger.costs.forwards[1]
        and ledger.fooled.tolist() == [False, True]
    )
