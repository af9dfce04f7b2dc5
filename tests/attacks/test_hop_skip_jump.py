"""HopSkipJump against exact margins, and what it spends."""

import pytest
import torch

from _helpers import Recorder, run_attack, threshold
from brinell.attacks.hop_skip_jump import HopSkipJump
from brinell.core.domain import Domain


def test_one_bisection_by_hand():
    """One value decides, and the boundary is at 0.5: after the first bisection the input lies just
    beyond, on the segment.
    """
    model = Recorder(threshold(0.5))
    ledger = run_attack(
        HopSkipJump(steps=1, samples=1), model, [[0.2, 0.4]], [0], 10.0, "l2", queries=40
    )
    calls = torch.cat(model.calls)
    start = int((calls[:, 0] > 0.5).nonzero()[0, 0])
    segment = calls[start : start + 2]
    middle = (torch.tensor([0.2, 0.4]) + segment[0]) / 2
    torch.testing.assert_close(segment[1], middle)
    assert (
        ledger.best.distance.item() == pytest.approx(0.3, abs=0.35)
        and ledger.costs.forwards.item() <= 40
    )


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
    assert (
        len(fine[0, 0].unique()) == 30
        and len(middle[0, 0].unique()) == 9
        and len(coarse[0, 0].unique()) == 4
    )
    assert (
        fine[:, 0].min() < -0.5
        and fine[:, 1].max() > 3
        and (middle[:, :, 0, 0] == middle[:, :, 1, 1]).all()
    )
