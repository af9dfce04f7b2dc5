"""What a step pays, by hand, and that nothing leaves its bounds."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core.losses import margin
from brinell.rlab import episodes
from brinell.rlab.episodes import QUERY, Slots


def reward_of(before, after, *, start=None):
    """The reward of a step from one answer to another."""
    y, x = torch.tensor([0]), torch.zeros(1, 1, 4)
    state = replace(
        Slots.empty(x, 1, before.shape[1]), margin=margin(before, y), start=margin(before if start is None else start, y)
    )
    return episodes.reward_of(state, margin(after, y)).item()


def test_margin_by_hand():
    """Leads 4, 3 and 1 of the true class: the way is 4, the step 2."""
    start, before, after = (torch.tensor([[lead, 0.0]]) for lead in (4.0, 3.0, 1.0))
    assert reward_of(before, after, start=start) == pytest.approx(0.5 - QUERY)
    assert reward_of(after, before, start=start) == pytest.approx(-QUERY), "a step back costs the query alone"
    winning_logits = torch.tensor([[-7.0, 0.0]])
    assert reward_of(before, winning_logits, start=start) == pytest.approx(0.75 - QUERY), (
        "beyond the criterion nothing more is paid"
    )


def test_margin_steps_of_a_won_episode_add_up_to_one():
    leads = [4.0, 2.5, 2.0, 0.5, -1.0]
    start = torch.tensor([[leads[0], 0.0]])
    steps = zip(leads, leads[1:], strict=False)
    total = sum(reward_of(torch.tensor([[a, 0.0]]), torch.tensor([[b, 0.0]]), start=start) + QUERY for a, b in steps)
    assert total == pytest.approx(1.0, abs=1e-6)


def test_an_undone_step_gains_nothing():
    """The true class falls behind its probability before, but so does the class that came second: the step is undone."""
    before, after = torch.tensor([[0.5, 0.4, 0.1]]).log(), torch.tensor([[0.45, 0.2, 0.35]]).log()
    assert reward_of(before, after) == pytest.approx(-QUERY)


@given(*[st.lists(st.floats(-60, 60), min_size=3, max_size=3) for _ in range(3)])
def test_every_reward_is_bounded(start, before, after):
    before, after, start = (torch.tensor([number]) for number in (before, after, start))
    assert -1 <= reward_of(before, after, start=start) <= 1
