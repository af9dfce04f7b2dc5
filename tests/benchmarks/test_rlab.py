"""The studies of RLAB that are run by one command, and the algorithms that only they use, on problems whose answers are known."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from _environments import OVER, Linear, Shared, Swaps, Table, mean_returns
from brinell.core.streams import Streams
from brinell.core.user_files import import_file
from brinell.rlab.dqn import learn
from brinell.rlab.interface import Heads
from brinell.rlab.policies import Learned, top

FOLDER = Path(__file__).parents[2] / "benchmarks" / "rlab"
gradient = import_file(FOLDER / "policy_gradient.py")
Rollouts, advantages, likelihood = gradient.Rollouts, gradient.advantages, gradient.likelihood
F, T = False, True
SETTINGS = {
    "ppo": (gradient.PolicyGradientSettings(length=8, learning_rate=0.1, epochs=4), 1280),
    "a2c": (gradient.a2c(length=4, learning_rate=0.2), 1600),
}


@pytest.mark.parametrize("study", ["patch", "worth"])
def test_a_study_runs_by_its_name(study: str) -> None:
    process = subprocess.run([sys.executable, str(FOLDER), "--study", study, "--help"], capture_output=True, text=True)
    assert process.returncode == 0 and "--samples" in process.stdout, process.stderr


@pytest.mark.parametrize("name", SETTINGS)
def test_several_picks_of_two_branches_are_learned_together(name: str) -> None:
    """Add the two that are worth most and remove the one that is worth least: sorting by the feature is the optimum."""
    settings, steps = SETTINGS[name]
    trainer = gradient.PolicyGradient(settings, Shared(), Swaps(limited=True), 0)
    (progress,) = learn(trainer, steps=steps, interval=10**9)
    policy, rng = Learned(network=trainer.network, choices=trainer.environment.choices), Streams.of(0, torch.arange(16))
    returns, best = mean_returns(Swaps(seed=9, limited=True), lambda observation: policy.act(observation, rng), 10)
    assert returns == pytest.approx(best) and progress.mean_return > 0.5 * best


def test_the_surrogate_by_hand() -> None:
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1])
    gain = torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0])
    change = ratio.log().requires_grad_()
    surrogate_loss = gradient.surrogate(change, gain, 0.2)
    assert surrogate_loss.tolist() == pytest.approx([2.4, -3.0, 1.0, -1.6, 2.2])
    torch.autograd.backward(surrogate_loss.sum())
    # Moved too far already the way the gain asks for: no more pull. Too far the other way: all of it.
    assert change.grad.tolist() == pytest.approx([0, -3.0, 1.0, 0, 2.2])


def ordered(allowed, choices):
    """All actions of one branch, as rows padded with -1."""
    free = [option for option, can in enumerate(allowed) if can]
    rows = itertools.permutations(free, min(choices, len(free)))
    return torch.tensor([[*row, *[-1] * (choices - len(row))] for row in rows], dtype=torch.int64).reshape(-1, choices)


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
    log_likelihood = likelihood(Heads(torch.zeros(5), (logits,)), (allowed,), (choices,))
    allowed_options, log_prob, entropy = allowed.clone(), torch.zeros(5), torch.zeros(5)
    for choice in choices.unbind(1):
        choice_likelihood = likelihood(Heads(torch.zeros(5), (logits,)), (allowed_options,), (choice[:, None],))
        log_prob, entropy = log_prob + choice_likelihood[0], entropy + choice_likelihood[1]
        allowed_options = allowed_options & ~torch.nn.functional.one_hot(choice.clamp(min=0), 40).bool()
    assert torch.allclose(log_likelihood[0], log_prob, rtol=1e-4) and torch.allclose(
        log_likelihood[1], entropy, rtol=1e-3, atol=1e-4
    )
    weight = torch.randn(5, generator=generator)
    computed, reference = (
        torch.autograd.grad((weight * (a + b)).sum(), logits, retain_graph=True)[0]
        for a, b in (log_likelihood, (log_prob, entropy))
    )
    assert torch.allclose(computed, reference, atol=1e-4)


def test_branches_are_independent():
    heads = Heads(torch.zeros(1), (torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, -1.0]])))
    allowed = (torch.ones(1, 2, dtype=torch.bool),) * 2
    action = (torch.tensor([[1]]), torch.tensor([[0]]))
    joint = likelihood(heads, allowed, action)[0]
    separate = [likelihood(Heads(heads.value, (heads.branches[b],)), (allowed[b],), (action[b],))[0] for b in range(2)]
    assert torch.allclose(joint, separate[0] + separate[1])


def test_where_nothing_is_allowed_nothing_is_certain_uncertain_or_learned():
    logits = torch.tensor([[3.0, -2.0], [1.0, 2.0]], requires_grad=True)
    log_prob, entropy = likelihood(
        Heads(torch.zeros(2), (logits,)), (torch.tensor([[F, F], [T, F]]),), (torch.tensor([[-1, -1], [0, -1]]),)
    )
    assert log_prob.tolist() == [0, 0] and entropy.tolist() == [0, 0]
    torch.autograd.backward((log_prob + entropy).sum())
    assert logits.grad.tolist() == [[0, 0], [0, 0]]


def column(*values):
    return torch.tensor([[float(value)] for value in values])


def test_advantages_by_hand():
    reward, value, after = column(1, 2, 3), column(10, 20, 30), column(20, 30, 40)
    never = torch.zeros(3, 1, dtype=torch.bool)
    # One-step errors with gamma 0.5: 1+10-10, 2+15-20, 3+20-30.
    assert advantages(reward, value, after, never, 0.5, 0.0)[:, 0].tolist() == [1, -3, -7]
    # Summed with 0.5 * 0.5.
    assert advantages(reward, value, after, never, 0.5, 0.5)[:, 0].tolist() == [1 + 0.25 * (-3 + 0.25 * -7), -3 + 0.25 * -7, -7]
    # With lambda 1 the discounted rewards and the last value, less the value.
    assert advantages(reward, value, after, never, 0.5, 1.0)[0, 0].item() == pytest.approx(1 + 1 + 0.75 + 0.125 * 40 - 10)


def test_nothing_flows_across_the_end_of_an_episode():
    reward, value = column(1, 2, 3), column(10, 20, 30)
    after, finished = column(20, 0, 40), torch.tensor([[False], [True], [False]])
    assert advantages(reward, value, after, finished, 0.5, 1.0)[:, 0].tolist() == [
        1 + 10 - 10 + 0.5 * (2 - 20),
        2 - 20,
        3 + 20 - 30,
    ]


def chain(**options):
    """0 to 1 to 2 to 3 and over, whatever is picked; rewards 1, 2, 4, 8; state s is worth 10 (s + 1)."""
    following = torch.tensor([[1, 1], [2, 2], [3, 3], [OVER, OVER]])
    environment = Table(following, torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0], [8.0, 8.0]]), slots=1, **options)
    network = Linear("state", 4, (2,))
    with torch.no_grad():
        network.value.weight[0] = torch.tensor([10.0, 20.0, 30.0, 40.0])
    return environment, network


def test_a_terminated_episode_has_no_future():
    environment, network = chain()
    rollout = Rollouts(environment, network, 6, 0).collect(0.5, 1.0)
    # Four steps, over, and two more that go on at state 2.
    expected = [1 + 1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8, 1 + 1 + 0.25 * 30, 2 + 0.5 * 30]
    assert rollout.returns.tolist() == pytest.approx(expected)
    assert rollout.advantage.tolist() == pytest.approx([r - v for r, v in zip(expected, [10, 20, 30, 40, 10, 20], strict=True)])


def test_a_truncated_episode_is_worth_its_last_state():
    environment, network = chain(limit=2)
    player = Rollouts(environment, network, 4, 0)
    rollout = player.collect(0.5, 1.0)
    assert rollout.returns.tolist() == pytest.approx([1 + 1 + 0.25 * 30, 2 + 0.5 * 30] * 2)
    assert rollout.observation.features["state"].argmax(1).tolist() == [0, 1, 0, 1]
    progress = player.tally.progress()
    assert (progress.steps, progress.episodes, progress.mean_return, progress.mean_length) == (4, 2, 3, 2)


def test_a_stretch_goes_on_where_the_last_one_stopped():
    environment, network = chain()
    player = Rollouts(environment, network, 3, 0)
    player.collect(0.5, 1.0)
    assert player.collect(0.5, 1.0).observation.features["state"].argmax(1).tolist() == [3, 0, 1]


def test_idle_slots_are_left_out():
    environment = Swaps(slots=4, work=6)
    player = Rollouts(environment, Linear("values", 6, (6, 6)), 3, 0)
    rollout = player.collect(1.0, 1.0)
    assert len(rollout.advantage) == len(rollout.observation.allowed[0]) == 6
    assert rollout.observation.features["values"].unique(dim=0).shape[0] == 6
    assert player.tally.steps == player.tally.episodes == 6
    assert not environment.alive.any()
