"""DQN: dueling double deep Q-learning for actions that choose several options.

Mnih et al. 2015, Human-level control through deep reinforcement learning; van Hasselt, Guez & Silver 2016, Deep reinforcement
learning with double Q-learning, equation 4; Wang et al. 2016, Dueling network architectures, equation 9; Tavakoli, Pardo &
Kormushev 2018, Action branching architectures, section 4; n-step returns as in Hessel et al. 2018, Rainbow.

Deviations:
- An action chooses several options from each branch without replacement and has one Q (`policies.worth`), not one for each
  branch: what the options pay together is learned from their common reward, and the best action is still found by sorting each
  branch.
- n-step returns are not corrected for exploration on the way, as in Rainbow.
- Updates begin after a number of steps, and their number in a round does not depend on the slots.

The replay memory keeps every state once, joined to the state that followed it by its row. Rows are reused in turn, so a state
outlives all that came before it, and the state that a kept row leads to is kept as well.
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
from brinell.rlab.policy import Heads, best, gumbel, worth
from brinell.rlab.search import PatchSearch

EPISODES = 100
"""Over how many episodes returns are averaged."""
END = -1
"""In place of the next row: the episode terminated."""
OPEN = -2
"""In place of the next row: nothing was done in this state yet, or nothing ever will be, as the last of a truncated episode."""


class Sample(NamedTuple):
    """Transitions over up to n steps."""

    observation: Observation
    """The states in which they begin."""
    action: Action
    reward: Tensor
    """(b,): discounted sum of the rewards on the way."""
    discount: Tensor
    """(b,): what a unit of value at the end of the way is worth at its beginning; 0 where the episode terminated."""
    later: Observation
    """The states at the end of the way; anything where the discount is 0."""
    weight: Tensor
    """(b,): 1 for transitions, 0 for other rows."""


class Replay:
    """The latest transitions of all slots, within a bound on rows and on bytes. Features of float32 are kept in 16 bits."""

    def __init__(self, observation: Observation, action: Action, *, capacity: int, memory: int) -> None:
        """Size the memory by any observation and action: at most `capacity` rows and `memory` bytes, and four of every slot."""
        slots, device = len(observation.allowed[0]), observation.allowed[0].device
        template = observation, tuple(tensor.to(torch.int32) for tensor in action)
        sizes: list[int] = []
        mapped(lambda part: sizes.append(part[0].numel() * _kept_as(part).itemsize), template)
        row = sum(sizes) + 4 + 8
        self.capacity = max(4 * slots, min(capacity, memory // row))
        self._template: Observation = mapped(lambda part: part[:0], observation)
        self.columns: tuple[Observation, Action] = mapped(
            lambda part: torch.empty(self.capacity, *part.shape[1:], dtype=_kept_as(part), device=device), template
        )
        """The states, and what was done in them."""
        for choices in self.columns[1]:
            # States in which nothing was done are sampled too, with weight 0: their entries must be a possible action.
            choices.fill_(-1)
        self.reward = torch.zeros(self.capacity, device=device)
        self.following = torch.empty(self.capacity, dtype=torch.int64, device=device)
        self.taken = 0
        """Rows taken since the beginning."""

    def __len__(self) -> int:
        return min(self.taken, self.capacity)

    def add(self, observation: Observation, mask: Tensor) -> Tensor:
        """Keep the observations of the slots in `mask` (n,); their rows (n,) int64, END for the other slots."""
        slots = mask.nonzero()[:, 0]
        begin = self.taken % self.capacity
        rows = torch.arange(begin, begin + len(slots), device=mask.device)
        if begin + len(slots) > self.capacity:
            rows %= self.capacity
        self.taken += len(slots)
        self._put(self.columns[0], rows, observation, slots)
        self.following.index_fill_(0, rows, OPEN)
        return rows if len(rows) == len(mask) else torch.full_like(mask, END, dtype=torch.int64).index_copy_(0, slots, rows)

    def link(self, rows: Tensor, action: Action, reward: Tensor, after: Tensor) -> None:
        """Make transitions of `rows` (n,): what was done, what it paid, and the row it led to. Skips END."""
        slots = (rows >= 0).nonzero()[:, 0]
        rows = rows.index_select(0, slots)
        self._put(self.columns[1], rows, action, slots)
        self.reward.index_copy_(0, rows, reward.index_select(0, slots))
        self.following.index_copy_(0, rows, after.index_select(0, slots))

    def sample(self, size: int, n_step: int, gamma: float, generator: torch.Generator) -> Sample:
        """Transitions drawn uniformly.

        Args:
            size: b, the number of transitions.
            n_step: longest way. Ways end early where the episode does, and at the present.
            gamma: discount of a step.
            generator: where the draws come from.
        """
        uniform = torch.rand(size, generator=generator, device=self.reward.device)
        rows = (uniform * len(self)).to(torch.int64).clamp(max=len(self) - 1)
        weight = (self.following.index_select(0, rows) != OPEN).to(uniform.dtype)
        reward, discount, last = self._way(rows, n_step, gamma)
        action = tuple(column.index_select(0, rows).long() for column in self.columns[1])
        return Sample(self._observation(rows), action, reward, discount, self._observation(last.clamp(min=0)), weight)

    def _way(self, rows: Tensor, n_step: int, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
        """Discounted rewards, discount and row at the end of up to `n_step` steps from each row."""
        reward, discount = self.reward.new_zeros(len(rows)), self.reward.new_ones(len(rows))
        for _ in range(n_step):
            valid = rows.clamp(min=0)
            following = self.following.index_select(0, valid)
            on = (rows >= 0) & (following != OPEN)
            reward = torch.addcmul(reward, discount * on, self.reward.index_select(0, valid))
            discount = torch.where(on, discount * gamma, discount)
            rows = torch.where(on, following, rows)
        return reward, discount * (rows >= 0), rows

    @staticmethod
    def _put(columns: Any, rows: Tensor, new: Any, slots: Tensor) -> None:
        mapped(lambda column, tensor: column.index_copy_(0, rows, tensor.index_select(0, slots).to(column.dtype)), columns, new)

    def _observation(self, rows: Tensor) -> Observation:
        observation: Observation = mapped(
            lambda column, template: column.index_select(0, rows).to(template.dtype), self.columns[0], self._template
        )
        return observation


def _kept_as(tensor: Tensor) -> torch.dtype:
    return torch.float16 if tensor.dtype == torch.float32 else tensor.dtype


@dataclass(frozen=True, kw_only=True)
class DQNSettings(Checked):
    """How DQN learns."""

    gamma: NotNegative = 0.98
    """Discount of one step."""
    n_step: Count = 3
    """Rewards that are summed before the rest is estimated."""
    learning_rate: Positive = 3e-4
    """Of Adam."""
    batch_size: Count = 64
    """Transitions of one gradient step."""
    updates: Count = 2
    """Gradient steps after each step of all slots."""
    warm_up: Whole = 640
    """Steps of single slots before the first gradient step, all of them exploring as at the start."""
    target_every: Count = 200
    """Gradient steps from one copy of the network to the next."""
    epsilon_start: NotNegative = 0.2
    """Probability, at first, that a branch acts at random."""
    epsilon_end: NotNegative = 0.05
    """The same in the end."""
    epsilon_steps: Whole = 20_000
    """Steps of single slots until then; from step 0 to there it falls linearly, after the warm-up."""
    temperature: NotNegative = 0.0
    """Above 0: options that are not random are drawn in proportion to exp(advantage / temperature)."""
    huber: Positive = 1.0
    """Error above which the loss grows linearly."""
    clip: Positive = 10.0
    """Largest norm of a gradient."""
    capacity: int = 100_000
    """Most states in the replay memory."""
    memory: int = 2**29
    """Most bytes in the replay memory."""

    def epsilon(self, steps: int) -> float:
        """The probability of a random action after so many steps."""
        if steps < self.warm_up:
            return self.epsilon_start
        share = min(1.0, steps / self.epsilon_steps) if self.epsilon_steps else 1.0
        return self.epsilon_start + share * (self.epsilon_end - self.epsilon_start)


@torch.no_grad()
def target_of(sample: Sample, network: nn.Module, target: nn.Module, choices: tuple[int, ...]) -> Tensor:
    """(b,): what Q should be: the rewards on the way, and the copy's value of the network's best action at its end."""
    later = sample.later
    chooser: Heads = network(later.features)
    return sample.reward + sample.discount * worth(target(later.features), later.allowed, best(chooser.branches, later, choices))


class DQN:
    """DQN at work on one environment. It begins with fresh episodes and advances by rounds."""

    def __init__(self, settings: DQNSettings, network: nn.Module, environment: PatchSearch, seed: int) -> None:
        self.settings, self.network, self.environment = settings, network, environment
        self._parameters = list(network.parameters())
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._optimizer = torch.optim.Adam(self._parameters, lr=settings.learning_rate, fused=True)
        self._generator = torch.Generator(self._parameters[0].device).manual_seed(seed)
        self._observation = environment.reset(torch.ones_like(environment.alive))
        branches = zip(self._observation.allowed, environment.choices, strict=True)
        no_action = tuple(allowed.new_zeros(len(allowed), k) for allowed, k in branches)
        self._replay = Replay(self._observation, no_action, capacity=settings.capacity, memory=settings.memory)
        self._rows = self._replay.add(self._observation, environment.alive)
        self.steps = self.updates = self.episodes = 0
        self._loss: float | None = None
        self._ended: deque[tuple[float, float]] = deque(maxlen=EPISODES)
        # Double: a return is a sum of thousands of rewards.
        self._running = torch.zeros(2, len(environment.alive), dtype=torch.float64, device=environment.alive.device)

    def learn(self, *, steps: int | None = None, seconds: float | None = None, interval: int = 1000) -> Iterator[dict[str, Any]]:
        """Advance by whole rounds until `steps` of single slots or `seconds` are spent, or the environment runs out of work.

        There is a point of the training curve every so many steps, and always one at the end: `seconds` of this call; `steps` of
        single slots, `updates` of the network and `episodes` so far; the `mean_return` and `mean_length` of the last 100
        episodes, None before the first; the `loss` of the last round; `epsilon`, the probability of a random action.

        Raises:
            ContractError: the loss is not finite.
        """
        began, reported = time.monotonic(), self.steps
        while bool(self.environment.alive.any()) and (steps is None or self.steps < steps):
            if seconds is not None and time.monotonic() - began >= seconds:
                break
            self._collect()
            if self.steps >= self.settings.warm_up:
                self._update()
            if self.steps >= reported + interval:
                reported = self.steps
                yield self._progress(time.monotonic() - began)
        if self.steps != reported:
            yield self._progress(time.monotonic() - began)

    def _progress(self, seconds: float) -> dict[str, Any]:
        returns, lengths = zip(*self._ended, strict=True) if self._ended else ((), ())
        counts = {"seconds": seconds, "steps": self.steps, "updates": self.updates, "episodes": self.episodes}
        means = {name: sum(of) / len(of) if of else None for name, of in (("mean_return", returns), ("mean_length", lengths))}
        return counts | means | {"loss": self._loss, "epsilon": self.settings.epsilon(self.steps)}

    @torch.no_grad()
    def _collect(self) -> None:
        alive = self.environment.alive.clone()
        action = self._explore()
        step = self.environment.step(action)
        finished = step.terminated | step.truncated
        after = self._replay.add(step.observation, alive & ~step.terminated)
        self._replay.link(self._rows, action, step.reward, after)
        self._observation, self._rows = step.observation, after
        self.steps += int(alive.sum())
        self._running += torch.stack([step.reward, alive.to(step.reward.dtype)])
        slots = finished.nonzero()[:, 0]
        if len(slots):
            self.episodes += len(slots)
            self._ended.extend((value, length) for value, length in self._running[:, slots].T.tolist())
            self._running[:, slots] = 0
            self._observation = self.environment.reset(finished)
            fresh = self._replay.add(self._observation, finished & self.environment.alive)
            self._rows = torch.where(finished, fresh, after)

    def _explore(self) -> Action:
        """The best actions, or random ones: an independent draw decides for each branch of each slot."""
        epsilon, temperature = self.settings.epsilon(self.steps), self.settings.temperature
        keys = [self._uniform(*allowed.shape) for allowed in self._observation.allowed]
        if epsilon < 1:
            heads: Heads = self.network(self._observation.features)
            for branch, outputs in enumerate(heads.branches):
                if temperature:
                    outputs = outputs / temperature + gumbel(self._uniform(*outputs.shape))
                keys[branch] = torch.where(self._uniform(len(outputs), 1) < epsilon, keys[branch], outputs)
        return best(keys, self._observation, self.environment.choices)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._generator, device=self._generator.device)

    def _update(self) -> None:
        settings, losses = self.settings, []
        for _ in range(settings.updates):
            sample = self._replay.sample(settings.batch_size, settings.n_step, settings.gamma, self._generator)
            expected = target_of(sample, self.network, self._target, self.environment.choices)
            q = worth(self.network(sample.observation.features), sample.observation.allowed, sample.action)
            loss = (F.huber_loss(q, expected, reduction="none", delta=settings.huber) * sample.weight).mean()
            self._optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(self._parameters, settings.clip)
            self._optimizer.step()
            losses.append(loss.detach())
            self.updates += 1
            if self.updates % settings.target_every == 0:
                self._target.load_state_dict(self.network.state_dict())
        self._loss = float(torch.stack(losses).mean())
        if not math.isfinite(self._loss):
            raise ContractError(
                f"the loss became {self._loss} at step {self.steps}: a feature, a reward or an output is not finite; "
                "mend that, or lower the learning rate"
            )
