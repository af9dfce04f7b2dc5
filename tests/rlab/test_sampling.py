"""Choices without replacement: by hand, and against all actions there are."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core.streams import Streams
from brinell.rlab.interface import Heads, Observation
from brinell.rlab.policies import Learned, Random
from brinell.rlab.sampling import best, gumbel, likelihood, top, worth

F, T = False, True


def ordered(allowed, choices):
    """All actions of one branch, as rows padded with -1."""
    free = [option for option, can in enumerate(allowed) if can]
    rows = itertools.permutations(free, min(choices, len(free)))
    return torch.tensor([[*row, *[-1] * (choices - len(row))] for row in rows], dtype=torch.int64).reshape(-1, choices)


def test_top_takes_the_highest_that_are_allowed():
    keys = torch.tensor([[1.0, 4.0, 3.0, 2.0]]).expand(4, 4)
    allowed = torch.tensor([[T, T, T, T], [T, F, T, T], [F, F, T, F], [F, F, F, F]])
    assert top(keys, allowed, 2).tolist() == [[1, 2], [2, 3], [2, -1], [-1, -1]]
    assert top(keys, allowed, 5).tolist()[0] == [1, 2, 3, 0, -1]


def test_no_more_is_picked_than_counts():
    keys = torch.tensor([[1.0, 4.0, 3.0, 2.0]]).expand(3, 4)
    allowed = torch.tensor([[T, T, T, T], [T, T, T, T], [T, F, F, F]])
    observation = Observation({}, (allowed, allowed), (torch.tensor([1, 3, 2]), torch.tensor([0, 1, 9])))
    first, second = best([keys, -keys], observation, (3, 1))
    assert first.tolist() == [[1, -1, -1], [1, 2, 3], [0, -1, -1]]
    assert second.tolist() == [[-1], [0], [0]]


def test_gumbel_is_finite_and_the_inverse_of_its_distribution():
    uniform = torch.tensor([0.0, 1e-30, 0.25, 0.5, 1 - 2**-24])
    found = gumbel(uniform)
    assert found.isfinite().all()
    assert torch.allclose((-(-found[2:4]).exp()).exp(), uniform[2:4])


def test_worth_by_hand():
    heads = Heads(torch.tensor([10.0]), (torch.tensor([[1.0, 2.0, 6.0, 99.0]]), torch.tensor([[5.0, -5.0]])))
    allowed = (torch.tensor([[T, T, T, F]]), torch.tensor([[T, T]]))
    # Means of what is allowed: 3 and 0. Picks: 6-3, 2-3 and -5-0.
    action = (torch.tensor([[2, 1]]), torch.tensor([[1]]))
    assert worth(heads, allowed, action).item() == pytest.approx(10 + (3 - 1 - 5) / 3)
    assert worth(heads, allowed, action, dueling=False).item() == pytest.approx((6 + 2 - 5) / 3)
    one = (torch.tensor([[2, -1]]), torch.tensor([[-1]]))
    assert worth(heads, allowed, one).item() == pytest.approx(13)
    none = (torch.tensor([[-1, -1]]), torch.tensor([[-1]]))
    assert worth(heads, (torch.zeros(1, 4, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.bool)), none).item() == 10
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
        for pair in zip(*itertools.product(*(ordered(m, k).tolist() for m, k in zip(masks, choices, strict=True))), strict=True)
    ]
    heads = Heads(torch.zeros(1), tuple(torch.tensor([branch]) for branch in branches))
    allowed = tuple(torch.tensor([mask]) for mask in masks)
    many = len(actions[0])
    everything = Heads(heads.value.expand(many), tuple(branch.expand(many, 3) for branch in heads.branches))
    highest = worth(everything, tuple(mask.expand(many, 3) for mask in allowed), tuple(actions)).max()
    assert torch.isclose(worth(heads, allowed, best(heads.branches, Observation({}, allowed), choices))[0], highest, atol=1e-5)


def test_plackett_luce_by_hand():
    logits = torch.tensor([[1.0, 2.0, 3.0, 100.0]]).log()
    allowed = torch.tensor([[T, T, T, F]])
    heads = Heads(torch.zeros(1), (logits,))
    log_prob, entropy = likelihood(heads, (allowed,), (torch.tensor([[2, 0]]),))
    assert log_prob.exp().item() == pytest.approx(3 / 6 * 1 / 3)
    first = -sum(p * math.log(p) for p in (1 / 6, 2 / 6, 3 / 6))
    second = -sum(p * math.log(p) for p in (1 / 3, 2 / 3))
    assert entropy.item() == pytest.approx(first + second, rel=1e-5)


@pytest.mark.parametrize("allowed", [[T, T, T, T], [T, F, T, T], [F, T, F, T], [F, F, T, F]])
@pytest.mark.parametrize("choices", [1, 2, 3])
def test_probabilities_of_all_ordered_picks_sum_to_one_and_entropies_average_to_the_whole(allowed, choices):
    logits = torch.tensor([0.5, -1.0, 2.0, 0.1], dtype=torch.float64)
    actions = ordered(allowed, choices)
    heads = Heads(torch.zeros(len(actions), dtype=torch.float64), (logits.expand(len(actions), 4),))
    log_prob, entropy = likelihood(heads, (torch.tensor([allowed]).expand(len(actions), 4),), (actions,))
    probability = log_prob.exp()
    assert probability.sum().item() == pytest.approx(1)
    assert (probability * entropy).sum().item() == pytest.approx(-(probability * log_prob).sum().item(), abs=1e-9)


def test_picks_that_were_struck_out_do_not_count():
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).log()
    heads, allowed = Heads(torch.zeros(1), (logits,)), (torch.ones(1, 4, dtype=torch.bool),)
    log_prob, _ = likelihood(heads, allowed, (torch.tensor([[3, -1, 0]]),))
    assert log_prob.exp().item() == pytest.approx(4 / 10 * 1 / 6)


def test_many_picks_are_those_one_after_another():
    generator = torch.Generator().manual_seed(0)
    logits = (20 * torch.randn(5, 40, generator=generator)).requires_grad_()
    allowed = torch.rand(5, 40, generator=generator) < 0.7
    choices = top(torch.rand(5, 40, generator=generator), allowed, 30)
    found = likelihood(Heads(torch.zeros(5), (logits,)), (allowed,), (choices,))
    left, log_prob, entropy = allowed.clone(), torch.zeros(5), torch.zeros(5)
    for choice in choices.unbind(1):
        one = likelihood(Heads(torch.zeros(5), (logits,)), (left,), (choice[:, None],))
        log_prob, entropy = log_prob + one[0], entropy + one[1]
        left = left & ~torch.nn.functional.one_hot(choice.clamp(min=0), 40).bool()
    assert torch.allclose(found[0], log_prob, rtol=1e-4) and torch.allclose(found[1], entropy, rtol=1e-3, atol=1e-4)
    weight = torch.randn(5, generator=generator)
    ours, reference = (
        torch.autograd.grad((weight * (a + b)).sum(), logits, retain_graph=True)[0] for a, b in (found, (log_prob, entropy))
    )
    assert torch.allclose(ours, reference, atol=1e-4)


def test_branches_are_independent():
    heads = Heads(torch.zeros(1), (torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, -1.0]])))
    allowed = (torch.ones(1, 2, dtype=torch.bool),) * 2
    action = (torch.tensor([[1]]), torch.tensor([[0]]))
    both = likelihood(heads, allowed, action)[0]
    alone = [likelihood(Heads(heads.value, (heads.branches[b],)), (allowed[b],), (action[b],))[0] for b in range(2)]
    assert torch.allclose(both, alone[0] + alone[1])


def test_where_nothing_is_allowed_nothing_is_certain_uncertain_or_learned():
    logits = torch.tensor([[3.0, -2.0], [1.0, 2.0]], requires_grad=True)
    log_prob, entropy = likelihood(
        Heads(torch.zeros(2), (logits,)), (torch.tensor([[F, F], [T, F]]),), (torch.tensor([[-1, -1], [0, -1]]),)
    )
    assert log_prob.tolist() == [0, 0] and entropy.tolist() == [0, 0]
    torch.autograd.backward((log_prob + entropy).sum())
    assert logits.grad.tolist() == [[0, 0], [0, 0]]


def test_samples_follow_plackett_luce():
    n, weights = 20_000, torch.tensor([1.0, 2.0, 3.0, 9.0])
    allowed = torch.tensor([[T, T, T, F]]).expand(n, 4)
    heads = Heads(torch.zeros(n), (weights.log().expand(n, 4),))
    keys = [logits + gumbel(Streams.of(5, torch.arange(n)).uniform(4)) for logits in heads.branches]
    (choices,) = best(keys, Observation({}, (allowed,)), (2,))
    for first, second in itertools.permutations(range(3), 2):
        expected = weights[first] / 6 * weights[second] / (6 - weights[first])
        found = ((choices[:, 0] == first) & (choices[:, 1] == second)).float().mean()
        assert found.item() == pytest.approx(expected.item(), abs=4 * math.sqrt(expected * (1 - expected) / n))


def turn_of(*rows):
    return Observation(
        {"values": torch.rand(len(rows), len(rows[0]), generator=torch.Generator().manual_seed(1))}, (torch.tensor(rows),)
    )


def test_random_picks_are_uniform_and_alike_in_any_company():
    n = 12_000
    observation = Observation({}, (torch.tensor([[T, T, F, T]]).expand(n, 4), torch.zeros(n, 2, dtype=torch.bool)))
    rng = Streams.of(1, torch.arange(n))
    choices, none = Random(choices=(2, 1)).act(observation, rng)
    assert (none == -1).all()
    counts = torch.zeros(4, 4)
    counts.index_put_((choices[:, 0], choices[:, 1]), torch.ones(n), accumulate=True)
    assert (counts[2] == 0).all() and (counts[:, 2] == 0).all() and (counts.diag() == 0).all()
    share = counts[counts > 0] / n
    assert len(share) == 6 and (share - 1 / 6).abs().max() < 4 * math.sqrt(1 / 6 * 5 / 6 / n)
    full = torch.ones(n, 3, dtype=torch.bool)
    left, right = Random(choices=(1, 1)).act(Observation({}, (full, full)), rng)
    assert (left == right).float().mean().item() == pytest.approx(1 / 3, abs=0.02), "branches are drawn apart"
    few = torch.arange(0, n, 777)
    again = Random(choices=(2, 1)).act(Observation({}, tuple(allowed[few] for allowed in observation.allowed)), rng.select(few))
    assert torch.equal(again[0], choices[few])


class Doubled(torch.nn.Module):
    def forward(self, features):
        return Heads(features["values"][:, 0], (2 * features["values"],))


def test_learned_picks_are_the_best_or_drawn_by_temperature():
    observation = turn_of([T, T, F, T], [F, F, F, F], [T, T, T, T])
    rng = Streams.of(0, torch.arange(3))
    best = top(observation.features["values"], observation.allowed[0], 2)
    assert torch.equal(Learned(network=Doubled(), choices=(2,)).act(observation, rng)[0], best)
    n = 8000
    many = Observation({"values": torch.tensor([[1.0, 2.0, 3.0]]).log().expand(n, 3)}, (torch.ones(n, 3, dtype=torch.bool),))
    # The network doubles the logs and the temperature quarters them: in proportion to the roots.
    drawn = Learned(network=Doubled(), choices=(1,), temperature=4.0).act(many, Streams.of(0, torch.arange(n)))[0][:, 0]
    roots = torch.tensor([1.0, 2.0, 3.0]).sqrt()
    assert torch.allclose(torch.bincount(drawn) / n, roots / roots.sum(), atol=0.02)
    with pytest.raises(ValueError, match="temperature is -1"):
        Learned(network=Doubled(), choices=(1,), temperature=-1)
