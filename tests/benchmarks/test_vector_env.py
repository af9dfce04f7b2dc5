"""Gymnasium's environments through our interface."""

from pathlib import Path

import numpy as np
import pytest
import torch

from brinell.core.errors import RequestError
from brinell.core.streams import Streams
from brinell.core.user_files import import_file
from brinell.rlab.policies import Random

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium is an extra: pip install 'brinell[gym]'")
AutoresetMode = gymnasium.vector.AutoresetMode
GymEnvironment = import_file(Path(__file__).parents[2] / "benchmarks" / "rlab" / "vector_env.py").GymEnvironment


def cart_poles(slots, **options):
    settings = {"autoreset_mode": AutoresetMode.DISABLED, "copy": False}
    return gymnasium.make_vec("CartPole-v1", slots, "sync", vector_kwargs=settings, **options)


def test_slots_are_single_environments_and_last_states_are_seen():
    """Each slot equals a separate environment with the same actions: states, rewards, ends, and the states after them."""
    environment = GymEnvironment(cart_poles(3, max_episode_steps=12), seed=5)
    single = [gymnasium.make("CartPole-v1", max_episode_steps=12) for _ in range(3)]
    states = np.stack([env.reset(seed=5 + slot)[0] for slot, env in enumerate(single)])
    observed = environment.reset(torch.ones(3, dtype=torch.bool))
    policy, rng, ends = Random(choices=environment.choices), Streams.of(0, torch.arange(3)), set()
    for step in range(80):
        assert np.array_equal(observed.features["observation"].numpy(), states)
        action = policy.act(observed, rng.fold(step))
        after = environment.step(action)
        transitions = [env.step(choice) for env, choice in zip(single, action[0][:, 0].tolist(), strict=True)]
        assert np.array_equal(
            after.observation.features["observation"].numpy(), np.stack([transition[0] for transition in transitions])
        )
        assert [*after.reward.tolist(), *after.terminated.tolist(), *after.truncated.tolist()] == [
            transition[part] for part in (1, 2, 3) for transition in transitions
        ]
        finished = after.terminated | after.truncated
        assert torch.equal(environment.alive, ~finished)
        ends |= {("terminated", "truncated")[int(transition[3])] for transition in transitions if transition[2] or transition[3]}
        states = np.stack(
            [
                env.reset()[0] if over else transition[0]
                for env, transition, over in zip(single, transitions, finished.tolist(), strict=True)
            ]
        )
        observed = environment.reset(finished) if finished.any() else after.observation
        assert environment.alive.all()
    assert ends == {"terminated", "truncated"}


def test_one_slot_does_not_replay_its_first_episode():
    environment = GymEnvironment(cart_poles(1), seed=0)
    starts = {tuple(environment.reset(torch.tensor([True])).features["observation"][0].tolist()) for _ in range(5)}
    assert len(starts) == 5


def test_environments_that_do_not_fit_are_refused():
    with pytest.raises(RequestError, match=r"make it with autoreset_mode=AutoresetMode.DISABLED"):
        GymEnvironment(gymnasium.make_vec("CartPole-v1", 2, "sync"), seed=0)
    continuous = gymnasium.make_vec("Pendulum-v1", 1, "sync", vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED})
    with pytest.raises(RequestError, match="needs Box observations, Discrete actions"):
        GymEnvironment(continuous, seed=0)
