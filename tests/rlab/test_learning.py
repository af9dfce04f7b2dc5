"""Each algorithm on problems whose answers are known."""

import pytest
import torch

from _environments import OVER, Linear, Random, Shared, Swaps, Table, mean_returns
from _refusals import refused
from brinell.core.errors import ContractError
from brinell.core.streams import Streams
from brinell.rlab.dqn import DQN, DQNSettings, Transition, target_of
from brinell.rlab.episodes import Observation
from brinell.rlab.policy import Heads, Learned

QUICK = DQNSettings(
    gamma=0.5,
    learning_rate=0.05,
    batch_size=32,
    updates=1,
    warm_up=100,
    target_every=20,
    epsilon_start=1.0,
    epsilon_end=1.0,
)
USUAL = {"updates": 1, "epsilon_start": 1.0}
SWAPS = DQNSettings(
    learning_rate=0.02,
    batch_size=64,
    warm_up=200,
    target_every=10,
    epsilon_steps=1000,
    gamma=0.99,
    **USUAL,
)
TABLES = DQNSettings(
    gamma=0.5,
    learning_rate=0.05,
    batch_size=32,
    warm_up=50,
    target_every=20,
    epsilon_steps=600,
    **USUAL,
)


def train(trainer, steps):
    progress = list(trainer.learn(steps=steps, interval=10**9))
    assert len(progress) == 1
    return progress[0]


def policy_of(trainer):
    """How it would act now, without exploring."""
    return Learned(network=trainer.network, choices=trainer.environment.choices)


def two_states(**options):
    """Staying in 0 pays nothing, going to 1 costs half; from 1 back to 0 pays 2, and leaving pays
    1.

    With gamma 1/2: V(0) = -1/2 + V(1) / 2 and V(1) = 2 + V(0) / 2, so V(0) = 2/3 and V(1) = 7/3.
    """
    return Table(
        torch.tensor([[0, 1], [0, OVER]]),
        torch.tensor([[0.0, -0.5], [2.0, 1.0]]),
        limit=7,
        **options,
    )


def q_of(network, states):
    heads = network({"state": torch.eye(states)})
    outputs = heads.branches[0].detach()
    return heads.value.detach()[:, None] + outputs - outputs.mean(1, keepdim=True)


def test_dqn_finds_the_exact_q():
    # Episodes are cut off after 7 steps: without bootstrapping there, Q would come out lower.
    network = Linear("state", 2, (2,))
    trainer = DQN(QUICK, network, two_states(), 0)
    train(trainer, 2400)
    exact = torch.tensor([[1 / 3, 2 / 3], [7 / 3, 1.0]])
    assert torch.allclose(q_of(network, 2), exact, atol=0.01)


def test_a_state_that_allows_nothing_is_worth_what_follows():
    # State 1 allows nothing; acting there ends the episode and pays 1.
    table = Table(
        torch.tensor([[1, OVER], [OVER, OVER]]), torch.tensor([[0.0, 0.3], [1.0, 1.0]]),
        forbidden=torch.tensor([[False, False], [True, True]]),
    )  # fmt: skip
    network = Linear("state", 2, (2,))
    trainer = DQN(QUICK, network, table, 0)
    train(trainer, 1600)
    heads = network({"state": torch.eye(2)})
    assert heads.value[1].item() == pytest.approx(1, abs=0.01)
    assert q_of(network, 2)[0].tolist() == pytest.approx([0.5, 0.3], abs=0.01)


def test_the_best_allowed_option_is_found_and_forbidden_ones_are_never_taken():
    # Nothing pays more than what is forbidden; the environment itself objects to a forbidden
    # choice.
    table = Table(
        torch.full((1, 4), OVER),
        torch.tensor([[0.1, 0.7, 5.0, 0.5]]),
        forbidden=torch.tensor([[False, False, True, False]]),
    )
    trainer = DQN(TABLES, Linear("state", 1, (4,)), table, 0)
    train(trainer, 1200)
    observation = table.reset(torch.ones(4, dtype=torch.bool))
    assert (
        policy_of(trainer).act(observation, Streams.of(0, torch.arange(4)))[0].tolist() == [[1]] * 4
    )


def test_a_cost_now_is_paid_for_more_later():
    trainer = DQN(TABLES, Linear("state", 2, (2,)), two_states(slots=8), 0)
    train(trainer, 2000)
    observation = Observation({"state": torch.eye(2)}, (torch.ones(2, 2, dtype=torch.bool),))
    assert policy_of(trainer).act(observation, Streams.of(0, torch.arange(2)))[0].tolist() == [
        [1],
        [0],
    ]


def test_several_picks_of_two_branches_are_learned_together():
    """Add the two that are worth most and remove the one that is worth least: sorting by the
    feature is the optimum.
    """
    trainer = DQN(SWAPS, Shared(), Swaps(limited=True), 0)
    progress = train(trainer, 1600)
    unseen, rng = Swaps(seed=9, limited=True), Streams.of(0, torch.arange(16))
    achieved, best = mean_returns(
        unseen, lambda observation: policy_of(trainer).act(observation, rng), 10
    )
    assert achieved == pytest.approx(best)
    chance, _ = mean_returns(
        Swaps(seed=9, limited=True),
        lambda observation: Random(choices=(2, 1)).act(observation, rng),
        10,
    )
    assert chance < 0.5 * best and progress["mean_return"] > 0.5 * best


def test_double_takes_the_network_s_choice_and_the_copy_s_value():
    class Fixed(torch.nn.Module):
        def __init__(self, *outputs):
            super().__init__()
            self.outputs = torch.tensor([outputs])

        def forward(self, features):
            return Heads(torch.zeros(1), (self.outputs,))

    state = Observation({}, (torch.tensor([[True, True, True, False]]),))
    sample = Transition(
        state, (torch.tensor([[0]]),), torch.tensor([3.0]), torch.tensor([0.5]), state
    )
    network, copy = Fixed(9.0, 0.0, 5.0, 99.0), Fixed(1.0, 7.0, 4.0, 88.0)
    # With advantages: from their mean over the three that are allowed.
    assert target_of(sample, network, copy, (1,)).item() == pytest.approx(3 + 0.5 * (1 - 4))
    assert target_of(sample, network, copy, (2,)).item() == pytest.approx(
        3 + 0.5 * (0 + 0) / 2 + 0.5 * (1 + 4 - 8) / 2
    )


def test_epsilon_falls_from_the_warm_up_to_its_end():
    settings = DQNSettings(epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=1000, warm_up=250)
    assert [settings.epsilon(steps) for steps in (0, 249, 250, 500, 1000, 5000)] == pytest.approx(
        [0.9, 0.9, 0.7, 0.5, 0.1, 0.1]
    )


def test_training_ends_with_its_budget_or_with_the_work():
    trainer = DQN(SWAPS, Shared(), Swaps(work=100), 0)
    assert list(trainer.learn(seconds=0.0)) == []
    reports = list(trainer.learn(interval=30))
    assert [report["episodes"] for report in reports] == sorted(
        {report["episodes"] for report in reports}
    )
    assert reports[-1]["steps"] == reports[-1]["episodes"] == 100
    assert list(trainer.learn()) == []


def test_a_reward_that_is_not_finite_stops_training():
    class Broken(Swaps):
        def step(self, action):
            return super().step(action)._replace(reward=torch.full((16,), torch.nan))

    with pytest.raises(ContractError, check=refused("rlab.dqn.DQN._update")):
        train(DQN(SWAPS, Shared(), Broken(), 0), 1000)


def test_settings_out_of_range(subtests):
    for make, bad, setting in [
        (DQNSettings, {"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        (DQNSettings, {"learning_rate": 0.0}, "learning_rate is 0"),
    ]:
        with subtests.test(make=make, bad=bad, setting=setting):
            with pytest.raises(ValueError, match=setting):
                make(**bad)
