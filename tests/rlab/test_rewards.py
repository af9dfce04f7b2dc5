"""What a step pays, by hand, and that nothing leaves its bounds."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core.losses import margin
from brinell.rlab import episodes
from brinell.rlab.episodes import FLOOR, QUERY, QUOTIENT, Slots, dilution

NAMES = ["margin", "dilution"]


def logits_of(p, classes=2):
    """(1, classes): probability p for class 0, the rest shared."""
    return torch.tensor([[p, *[(1 - p) / (classes - 1)] * (classes - 1)]], dtype=torch.float64).log().float()


def reward_of(name, before, after, *, start=None, distance_moved=0.1, was=0.0, radius=1.0, shape=(1, 4)):
    """The reward of a step from one answer to another; lengths in L2."""
    y, clean = torch.tensor([0]), torch.zeros(1, *shape)
    point = clean.clone()
    point[0, 0, 0] = was
    x = clean.clone()
    x[0, 0, 0] = distance_moved
    start = before if start is None else start
    state = Slots.empty(point, 1, before.shape[1])
    state = replace(
        state, logits=before, margin=margin(before, y), start=margin(start, y), radius=torch.tensor([radius]), x=point
    )
    return episodes.reward_of(name, state, x, after, margin(after, y), y, clean).item()


def test_dilution_against_its_formula(subtests):
    """1 / log10 p, divided by the value at p = 1 of the line that touches it at 0.9."""
    for p in [0.9, 0.5, 0.1, 1e-3, 1e-9]:
        with subtests.test(p=p):
            slope = (1 / math.log10(0.9 + 1e-6) - 1 / math.log10(0.9 - 1e-6)) / 2e-6
            end = 1 / math.log10(0.9) + slope * 0.1
            assert dilution(logits_of(p), torch.tensor([0])).item() == pytest.approx(1 / math.log10(p) / -end, rel=1e-3)


def test_dilution_is_monotone_finite_and_has_no_corner():
    p = torch.linspace(1e-6, 1 - 1e-6, 4001, dtype=torch.float64)
    values = dilution(torch.stack([p, 1 - p], 1).log(), torch.zeros(len(p), dtype=torch.int64))
    assert values.isfinite().all() and (values.diff() < 0).all()
    assert values[-1].item() == pytest.approx(-1, abs=1e-3) and values[0].item() == pytest.approx(0, abs=0.01)
    slopes = values.diff() / p.diff()
    position = int((p < 0.9).sum())
    assert slopes[position - 3].item() == pytest.approx(slopes[position + 3].item(), rel=0.05)


def test_margin_by_hand():
    """Leads 4, 3 and 1 of the true class: the way is 4, the step 2."""
    start, before, after = (torch.tensor([[lead, 0.0]]) for lead in (4.0, 3.0, 1.0))
    assert reward_of("margin", before, after, start=start) == pytest.approx(0.5 - QUERY)
    assert reward_of("margin", after, before, start=start) == pytest.approx(-QUERY), "a step back costs the query alone"
    winning_logits = torch.tensor([[-7.0, 0.0]])
    assert reward_of("margin", before, winning_logits, start=start) == pytest.approx(0.75 - QUERY), (
        "beyond the criterion nothing more is paid"
    )


def test_margin_steps_of_a_won_episode_add_up_to_one():
    leads = [4.0, 2.5, 2.0, 0.5, -1.0]
    start = torch.tensor([[leads[0], 0.0]])
    steps = zip(leads, leads[1:], strict=False)
    total = sum(reward_of("margin", torch.tensor([[a, 0.0]]), torch.tensor([[b, 0.0]]), start=start) + QUERY for a, b in steps)
    assert total == pytest.approx(1.0, abs=1e-6)


def test_dilution_reward_by_hand():
    """What is gained for each length, as a share of the most that can be gained, less that most."""
    y = torch.tensor([0])
    before, after = logits_of(0.5), logits_of(0.4)
    rise = (dilution(after, y) - dilution(before, y)).item()
    assert 0 < rise < 0.2
    for gain, settings in (
        (rise / (0.4 / 2.0), {"distance_moved": 0.5, "was": 0.1, "radius": 2.0}),
        (min(1.0, rise / FLOOR), {"distance_moved": 0.1, "was": 0.1}),
        (rise / 0.3, {"distance_moved": 0.4, "was": 0.1, "radius": math.inf}),
    ):
        assert reward_of("dilution", before, after, **settings) == pytest.approx(QUOTIENT * (gain - 1), rel=1e-4, abs=1e-7)


def test_an_undone_step_gains_nothing(subtests):
    """The true class falls behind its probability before, but so does the class that came second: the step is undone."""
    for name in NAMES:
        with subtests.test(name=name):
            before = torch.tensor([[0.5, 0.4, 0.1]]).log()
            after = torch.tensor([[0.45, 0.2, 0.35]]).log()
            price = QUOTIENT if name == "dilution" else QUERY
            assert reward_of(name, before, after) == pytest.approx(-price)


def test_putting_off_a_success_never_pays():
    """Many small gains in dilution, of the same quotient, are worth no more than one large one."""
    p = [0.5, 0.45, 0.4, 0.35, 0.3]
    small = sum(reward_of("dilution", logits_of(a), logits_of(b), distance_moved=0.1) for a, b in zip(p, p[1:], strict=False))
    assert small <= reward_of("dilution", logits_of(p[0]), logits_of(p[-1]), distance_moved=0.1) <= 0


@given(
    st.sampled_from(NAMES),
    *[st.lists(st.floats(-60, 60), min_size=3, max_size=3) for _ in range(3)],
    st.floats(0, 2),
    st.floats(0, 2),
    st.sampled_from([0.0, 1e-3, 1.0, math.inf]),
)
def test_every_reward_is_bounded(name, start, before, after, distance_moved, was, radius):
    before, after, start = (torch.tensor([number]) for number in (before, after, start))
    assert -1 <= reward_of(name, before, after, start=start, distance_moved=distance_moved, was=was, radius=radius) <= 1
