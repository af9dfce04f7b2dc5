"""Sigma-zero against Algorithm 1, and against exact numbers of values."""

import pytest
import torch

from _helpers import Recorder, mlp, run_attack, threat_of
from brinell.attacks.sigma_zero import SigmaZero
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.testing.linear import linear_problem

SIX = Domain(kind="vector", shape=(6,))


def sigma_zero_of_the_paper(function, x0, y, steps):
    """Algorithm 1 for one sample with Adam from torch: every point that is looked at, in order."""
    points = []
    delta = torch.zeros_like(x0).requires_grad_()
    adam = torch.optim.Adam([delta], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, T_max=steps, eta_min=0.1)
    threshold = 0.3

    for _ in range(steps):
        points.append((x0 + delta).detach())
        z = function((x0 + delta)[None])[0]
        lead = z[y] - torch.cat([z[:y], z[y + 1 :]]).max()
        count = (delta**2 / (delta**2 + 1e-3)).mean()
        rate = schedule.get_last_lr()[0]
        adam.zero_grad()
        (lead.clamp_min(0) + count).backward()
        delta.grad /= delta.grad.abs().max().clamp_min(1e-12)
        adam.step()
        schedule.step()

        threshold += 0.01 * (rate if lead < 0 else -rate)
        threshold = min(max(threshold, 0.0), 1.0)
        with torch.no_grad():
            delta.copy_((x0 + delta).clamp(0, 1) - x0)
            delta[delta.abs() < threshold] = 0
    return torch.stack([*points, (x0 + delta).detach()])


@pytest.mark.parametrize("seed", range(4))
def test_goes_where_algorithm_1_goes(seed):
    module = mlp(6, 4, seed)
    model = Recorder(module, SIX, classes=4)
    x0 = torch.rand(6, generator=torch.Generator().manual_seed(seed))
    y = int(module(x0[None]).argmax())
    run_attack(SigmaZero(steps=25), model, x0[None], [y], 6.0, "l0", minimal=True)
    expected = sigma_zero_of_the_paper(module, x0, y, 25)
    torch.testing.assert_close(torch.cat(model.calls)[:26], expected, atol=1e-4, rtol=0)


def test_one_large_change_takes_the_place_of_many_small_ones():
    """One value reaches the boundary by itself, or five together; the count is what decides."""
    weight = torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    model = Recorder(lambda x: torch.stack([torch.full((len(x),), 0.9), x @ weight], 1), SIX)
    ledger = run_attack(SigmaZero(), model, [[0.0] * 6], [0], 6.0, "l0", minimal=True)
    assert ledger.best.distance.tolist() == [1.0]


def test_a_sample_leaves_at_eps_where_it_is_told_to():
    model = Recorder(mlp(6, 4, 1), SIX, classes=4)
    x = torch.full((1, 6), 0.5)
    y = [int(model.predict(x).argmax())]
    long = run_attack(SigmaZero(), model, x, y, 6.0, "l0", minimal=True)
    short = run_attack(SigmaZero(stop_at_eps=True), model, x, y, 6.0, "l0", minimal=True)
    assert short.fooled.all() and short.costs.forwards[0] < long.costs.forwards[0] == 309


def test_finds_the_exact_count_of_linear_models(subtests):
    """On linear models the exact number of values is found."""
    for kind, n in (("image", 24), ("signal", 24)):
        with subtests.test(kind=kind):
            problem = linear_problem(kind, "l0", n=n, seed=5)
            threat = threat_of(problem.margin, "l0", problem.model.domain)
            ledger = Ledger(problem.model, problem.batch, threat, minimal=True)
            SigmaZero(steps=60)(
                ledger.oracle(), problem.batch, threat, Streams.of(0, problem.batch.ids)
            )
            assert torch.equal(ledger.best.distance, problem.margin)
