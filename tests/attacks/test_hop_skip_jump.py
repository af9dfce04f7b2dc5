"""HopSkipJump against exact margins, and what it spends."""

import pytest
import torch

from _helpers import Recorder, run_attack, threshold
from brinell.attacks.hop_skip_jump import HopSkipJump
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.testing.linear import linear_problem


def test_one_bisection_by_hand():
    """One value decides, and the boundary is at 0.5: after the first bisection the input lies just beyond, on the segment."""
    model = Recorder(threshold(0.5))
    ledger = run_attack(HopSkipJump(steps=1, samples=1), model, [[0.2, 0.4]], [0], 10.0, "l2", queries=40)
    calls = torch.cat(model.calls)
    start = int((calls[:, 0] > 0.5).nonzero()[0, 0])
    segment = calls[start : start + 2]
    middle = (torch.tensor([0.2, 0.4]) + segment[0]) / 2
    torch.testing.assert_close(segment[1], middle)
    assert ledger.best.distance.item() == pytest.approx(0.3, abs=0.35) and ledger.costs.forwards.item() <= 40


def test_no_start_no_walk():
    """A model that never errs costs the tries and nothing else."""
    model = Recorder(lambda x: torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1))
    ledger = run_attack(HopSkipJump(starts=9), model, [[0.2, 0.4], [0.3, 0.3]], [0, 0], 1.0, "l2")
    assert ledger.costs.forwards.tolist() == [9, 9] and not ledger.fooled.any()


def test_noise_comes_in_coarser_and_coarser_squares():
    domain = Domain(kind="image", shape=(2, 6, 5), low=(-1.0, 0.0), high=(1.0, 4.0))
    model = Recorder(lambda x: torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1), domain)
    run_attack(HopSkipJump(starts=3), model, torch.full((2, 2, 6, 5), 0.5), [0, 0], 1.0, "l2")
    fine, middle, coarse = model.calls
    assert len(fine[0, 0].unique()) == 30 and len(middle[0, 0].unique()) == 9 and len(coarse[0, 0].unique()) == 4
    assert fine[:, 0].min() < -0.5 and fine[:, 1].max() > 3 and (middle[:, :, 0, 0] == middle[:, :, 1, 1]).all()


def test_costs_by_hand():
    """With a budget nobody spends more; without, the bound holds: starts, bisections, estimates of 10, 14 and 17, and jumps."""
    attack = HopSkipJump(steps=3, samples=10, starts=5)
    assert attack.cost(10) == (5 + 24 + (10 + 14 + 17) + 3 * (30 + 24), 0)
    problem = linear_problem("signal", "l2", n=6)
    for queries in (1, 7, 33, 60):
        ledger = run_attack(attack, problem.model, problem.batch.x, problem.batch.y, 10.0, "l2", queries=queries)
        assert (ledger.costs.forwards <= queries).all() and ledger.costs.forwards.max() == queries
    assert (
        run_attack(attack, problem.model, problem.batch.x, problem.batch.y, 10.0, "l2").costs.forwards.max() <= attack.cost(5)[0]
    )


def test_a_sample_does_the_same_alone():
    problem = linear_problem("video", "l2", n=5)
    attack = HopSkipJump(steps=3, samples=20)
    batched = run_attack(attack, problem.model, problem.batch.x, problem.batch.y, 10.0, "l2")
    separate = run_attack(attack, problem.model, problem.batch.x[:1], problem.batch.y[:1], 10.0, "l2")
    torch.testing.assert_close(batched.best.distance[:1], separate.best.distance, atol=1e-4, rtol=1e-3)
    assert batched.best.distance.isfinite().all()


def test_bounds_are_kept():
    domain = Domain(kind="signal", shape=(2, 20), low=(0.25, 0.0), high=(0.8, 0.55))
    model = Recorder(lambda x: torch.stack([x.flatten(1).sum(1), 40 - x.flatten(1).sum(1) - 22], 1), domain)
    x = domain.clamp(Streams.of(0, torch.arange(3)).uniform(2, 20) * 0.2 + 0.35)
    ledger = run_attack(HopSkipJump(steps=2, samples=20), model, x, model.function(x).argmax(1), 10.0, "l2")
    low, high = domain.bounds()
    calls = torch.cat(model.calls)
    assert (calls >= low).all() and (calls <= high).all() and ledger.fooled.any()


def test_settings_out_of_range(subtests):
    for settings in [{"steps": 0}, {"samples": 0}, {"starts": 0}, {"gamma": 0.0}]:
        with subtests.test(settings=settings):
            with pytest.raises(ValueError, match=next(iter(settings))):
                HopSkipJump(**settings)
