"""DQN: dueling double deep Q-learning for actions that choose several options.

Mnih et al. 2015, Human-level control through deep reinforcement learning; van Hasselt, Guez &
Silver 2016, Deep reinforcement learning with double Q-learning, equation 4; Wang et al. 2016,
Dueling network architectures, equation 9; Tavakoli, Pardo & Kormushev 2018, Action branching
architectures, section 4.

Deviations:
- An action chooses several options from each branch without replacement and has one Q
  (`policy.worth`), not one for each branch: what the options pay together is learned from their
  common reward, and the best action is still found by sorting each branch.
- Updates begin after a number of steps, and their number in a round does not depend on the slots.
"""

import copy
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.errors import ContractError
from brinell.core.settings import Checked, Count, NotNegative, Positive, Whole
from brinell.rlab.episodes import Action, Observation, mapped
from brinell.rlab.policy import Heads, best, worth
from brinell.rlab.search import PatchSearch

EPISODES = 100
"""Over how many episodes returns are averaged."""
CLIP = 10.0
"""Largest norm of a gradient."""


class Transition(NamedTuple):
    """The actions in n states, with their outcomes."""

    observation: Observation
    action: Action
    reward: Tensor
    """(n,)."""
    discount: Tensor
    """(n,): what a unit of value afterwards is worth before; 0 where the episode terminated."""
    later: Observation


class Replay:
    """The latest transitions, within a bound on rows and on bytes.

    Features of float32 are kept in 16 bits.
    """

    def __init__(self, template: Transition, *, capacity: int, memory: int) -> None:
        """Hold at most `capacity` rows like `template`'s and `memory` bytes.

        Two rounds of all slots are always held.
        """
        # Bytes of one transition, as they are kept; `mapped` only visits the parts here.
        sizes: list[int] = []
        mapped(lambda part: sizes.append(part[0].numel() * _kept_as(part).itemsize), template)

        self.capacity = max(2 * len(template.reward), min(capacity, memory // sum(sizes)))
        # Without rows: it holds the types that samples are given back in.
        self._template: Transition = mapped(lambda part: part[:0], template)

        def empty(part: Tensor) -> Tensor:
            shape = (self.capacity, *part.shape[1:])
            return torch.empty(shape, dtype=_kept_as(part), device=part.device)

        self.columns: Transition = mapped(empty, template)
        self._taken = 0

    def __len__(self) -> int:
        return min(self._taken, self.capacity)

    def add(self, transitions: Transition, mask: Tensor) -> None:
        """Keep the transitions where `mask` (n,) holds, in place of the oldest ones."""
        slots = mask.nonzero()[:, 0]
        # A ring: the newest rows take the places of the oldest ones.
        rows = (self._taken + torch.arange(len(slots), device=mask.device)) % self.capacity
        self._taken += len(slots)
        mapped(
            lambda column, new: column.index_copy_(0, rows, new[slots].to(column.dtype)),
            self.columns,
            transitions,
        )

    def sample(self, size: int, generator: torch.Generator) -> Transition:
        """So many transitions, drawn uniformly."""
        rows = torch.randint(len(self), (size,), generator=generator, device=generator.device)
        transitions: Transition = mapped(
            lambda column, like: column[rows].to(like.dtype), self.columns, self._template
        )
        return transitions


def _kept_as(tensor: Tensor) -> torch.dtype:
    """The type in which a column is kept: features of float32 in 16 bits."""
    return torch.float16 if tensor.dtype == torch.float32 and tensor.ndim > 1 else tensor.dtype


@dataclass(frozen=True, kw_only=True)
class DQNSettings(Checked):
    """How DQN learns."""

    gamma: NotNegative = 0.98
    """Discount of one step."""
    learning_rate: Positive = 3e-4
    """Of Adam."""
    batch_size: Count = 64
    """Transitions of one gradient step."""
    updates: Count = 2
    """Gradient steps after each step of all slots."""
    warm_up: Whole = 640
    """Steps of single slots before the first gradient step, all of them exploring as at the
    start."""
    target_every: Count = 200
    """Gradient steps from one copy of the network to the next."""
    epsilon_start: NotNegative = 0.2
    """Probability, at first, that a branch acts at random."""
    epsilon_end: NotNegative = 0.05
    """The same in the end."""
    epsilon_steps: Whole = 20_000
    """Steps of single slots until then; from step 0 to there it falls linearly, after the
    warm-up."""
    capacity: int = 100_000
    """Most transitions in the replay memory."""
    memory: int = 2**29
    """Most bytes in the replay memory."""

    def epsilon(self, steps: int) -> float:
        """The probability of a random action after so many steps."""
        if steps < self.warm_up:
            return self.epsilon_start
        share = min(1.0, steps / self.epsilon_steps) if self.epsilon_steps else 1.0
        return self.epsilon_start + share * (self.epsilon_end - self.epsilon_start)


@torch.no_grad()
def target_of(
    sample: Transition, network: nn.Module, target: nn.Module, choices: tuple[int, ...]
) -> Tensor:
    """(n,): what Q should be: the reward, and the copy's value of the network's best action.

    Double Q-learning: the network chooses the action afterwards, and its older copy judges it.
    """
    later = sample.later
    chooser: Heads = network(later.features)
    action = best(chooser.branches, later, choices)
    value = worth(target(later.features), later.allowed, action)
    return sample.reward + sample.discount * value


class DQN:
    """DQN at work on one environment. It begins with fresh episodes and advances by rounds."""

    def __init__(
        self, settings: DQNSettings, network: nn.Module, environment: PatchSearch, seed: int
    ) -> None:
        self.settings = settings
        self.network = network
        self.environment = environment
        self._parameters = list(network.parameters())
        # An older copy judges actions: the network does not chase its own estimates (Mnih et al.).
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._optimizer = torch.optim.Adam(self._parameters, lr=settings.learning_rate, fused=True)
        # A stream of its own: what the network draws does not shift the environment's numbers.
        self._generator = torch.Generator(self._parameters[0].device).manual_seed(seed)
        self._observation = environment.reset(torch.ones_like(environment.alive))
        self._replay: Replay | None = None
        self.steps = 0
        self.updates = 0
        self.episodes = 0
        self._loss: float | None = None
        self._ended: deque[tuple[float, float]] = deque(maxlen=EPISODES)

        # Double: a return is a sum of thousands of rewards.
        alive = environment.alive
        self._running = torch.zeros(2, len(alive), dtype=torch.float64, device=alive.device)

    def learn(
        self, *, steps: int | None = None, seconds: float | None = None, interval: int = 1000
    ) -> Iterator[dict[str, Any]]:
        """Advance by whole rounds until `steps` of single slots or `seconds` are spent.

        It ends earlier where the environment runs out of work.

        There is a point of the training curve every so many steps, and always one at the end:
        `seconds` of this call; `steps` of single slots, `updates` of the network and `episodes` so
        far; the `mean_return` and `mean_length` of the last 100 episodes, None before the first;
        the `loss` of the last round; `epsilon`, the probability of a random action.
        """
        began = time.monotonic()
        reported = self.steps
        while bool(self.environment.alive.any()) and (steps is None or self.steps < steps):
            # Seconds are looked at between rounds: a round is played to its end.
            if seconds is not None and time.monotonic() - began >= seconds:
                break

            replay = self._collect()
            # Too few transitions would be learned by heart.
            if self.steps >= self.settings.warm_up:
                self._update(replay)
            if self.steps >= reported + interval:
                reported = self.steps
                yield self._progress(time.monotonic() - began)

        # The end of the training has a point of the curve, whatever the interval.
        if self.steps != reported:
            yield self._progress(time.monotonic() - began)

    def _progress(self, seconds: float) -> dict[str, Any]:
        """A point of the training curve."""
        count = len(self._ended)
        mean_return = sum(value for value, _ in self._ended) / count if count else None
        mean_length = sum(length for _, length in self._ended) / count if count else None
        return {
            "seconds": seconds,
            "steps": self.steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "mean_return": mean_return,
            "mean_length": mean_length,
            "loss": self._loss,
            "epsilon": self.settings.epsilon(self.steps),
        }

    @torch.no_grad()
    def _collect(self) -> Replay:
        """A step in all slots; the memory with its transitions."""
        alive = self.environment.alive.clone()
        before = self._observation
        action = self._explore()
        step = self.environment.step(action)

        transitions = Transition(
            before,
            action,
            step.reward,
            self.settings.gamma * (~step.terminated).float(),
            step.observation,
        )
        if self._replay is None:
            self._replay = Replay(
                transitions, capacity=self.settings.capacity, memory=self.settings.memory
            )
        self._replay.add(transitions, alive)

        self._observation = step.observation
        self.steps += int(alive.sum())
        # Sums of the episodes that are going on: their rewards and their lengths.
        self._running += torch.stack([step.reward, alive.to(step.reward.dtype)])
        finished = step.terminated | step.truncated
        if bool(finished.any()):
            self.episodes += int(finished.sum())
            for value, length in self._running[:, finished].T.tolist():
                self._ended.append((value, length))
            self._running[:, finished] = 0
            # The next action is chosen in the first states of the new episodes.
            self._observation = self.environment.reset(finished)
        return self._replay

    def _explore(self) -> Action:
        """The best actions, or random ones: each branch of each slot is drawn independently."""
        epsilon = self.settings.epsilon(self.steps)
        keys = [self._uniform(*allowed.shape) for allowed in self._observation.allowed]
        # A branch at random is sorted by random keys, one that is greedy by its advantages.
        if epsilon < 1:
            heads: Heads = self.network(self._observation.features)
            for branch, outputs in enumerate(heads.branches):
                is_random = self._uniform(len(outputs), 1) < epsilon
                keys[branch] = torch.where(is_random, keys[branch], outputs)
        return best(keys, self._observation, self.environment.choices)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._generator, device=self._generator.device)

    def _update(self, replay: Replay) -> None:
        """Gradient steps on samples from the memory."""
        settings = self.settings
        losses = []
        for _ in range(settings.updates):
            sample = replay.sample(settings.batch_size, self._generator)
            expected = target_of(sample, self.network, self._target, self.environment.choices)
            heads = self.network(sample.observation.features)
            q = worth(heads, sample.observation.allowed, sample.action)

            loss = F.smooth_l1_loss(q, expected)
            self._optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(self._parameters, CLIP)
            self._optimizer.step()
            # Losses stay on the device until the round is over: a read for each would wait for it.
            losses.append(loss.detach())
            self.updates += 1
            if self.updates % settings.target_every == 0:
                self._target.load_state_dict(self.network.state_dict())

        self._loss = float(torch.stack(losses).mean())
        if not math.isfinite(self._loss):
            raise ContractError(
                f"the loss became {self._loss} at step {self.steps}: a feature, a "
                "reward or an output is not finite; "
                "mend that, or lower the learning rate"
            )
