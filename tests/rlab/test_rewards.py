"""What a step pays, by hand, and that nothing leaves its bounds."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core.losses import margin
from brinell.rlab.episodes import (
    QUERY,
    QUOTIENT,
    SHORTEST,
    Slots,
    dilution,
    dilution_per_l2,
    rise_of_margin,
)


def reward_of(before, after, *, start=None):
    """The reward of a step from one answer to another."""
    y, x = torch.tensor([0]), torch.zeros(1, 1, 4)
    state = replace(
        Slots.empty(x, 1, before.shape[1]),
        margin=margin(before, y),
        start=margin(before if start is None else start, y),
    )
    return rise_of_margin(state, margin(after, y)).item()


def test_margin_by_hand():
    """Leads 4, 3 and 1 of the true class: the way is 4, the step 2."""
    start, before, after = (torch.tensor([[lead, 0.0]]) for lead in (4.0, 3.0, 1.0))
    assert reward_of(before, after, start=start) == pytest.approx(0.5 - QUERY)
    assert reward_of(after, before, start=start) == pytest.approx(-QUERY), (
        "a step back costs the query alone"
    )
    winning_logits = torch.tensor([[-7.0, 0.0]])
    assert reward_of(before, winning_logits, start=start) == pytest.approx(0.75 - QUERY), (
        "beyond the criterion nothing more is paid"
    )


def test_margin_steps_of_a_won_episode_add_up_to_one():
    leads = [4.0, 2.5, 2.0, 0.5, -1.0]
    start = torch.tensor([[leads[0], 0.0]])
    steps = zip(leads, leads[1:], strict=False)
    total = sum(
        reward_of(torch.tensor([[a, 0.0]]), torch.tensor([[b, 0.0]]), start=start) + QUERY
        for a, b in steps
    )
    assert total == pytest.approx(1.0, abs=1e-6)


def test_an_undone_step_gains_nothing():
    """The true class falls behind its probability before, but so does the class that came second:
    the step is undone.
    """
    before, after = torch.tensor([[0.5, 0.4, 0.1]]).log(), torch.tensor([[0.45, 0.2, 0.35]]).log()
    assert reward_of(before, after) == pytest.approx(-QUERY)


@given(*[st.lists(st.floats(-60, 60), min_size=3, max_size=3) for _ in range(3)])
def test_every_reward_is_bounded(start, before, after):
    before, after, start = (torch.tensor([number]) for number in (before, after, start))
    assert -1 <= reward_of(before, after, start=start) <= 1


def dilution_reward(before, after, *, moved=0.1, was=0.0, radius=1.0):
    """The papers' reward of a step from one answer to another; lengths in L2."""
    y, clean = torch.tensor([0]), torch.zeros(1, 1, 4)
    point, x = clean.clone(), clean.clone()
    point[0, 0, 0], x[0, 0, 0] = was, moved
    state = Slots.empty(point, 1, before.shape[1])
    state = replace(
        state, logits=before, margin=margin(before, y), radius=torch.tensor([radius]), x=point
    )
    return dilution_per_l2(state, x, after, margin(after, y), y, clean).item()


def of(p):
    return torch.tensor([[p, 1 - p]], dtype=torch.float64).log().float()


def test_dilution_against_its_formula_has_no_corner():
    """1 / log10 p, divided by the value at p = 1 of the line that touches it at 0.9."""
    slope = (1 / math.log10(0.9 + 1e-6) - 1 / math.log10(0.9 - 1e-6)) / 2e-6
    for p in [0.9, 0.5, 0.1, 1e-3, 1e-9]:
        expected = -1 / math.log10(p) / (1 / math.log10(0.9) + slope * 0.1)
        assert dilution(of(p), torch.tensor([0])).item() == pytest.approx(expected, rel=1e-3)
    p = torch.linspace(1e-6, 1 - 1e-6, 4001, dtype=torch.float64)
    values = dilution(torch.stack([p, 1 - p], 1).log(), torch.zeros(len(p), dtype=torch.int64))
    assert (
        values.isfinite().all()
        and (values.diff() < 0).all()
        and values[-1].item() == pytest.approx(-1, abs=1e-3)
    )


def test_dilution_is_paid_for_each_length_where_a_step_is_kept():
    y, before, after = torch.tensor([0]), of(0.5), of(0.4)
    rise = (dilution(after, y) - dilution(before, y)).item()
    assert 0 < rise < 0.2
    for gain, settings in (
        (rise / (0.4 / 2.0), {"moved": 0.5, "was": 0.1, "radius": 2.0}),
        (min(1.0, rise / SHORTEST), {"moved": 0.1, "was": 0.1}),
        (rise / 0.3, {"moved": 0.4, "was": 0.1, "radius": math.inf}),
    ):
        assert dilution_reward(before, after, **settings) == pytest.approx(
            QUOTIENT * (gain - 1), rel=1e-4, abs=1e-7
        )
    behind = torch.tensor([[0.5, 0.4, 0.1]]).log(), torch.tensor([[0.45, 0.2, 0.35]]).log()
    assert dilution_reward(*behind) == pytest.approx(-QUOTIENT), (
        "it is undone, since the margin fell"
    )
