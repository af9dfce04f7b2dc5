"""Environments small enough to solve by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from brinell.core.streams import Streams
from brinell.rlab.episodes import Action, Observation, StepResult
from brinell.rlab.policy import Heads, best

OVER = -1


@dataclass(frozen=True, kw_only=True)
class Random:
    """Every set of allowed options is as likely as any other: the control that learning is compared
    with.
    """

    choices: tuple[int, ...]
    """How many options each branch chooses."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """Uniform sampling without replacement."""
        keys = (
            rng.fold(branch).uniform(allowed.shape[1])
            for branch, allowed in enumerate(observation.allowed)
        )
        return best(keys, observation, self.choices)


@dataclass
class Table:
    """A deterministic decision process from a table: one branch, one choice, n slots that all begin
    in state 0.
    """

    next_states: Tensor
    """(states, options) int64: the next state, OVER where the episode terminates."""
    reward: Tensor
    """(states, options)."""
    slots: int = 4
    limit: int = 1_000_000
    """Steps after which an episode is truncated."""
    forbidden: Tensor | None = None
    """(states, options) bool: what is not allowed."""

    choices: tuple[int, ...] = (1,)
    alive: Tensor = field(init=False)
    state: Tensor = field(init=False)
    age: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.alive = torch.zeros(self.slots, dtype=torch.bool)
        self.state = torch.zeros(self.slots, dtype=torch.int64)
        self.age = torch.zeros(self.slots, dtype=torch.int64)

    def observation(self) -> Observation:
        forbidden = (
            torch.zeros_like(self.reward, dtype=torch.bool)
            if self.forbidden is None
            else self.forbidden
        )
        states = torch.nn.functional.one_hot(self.state, len(self.reward)).float()
        return Observation({"state": states}, (~forbidden[self.state],))

    def reset(self, mask: Tensor) -> Observation:
        self.alive |= mask
        self.state[mask] = self.age[mask] = 0
        return self.observation()

    def step(self, action: Action) -> StepResult:
        choice = action[0][:, 0]
        assert ((choice >= 0) | ~self.observation().allowed[0].any(1)).all()
        assert (
            self.observation().allowed[0].gather(1, choice.clamp(min=0)[:, None])[choice >= 0].all()
        )
        next_state, reward = self.next_states[self.state, choice], self.reward[self.state, choice]
        self.age += 1
        terminated = next_state == OVER
        truncated = ~terminated & (self.age >= self.limit)
        self.state = torch.where(terminated, self.state, next_state)
        self.alive &= ~(terminated | truncated)
        return StepResult(self.observation(), reward.float(), terminated, truncated)


@dataclass
class Swaps:
    """One step: choice `add` of what is worth most and `remove` of what costs most; worth and cost
    stand in the features.

    The return is the worth of what was added less the worth of what was removed; the best is known
    by sorting.
    """

    options: int = 6
    choices: tuple[int, ...] = (2, 1)
    slots: int = 16
    seed: int = 0
    work: int = 1_000_000
    """Episodes in all."""
    limited: bool = False
    """Every other episode counts one choice less in each branch."""

    alive: Tensor = field(init=False)
    values: Tensor = field(init=False)
    allowed: Tensor = field(init=False)
    reduced: Tensor = field(init=False)
    episodes: int = 0

    def __post_init__(self) -> None:
        self.alive = torch.zeros(self.slots, dtype=torch.bool)
        self.values = torch.zeros(self.slots, self.options)
        self.allowed = torch.zeros(self.slots, self.options, dtype=torch.bool)
        self.reduced = torch.zeros(self.slots, dtype=torch.bool)

    def reset(self, mask: Tensor) -> Observation:
        for slot in mask.nonzero()[:, 0].tolist():
            self.alive[slot] = self.episodes < self.work
            rng = Streams.of(self.seed, torch.tensor([self.episodes]))
            self.values[slot] = rng.fold("values").uniform(self.options)[0] * 2 - 1
            self.allowed[slot] = rng.fold("allowed").uniform(self.options)[0] < 0.8
            self.episodes += 1
            self.reduced[slot] = self.limited and self.episodes % 2
        self.allowed &= self.alive[:, None]
        return self.observation()

    def observation(self) -> Observation:
        limits = (
            tuple(choices - self.reduced.long() for choices in self.choices) if self.limited else ()
        )
        return Observation(
            {"values": self.values.clone()}, (self.allowed.clone(), self.allowed.clone()), limits
        )

    def best(self) -> Tensor:
        added = self._sum(
            self.values.masked_fill(~self.allowed, -9).argsort(descending=True)[
                :, : self.choices[0]
            ]
        )
        removed = self._sum(
            self.values.masked_fill(~self.allowed, 9).argsort()[:, : self.choices[1]]
        )
        return added - removed

    def _sum(self, choices: Tensor) -> Tensor:
        counts = torch.arange(choices.shape[1]) < (choices.shape[1] - self.reduced.long())[:, None]
        return (self.values.gather(1, choices) * (self.allowed.gather(1, choices) & counts)).sum(1)

    def step(self, action: Action) -> StepResult:
        totals = []
        for choices, width in zip(action, self.choices, strict=True):
            assert choices.shape == (self.slots, width)
            count = torch.minimum(self.allowed.sum(1), width - self.reduced.long())
            assert ((choices >= 0).sum(1) == count).all(), (
                "as many as possible are picked, and no more than count"
            )
            assert self.allowed.gather(1, choices.clamp(min=0))[choices >= 0].all(), (
                "only what is allowed"
            )
            totals.append(
                self.values.gather(1, choices.clamp(min=0)).masked_fill(choices < 0, 0).sum(1)
            )
        alive = self.alive.clone()
        self.alive = torch.zeros_like(alive)
        return StepResult(
            self.observation(), (totals[0] - totals[1]) * alive, alive, torch.zeros_like(alive)
        )


class Linear(nn.Module):
    """One feature to value and branches by a linear map each, zero at first: a table where features
    are one-hot.
    """

    def __init__(self, feature: str, inputs: int, options: tuple[int, ...]) -> None:
        super().__init__()
        self.feature = feature
        self.value = nn.Linear(inputs, 1)
        self.branches = nn.ModuleList(nn.Linear(inputs, n) for n in options)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, features: dict[str, Tensor]) -> Heads:
        x = features[self.feature]
        return Heads(self.value(x)[:, 0], tuple(branch(x) for branch in self.branches))


class Shared(nn.Module):
    """The same linear map for every option, its advantages those of the option's own feature."""

    def __init__(self) -> None:
        super().__init__()
        self.add, self.remove = nn.Linear(1, 1), nn.Linear(1, 1)
        self.state = nn.Linear(1, 1)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, features: dict[str, Tensor]) -> Heads:
        x = features["values"]
        adding, removing = (head(x[..., None])[..., 0] for head in (self.add, self.remove))
        return Heads(self.state(x.mean(1, keepdim=True))[:, 0], (adding, removing))


def mean_returns(
    environment: Swaps, act: Callable[[Observation], Action], rounds: int
) -> tuple[float, float]:
    """Mean return of a policy, and of the best there is."""
    total, best = torch.zeros(()), torch.zeros(())
    for _ in range(rounds):
        observation = environment.reset(~environment.alive)
        best += environment.best().mean()
        total += environment.step(act(observation)).reward.mean()
    return float(total) / rounds, float(best) / rounds


def predicted(posterior, rows, change):
    """(m,) each: expectation and variance of the effects of changes (m, channels, places) in some
    slots of a linear model.
    """
    variance = posterior.unit[rows].square() * posterior._effect_moments(rows, change)[3]
    return (posterior.mean[rows] * change).sum((1, 2)), variance
