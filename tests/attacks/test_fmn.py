"""FMN against Algorithm 1, and against exact distances."""

import math

import torch

from _helpers import Recorder, batch_of, mlp, run_attack, threat_of, threshold
from brinell.attacks.fmn import FMN
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.testing import LinearModel

NORMS = ["linf", "l2", "l1"]
SIX = Domain(kind="vector", shape=(6,))


def fmn_of_the_paper(function, x0, y, steps, norm, alpha, gamma, projected):
    """Algorithm 1 for one sample, transcribed, with the one deviation in the first radius: every
    point looked at, in order.
    """
    order, dual = {"linf": (torch.inf, 1), "l2": (2, 2), "l1": (1, torch.inf)}[norm]
    delta, eps, best, points = torch.zeros_like(x0), 0.0, math.inf, []
    for k in range(1, steps + 1):
        leaf = (x0 + delta).requires_grad_()
        z = function(leaf[None])[0]
        loss = z[y] - torch.cat([z[:y], z[y + 1 :]]).max()
        (g,) = torch.autograd.grad(loss, leaf)
        loss, points = loss.item(), [*points, leaf.detach()]
        annealed = (1 + math.cos(k * math.pi / steps)) / 2
        gamma_k, alpha_k = (last + (first - last) * annealed for first, last in (gamma, alpha))
        size = delta.norm(p=order).item()
        if loss >= 0:
            eps = (
                (size + loss / g.norm(p=dual).item()) * (1 + gamma_k)
                if best == math.inf
                else eps * (1 + gamma_k)
            )
        else:
            best = min(best, size)
            eps = min(eps * (1 - gamma_k), best)
        delta = projected(delta - alpha_k * g / g.norm(), eps)
        delta = (x0 + delta).clamp(0, 1) - x0
    return torch.stack([*points, x0 + delta])


def test_goes_where_algorithm_1_goes(subtests):
    for norm in NORMS:
        for seed in range(4):
            with subtests.test(norm=norm, seed=seed):
                module = mlp(6, 4, seed)
                model = Recorder(module, SIX, classes=4)
                x0 = torch.rand(6, generator=torch.Generator().manual_seed(seed))
                y = int(module(x0[None]).argmax())
                run_attack(FMN(steps=25, gamma=0.05), model, x0[None], [y], 1.0, norm, minimal=True)
                first = 10.0 if norm == "linf" else 1.0
                ball = threat_of(1.0, norm, SIX).distance

                def projected(delta, eps, ball=ball):
                    return ball.project(delta[None], torch.tensor([eps]))[0]

                expected = fmn_of_the_paper(
                    module, x0, y, 25, norm, (first, first / 100), (0.05, 0.001), projected
                )
                torch.testing.assert_close(torch.cat(model.calls), expected, atol=1e-4, rtol=0)


def test_the_first_steps_by_hand():
    """The boundary is at 0.1: the ball reaches 1.05 times as far, then shrinks by gamma, then grows
    by it.
    """
    model = Recorder(threshold(0.5))
    run_attack(FMN(steps=1000, gamma=0.05), model, [[0.4, 0.4]], [0], 1.0, minimal=True, queries=4)
    inputs = torch.cat(model.calls)
    expected = torch.tensor(
        [[0.4, 0.4], [0.505, 0.4], [0.4 + 0.105 * 0.95, 0.4], [0.4 + 0.105 * 0.95 * 1.05, 0.4]]
    )
    torch.testing.assert_close(inputs, expected, atol=1e-5, rtol=0)


def test_bounds_the_distance_from_above_among_many_boundaries(subtests):
    """Eight classes that compete: gradients follow the leading rival, which need not be the
    nearest; never below the exact.
    """
    for norm in NORMS:
        with subtests.test(norm=norm):
            rng = torch.Generator().manual_seed(0)
            domain = Domain(kind="vector", shape=(40,), low=-50.0, high=50.0)
            model = LinearModel(
                torch.randn(8, 40, generator=rng), torch.randn(8, generator=rng), domain
            )
            x = torch.randn(50, 40, generator=rng)
            batch = batch_of(x, model.predict(x).argmax(1))
            margin = model.margin(x, batch.y, norm)
            ledger = Ledger(model, batch, threat_of(10 * margin, norm, domain), minimal=True)
            FMN()(
                ledger.oracle(),
                batch,
                threat_of(10 * margin, norm, domain),
                Streams.of(0, batch.ids),
            )
            share = ledger.best.distance / margin
            assert (share >= 0.999).all() and share.median() < 1.01 and share.max() < 2
