"""Choices without replacement: by hand, and against all actions there are."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _environments import Random
from brinell.core.streams import Streams
from brinell.rlab.episodes import Observation
from brinell.rlab.policy import Heads, Learned, best, gumbel, top, worth

F, T = False, True


def ordered(allowed, choices):
    """All actions of one branch, as rows padded with -1."""
    free = [option for option, can in enumerate(allowed) if can]
    rows = itertools.permutations(free, min(choices, len(free)))
    return torch.tensor(
        [[*row, *[-1] * (choices - len(row))] for row in rows], dtype=torch.int64
    ).reshape(-1, choices)


def test_top_takes_the_highest_that_are_allowed():
    keys = torch.tensor([[1.0, 4.0, 3.0, 2.0]]).expand(4, 4)
    allowed = torch.tensor([[T, T, T, T], [T, F, T, T], [F, F, T, F], [F, F, F, F]])
    assert top(keys, allowed, 2).tolist() == [[1, 2], [2, 3], [2, -1], [-1, -1]]
    assert top(keys, allowed, 5).tolist()[0] == [1, 2, 3, 0, -1]


def test_no_more_is_picked_than_counts():
    keys = torch.tensor([[1.0, 4.0, 3.0, 2.0]]).expand(3, 4)
    allowed = torch.tensor([[T, T, T, T], [T, T, T, T], [T, F, F, F]])
    observation = Observation(
        {}, (allowed, allowed), (torch.tensor([1, 3, 2]), torch.tensor([0, 1, 9]))
    )
    first, second = best([keys, -keys], observation, (3, 1))
    assert first.tolist() == [[1, -1, -1], [1, 2, 3], [0, -1, -1]]
    assert second.tolist() == [[-1], [0], [0]]


def test_gumbel_is_finite_and_the_inverse_of_its_distribution():
    uniform = torch.tensor([0.0, 1e-30, 0.25, 0.5, 1 - 2**-24])
    counts = gumbel(uniform)
    assert counts.isfinite().all()
    assert torch.allclose((-(-counts[2:4]).exp()).exp(), uniform[2:4])


def test_worth_by_hand():
    heads = Heads(
        torch.tensor([10.0]), (torch.tensor([[1.0, 2.0, 6.0, 99.0]]), torch.tensor([[5.0, -5.0]]))
    )
    allowed = (torch.tensor([[T, T, T, F]]), torch.tensor([[T, T]]))
    # Means of what is allowed: 3 and 0. Picks: 6-3, 2-3 and -5-0.
    action = (torch.tensor([[2, 1]]), torch.tensor([[1]]))
    assert worth(heads, allowed, action).item() == pytest.approx(10 + (3 - 1 - 5) / 3)
    single_action = (torch.tensor([[2, -1]]), torch.tensor([[-1]]))
    assert worth(heads, allowed, single_action).item() == pytest.approx(13)
    none = (torch.tensor([[-1, -1]]), torch.tensor([[-1]]))
    assert (
        worth(
            heads, (torch.zeros(1, 4, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.bool)), none
        ).item()
        == 10
    )
    single = (torch.tensor([[0, -1]]), torch.tensor([[-1]]))
    assert worth(heads, allowed, single).item() == pytest.approx(10 + 1 - 3), (
        "one choice: value plus advantage, as in Wang et al."
    )


@given(st.data())
def test_greedy_is_worth_most_of_all_actions(data):
    numbers = st.floats(-5, 5, width=32)
    branches = [data.draw(st.lists(numbers, min_size=3, max_size=3)) for _ in range(2)]
    masks = [data.draw(st.lists(st.booleans(), min_size=3, max_size=3)) for _ in range(2)]
    choices = (2, 1)
    actions = [
        torch.tensor(pair)
        for pair in zip(
            *itertools.product(
                *(ordered(m, k).tolist() for m, k in zip(masks, choices, strict=True))
            ),
            strict=True,
        )
    ]
    heads = Heads(torch.zeros(1), tuple(torch.tensor([branch]) for branch in branches))
    allowed = tuple(torch.tensor([mask]) for mask in masks)
    count = len(actions[0])
    wide_heads = Heads(
        heads.value.expand(count), tuple(branch.expand(count, 3) for branch in heads.branches)
    )
    highest = worth(
        wide_heads, tuple(mask.expand(count, 3) for mask in allowed), tuple(actions)
    ).max()
    assert torch.isclose(
        worth(heads, allowed, best(heads.branches, Observation({}, allowed), choices))[0],
        highest,
        atol=1e-5,
    )


def test_samples_follow_plackett_luce():
    n, weights = 20_000, torch.tensor([1.0, 2.0, 3.0, 9.0])
    allowed = torch.tensor([[T, T, T, F]]).expand(n, 4)
    heads = Heads(torch.zeros(n), (weights.log().expand(n, 4),))
    keys = [logits + gumbel(Streams.of(5, torch.arange(n)).uniform(4)) for logits in heads.branches]
    (choices,) = best(keys, Observation({}, (allowed,)), (2,))
    for first, second in itertools.permutations(range(3), 2):
        expected = weights[first] / 6 * weights[second] / (6 - weights[first])
        counts = ((choices[:, 0] == first) & (choices[:, 1] == second)).float().mean()
        assert counts.item() == pytest.approx(
            expected.item(), abs=4 * math.sqrt(expected * (1 - expected) / n)
        )


def turn_of(*rows):
    return Observation(
        {"values": torch.rand(len(rows), len(rows[0]), generator=torch.Generator().manual_seed(1))},
        (torch.tensor(rows),),
    )


def test_random_picks_are_uniform_and_alike_in_any_company():
    n = 12_000
    observation = Observation(
        {}, (torch.tensor([[T, T, F, T]]).expand(n, 4), torch.zeros(n, 2, dtype=torch.bool))
    )
    rng = Streams.of(1, torch.arange(n))
    choices, none = Random(choices=(2, 1)).act(observation, rng)
    assert (none == -1).all()
    counts = torch.zeros(4, 4)
    counts.index_put_((choices[:, 0], choices[:, 1]), torch.ones(n), accumulate=True)
    assert (counts[2] == 0).all() and (counts[:, 2] == 0).all() and (counts.diag() == 0).all()
    share = counts[counts > 0] / n
    assert len(share) == 6 and (share - 1 / 6).abs().max() < 4 * math.sqrt(1 / 6 * 5 / 6 / n)
    full = torch.ones(n, 3, dtype=torch.bool)
    first_branch, right = Random(choices=(1, 1)).act(Observation({}, (full, full)), rng)
    assert (first_branch == right).float().mean().item() == pytest.approx(1 / 3, abs=0.02), (
        "branches are drawn apart"
    )
    subset = torch.arange(0, n, 777)
    repeated = Random(choices=(2, 1)).act(
        Observation({}, tuple(allowed[subset] for allowed in observation.allowed)),
        rng.select(subset),
    )
    assert torch.equal(repeated[0], choices[subset])


class Doubled(torch.nn.Module):
    def forward(self, features):
        return Heads(features["values"][:, 0], (2 * features["values"],))


def test_learned_picks_are_the_best_or_drawn_by_temperature():
    observation = turn_of([T, T, F, T], [F, F, F, F], [T, T, T, T])
    rng = Streams.of(0, torch.arange(3))
    best = top(observation.features["values"], observation.allowed[0], 2)
    assert torch.equal(Learned(network=Doubled(), choices=(2,)).act(observation, rng)[0], best)
    n = 8000
    observations = Observation(
        {"values": torch.tensor([[1.0, 2.0, 3.0]]).log().expand(n, 3)},
        (torch.ones(n, 3, dtype=torch.bool),),
    )
    # The network doubles the logs and the temperature quarters them: in proportion to the roots.
    draws = Learned(network=Doubled(), choices=(1,), temperature=4.0).act(
        observations, Streams.of(0, torch.arange(n))
    )[0][:, 0]
    roots = torch.tensor([1.0, 2.0, 3.0]).sqrt()
    assert torch.allclose(torch.bincount(draws) / n, roots / roots.sum(), atol=0.02)
