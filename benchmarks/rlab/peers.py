"""Our DQN, PPO and A2C beside those of Stable-Baselines3: the same tasks, networks, settings and budgets, several seeds.

Returns are those of the last 100 episodes of training, and of the greedy policy at the end over as many new ones; times are the
processor's for training alone. For each seed ours and theirs are trained in turns, a round of each, so that a machine that is
busy for a while is so for all of them.
"""

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gymnasium
import measure
import numpy as np
import stable_baselines3
import torch
from gymnasium.vector import AutoresetMode
from scipy import stats
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from torch import Tensor, nn

from brinell.rlab.dqn import DQN, DQNSettings, Trainer
from brinell.rlab.interface import Heads
from rlab.policy_gradient import PolicyGradient, PolicyGradientSettings, a2c
from rlab.vector_env import GymEnvironment

EPISODES = 100
"""Played by each policy at the end."""
Act = Callable[[np.ndarray], np.ndarray]


# --- networks as Stable-Baselines3 makes them ------------------------------------------------------------------------


def tower(sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    """Linear maps with an activation after each."""
    layers = [module for a, b in zip(sizes, sizes[1:], strict=False) for module in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers)


class ActorCritic(nn.Module):
    """Two towers of 64 and 64 with tanh, orthogonal weights: that library's default for PPO and A2C."""

    def __init__(self, inputs: int, options: int, generator: torch.Generator) -> None:
        super().__init__()
        self.actor, self.critic = (tower([inputs, 64, 64], nn.Tanh) for _ in range(2))
        self.logits, self.value = nn.Linear(64, options), nn.Linear(64, 1)
        for module, gain in ((self.actor, 2**0.5), (self.critic, 2**0.5), (self.logits, 0.01), (self.value, 1.0)):
            for layer in module.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.orthogonal_(layer.weight, gain, generator=generator)
                    nn.init.zeros_(layer.bias)

    def forward(self, features: dict[str, Tensor]) -> Heads:
        """Observations to value and outputs."""
        x = features["observation"]
        return Heads(self.value(self.critic(x))[:, 0], (self.logits(self.actor(x)),))


class Dueling(nn.Module):
    """One tower of 256 and 256 with ReLU; a value and advantages, or Q alone."""

    def __init__(self, inputs: int, options: int, generator: torch.Generator, dueling: bool) -> None:
        super().__init__()
        self.trunk, self.outputs = tower([inputs, 256, 256], nn.ReLU), nn.Linear(256, options)
        self.value = nn.Linear(256, 1) if dueling else None
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                bound = layer.in_features**-0.5
                for parameter in layer.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, features: dict[str, Tensor]) -> Heads:
        """Observations to value and outputs."""
        x = self.trunk(features["observation"])
        return Heads(self.value(x)[:, 0] if self.value else x.new_zeros(len(x)), (self.outputs(x),))


# --- the tasks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """One algorithm on one task, in our words and in theirs."""

    task: str
    algorithm: str
    steps: int
    slots: int
    settings: Any
    peer_settings: dict[str, Any]


def dqn(task: str, steps: int, learning_rate: float, **options: Any) -> Case:
    """DQN with one slot."""
    rounds, capacity, target = options["rounds"], options["capacity"], options["target"]
    settings = DQNSettings(
        n_step=1, learning_rate=learning_rate, batch_size=options["batch"], collect=rounds[0], updates=rounds[1],
        warm_up=options["warm_up"], target_every=target[0], epsilon_end=options["epsilon"], epsilon_steps=options["explore"],
        capacity=capacity, half=False,
    )  # fmt: skip
    peer_settings = {
        "learning_rate": learning_rate, "batch_size": options["batch"], "train_freq": rounds[0], "gradient_steps": rounds[1],
        "learning_starts": options["warm_up"], "target_update_interval": target[1], "buffer_size": capacity,
        "exploration_final_eps": options["epsilon"], "exploration_fraction": options["explore"] / steps,
        "policy_kwargs": {"net_arch": [256, 256]},
    }  # fmt: skip
    return Case(task=task, algorithm="DQN", steps=steps, slots=1, settings=settings, peer_settings=peer_settings)


def ppo(task: str, steps: int, slots: int, **options: Any) -> Case:
    """PPO."""
    settings = PolicyGradientSettings(**options)
    peer_settings = {
        "n_steps": settings.length, "batch_size": settings.batch_size, "n_epochs": settings.epochs, "gamma": settings.gamma,
        "gae_lambda": settings.gae_lambda, "learning_rate": settings.learning_rate, "clip_range": settings.ratio_clip,
        "ent_coef": settings.entropy, "vf_coef": settings.value, "max_grad_norm": settings.clip,
    }  # fmt: skip
    return Case(task=task, algorithm="PPO", steps=steps, slots=slots, settings=settings, peer_settings=peer_settings)


def a2c_case(task: str, steps: int, slots: int, **options: Any) -> Case:
    """A2C."""
    settings = a2c(**options)
    peer_settings = {
        "n_steps": settings.length, "gamma": settings.gamma, "gae_lambda": settings.gae_lambda,
        "learning_rate": settings.learning_rate, "ent_coef": settings.entropy, "vf_coef": settings.value,
        "max_grad_norm": settings.clip,
    }  # fmt: skip
    return Case(task=task, algorithm="A2C", steps=steps, slots=slots, settings=settings, peer_settings=peer_settings)


CASES = [
    dqn("CartPole-v1", 50_000, 2.3e-3, rounds=(256, 128), batch=64, warm_up=1000, target=(128, 256), epsilon=0.04, explore=8_000,
        capacity=100_000),
    dqn("Acrobot-v1", 25_000, 6.3e-4, rounds=(4, 4), batch=128, warm_up=0, target=(250, 250), epsilon=0.1, explore=12_000,
        capacity=50_000),
    ppo("CartPole-v1", 100_000, 8, length=32, batch_size=256, epochs=20, gamma=0.98, gae_lambda=0.8, learning_rate=1e-3),
    ppo("Acrobot-v1", 200_000, 16, length=256, batch_size=256, epochs=4, gamma=0.99, gae_lambda=0.94),
    a2c_case("CartPole-v1", 200_000, 8),
    a2c_case("Acrobot-v1", 200_000, 16),
]  # fmt: skip


# --- training and playing --------------------------------------------------------------------------------------------


class Trained:
    """A trained agent: its policy after training. Each round of training calls `beat`."""

    def __init__(self) -> None:
        self.beat = nn.Identity()
        self.act: Act = lambda observation: np.zeros(len(observation), dtype=np.int64)
        self.mean_return = math.nan

    def end_round(self) -> None:
        """Ends a round."""
        self.beat(torch.empty(0))


def train_own(case: Case, seed: int, trained: Trained, **changes: bool) -> None:
    """Train ours."""
    settings = {"autoreset_mode": AutoresetMode.DISABLED, "copy": False}
    env = gymnasium.make_vec(case.task, case.slots, "sync", vector_kwargs=settings)
    environment = GymEnvironment(env, seed)
    inputs, options = env.single_observation_space.shape[0], int(env.single_action_space.n)
    generator = torch.Generator().manual_seed(seed)
    trainer: Trainer
    if isinstance(case.settings, DQNSettings):
        changed = replace(case.settings, **changes)
        trainer = DQN(changed, Dueling(inputs, options, generator, changed.dueling), environment, seed)
    else:
        trainer = PolicyGradient(case.settings, ActorCritic(inputs, options, generator), environment, seed)
    while trainer.tally.steps < case.steps:
        trained.end_round()
        trainer.advance()

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        heads = trainer.network({"observation": torch.from_numpy(observation)})
        return heads.branches[0].argmax(1).numpy()

    trained.act, trained.mean_return = act, trainer.tally.progress().mean_return or math.nan


class Rests(BaseCallback):
    """Rounds of Stable-Baselines3."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        self._trained = trained

    def _on_rollout_start(self) -> None:
        self._trained.end_round()

    def _on_step(self) -> bool:
        return True


def train_peer(case: Case, seed: int, trained: Trained) -> None:
    """Train theirs."""
    env = make_vec_env(case.task, case.slots, seed=seed)
    model = getattr(stable_baselines3, case.algorithm)("MlpPolicy", env, seed=seed, device="cpu", **case.peer_settings)
    model.learn(case.steps, callback=Rests(trained))
    trained.act = lambda observation: model.predict(observation, deterministic=True)[0]
    trained.mean_return = statistics.fmean(episode["r"] for episode in model.ep_info_buffer)


def played(task: str, act: Act) -> float:
    """Mean return over new episodes, the same ones for every policy."""
    env = gymnasium.make_vec(task, EPISODES, "sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    observation, _ = env.reset(seed=1_000_000)
    total, running = np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
    while running.any():
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        total += reward * running
        running &= ~(terminated | truncated)
    return float(total.mean())


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass
class TrainerScores:
    """Scores of one trainer, by seed."""

    training: list[float] = field(default_factory=list)
    greedy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def race(case: Case, seed: int, kinds: dict[str, dict[str, bool]], scores: dict[str, TrainerScores]) -> None:
    """Train all kinds of ours, and theirs, in turns; play what comes out."""
    trained = {name: Trained() for name in scores}
    runs = {name: partial(train_own, case, seed, trained[name], **changes) for name, changes in kinds.items()}
    runs["theirs"] = partial(train_peer, case, seed, trained["theirs"])
    timings = measure.in_turns(
        {name: measure.Work(trained[name].beat, run) for name, run in runs.items()}, torch.get_num_threads()
    )
    for name, trainer_scores in scores.items():
        trainer_scores.training.append(trained[name].mean_return)
        trainer_scores.greedy.append(played(case.task, trained[name].act))
        trainer_scores.seconds.append(timings[name].cpu)
    notes = (
        f"{name} {trainer_scores.training[-1]:.1f} {trainer_scores.greedy[-1]:.1f} {trainer_scores.seconds[-1]:.1f}s"
        for name, trainer_scores in scores.items()
    )
    print(case.task, f"seed {seed}:", *notes, file=sys.stderr, sep="  ")


def interval(values: list[float]) -> str:
    """Mean with its 95 % t interval, which is none for values all alike."""
    mean = statistics.fmean(values)
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.1f} ({mean - half:.1f} to {mean + half:.1f})"


def difference(a: list[float], b: list[float]) -> str:
    """Difference of means with its 95 % Welch interval."""
    gap, parts = statistics.fmean(a) - statistics.fmean(b), [statistics.variance(of) / len(of) for of in (a, b)]
    if not sum(parts):
        return f"{gap:+.1f}"
    freedom = sum(parts) ** 2 / sum(part**2 / (len(of) - 1) for part, of in zip(parts, (a, b), strict=True))
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(parts))
    return f"{gap:+.1f} ({gap - half:+.1f} to {gap + half:+.1f})"


def main() -> int:
    """All cases."""
    options = measure.arguments(__doc__, seeds=3, only=["DQN", "PPO", "A2C"], tasks=["CartPole-v1", "Acrobot-v1"])
    columns = ["training, ours", "theirs", "difference", "greedy, ours", "theirs", "difference"]
    table = measure.Table(
        f"Agents against Stable-Baselines3 {stable_baselines3.__version__}",
        measure.command(options, "seeds", "only", "tasks"),
        ["task", "algorithm", "steps", *columns, "seconds, theirs", "ours / theirs"],
    )
    for case in CASES:
        if case.algorithm not in options.only or case.task not in options.tasks:
            continue
        kinds: dict[str, dict[str, bool]] = {case.algorithm: {}}
        if case.algorithm == "DQN":
            kinds = {"dueling double DQN": {}, "plain DQN": {"double": False, "dueling": False}}
        scores = {name: TrainerScores() for name in (*kinds, "theirs")}
        for seed in range(int(options.seeds)):
            race(case, seed, kinds, scores)
        peer = scores.pop("theirs")
        for kind, trainer_scores in scores.items():
            ratios = [a / b for a, b in zip(trainer_scores.seconds, peer.seconds, strict=True)]
            cells = []
            for us, them in ((trainer_scores.training, peer.training), (trainer_scores.greedy, peer.greedy)):
                cells += [interval(us), interval(them), difference(us, them)]
            times = (measure.spread(peer.seconds, 1), measure.spread(ratios, 2))
            table.add(case.task, kind, case.steps, *cells, *times)
    return 0
